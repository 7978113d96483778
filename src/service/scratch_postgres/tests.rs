use std::env;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{Halt, ScratchOptions, ScratchPostgres};

#[test]
fn two_at_once_do_not_disturb_each_other_and_nothing_is_left_of_either() {
    let starting: Vec<_> = (0..2).map(|_| thread::spawn(|| ScratchPostgres::start(&[]).unwrap())).collect();
    let servers: Vec<_> = starting.into_iter().map(|server| server.join().unwrap()).collect();
    assert_ne!(servers[0].port(), servers[1].port());
    for server in servers {
        assert_eq!(ask(&server, "SELECT 6 * 7"), "42");
        let folder = server.folder.path().to_owned();
        server.stop().unwrap();
        assert!(!folder.exists(), "{} is still there", folder.display());
    }
}

#[test]
fn a_server_with_options_has_its_place_port_address_and_environment() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let zone = "it's <Here>-7";
    let port = super::free_port(Ipv4Addr::LOCALHOST).unwrap();
    let mut server = ScratchPostgres::start_with(&ScratchOptions {
        environment: &[("OF_THE_TEST", zone)],
        port: Some(port),
        within: Some(place.path()),
        ..ScratchOptions::default()
    })
    .unwrap();
    assert_eq!(server.port(), port);
    assert!(server.data_dir().unwrap().starts_with(place.path()));
    for _ in 0..2 {
        assert_eq!(ask(&server, "SELECT inet_server_addr()"), "127.0.0.1");
        let told = ask(
            &server,
            "CREATE TEMP TABLE told (line text); COPY told FROM PROGRAM 'echo \"$OF_THE_TEST\"'; SELECT line FROM told",
        );
        assert_eq!(told, zone);
        server.restart(Halt::Fast).unwrap();
    }
    drop(server);
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
}

#[test]
fn every_halt_keeps_the_port_and_what_was_committed() {
    let mut server = ScratchPostgres::start(&[("work_mem", "5MB")]).unwrap();
    ask(&server, "CREATE TABLE kept (n int)");
    let port = server.port();
    for (n, how) in [Halt::Fast, Halt::Immediate, Halt::Kill].into_iter().enumerate() {
        ask(&server, "INSERT INTO kept VALUES (1)");
        server.restart(how).unwrap();
        assert_eq!(ask(&server, "SELECT count(*) FROM kept"), (n + 1).to_string(), "after {how:?}");
        assert_eq!(server.port(), port);
    }
    assert_eq!(ask(&server, "SHOW work_mem"), "5MB");
    assert_eq!(
        ask(
            &server,
            "SELECT string_agg(current_setting(s), ' ') FROM unnest('{fsync,full_page_writes,synchronous_commit}'::text[]) s"
        ),
        "on on on"
    );
}

/// A killed server cannot give back its shared memory itself.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_server_leaves_no_shared_memory_behind() {
    let mut server = ScratchPostgres::start(&[]).unwrap();
    let pid_file = std::fs::read_to_string(server.data_dir().unwrap().join("postmaster.pid")).unwrap();
    let segment = pid_file.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    let segments = || {
        let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        text.lines().filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect::<Vec<_>>()
    };
    server.halt(Halt::Kill).unwrap();
    assert!(segments().contains(&segment), "a killed server leaves its segment for the next start");
    server.stop().unwrap();
    assert!(!segments().contains(&segment));
}

#[test]
fn a_setting_that_postgresql_refuses_is_named() {
    let error = ScratchPostgres::start(&[("no_such_setting", "1")]).err().unwrap().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
}

/// The child of the test below: starts a server, tells where it lives, and waits to be killed.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn holds_a_server_until_killed() {
    let server = ScratchPostgres::start(&[]).unwrap();
    println!("\nfolder={}", server.folder.path().display());
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn the_server_ends_when_whoever_started_it_is_killed() {
    let mut holder = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "service::scratch_postgres::tests::holds_a_server_until_killed"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let folder = BufReader::new(holder.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("folder=").map(str::to_owned))
        .expect("the holder starts a server");
    let pid_file = Path::new(&folder).join("data/postmaster.pid");
    let in_container = !pid_file.exists();
    let pid = std::fs::read_to_string(pid_file).map(|text| text.lines().next().unwrap().to_owned());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let gone = (0..400).any(|_| {
        thread::sleep(Duration::from_millis(50));
        !Path::new(&folder).exists()
    });
    assert!(gone, "{folder} is still there 20 s later");
    if !in_container {
        let runs = Command::new("kill").args(["-0", &pid.unwrap()]).stderr(Stdio::null()).status().unwrap();
        assert!(!runs.success(), "the folder is gone, the server still runs");
    }
}

fn ask(server: &ScratchPostgres, sql: &str) -> String {
    let output = server.program("psql").args(["-XAtq", "-c", sql, "postgres"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
