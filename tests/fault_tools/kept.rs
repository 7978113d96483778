use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::tools::disk_full::{self, SmallDiskServer, is_mounted};
use crate::tools::kept::{Kept, bounded, signal, within};

#[test]
fn a_dropped_process_is_gone_and_a_stopped_one_can_go_on() {
    let held = sleeper();
    let process = PathBuf::from(format!("/proc/{}", held.pid()));
    let state = || {
        let text = std::fs::read_to_string(process.join("stat")).unwrap();
        text.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    held.signal("STOP");
    within(Duration::from_secs(5), "it is stopped", || state() == 'T');
    held.signal("CONT");
    within(Duration::from_secs(5), "it goes on", || state() == 'S');
    drop(held);
    assert!(!process.exists());
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    let began = Instant::now();
    let error = bounded(Command::new("sleep").arg("30"), Duration::from_millis(200)).unwrap_err();
    assert!(error.contains("took longer"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// The child of the test below: starts a process and a disk, tells of them, and waits to be killed.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn holds_everything_until_killed() {
    let held = sleeper();
    let disk = disk_full::available().is_ok().then(|| SmallDiskServer::start(&[]).unwrap());
    let place = disk.as_ref().map(|disk| disk.postgres.data_dir().unwrap().ancestors().nth(2).unwrap().to_owned());
    println!("\nholds {} {}", held.pid(), place.unwrap_or_else(|| "/nonexistent".into()).display());
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn processes_and_disks_end_when_whoever_started_them_is_killed() {
    let mut holder = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "kept::holds_everything_until_killed"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(holder.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("holds ").map(str::to_owned))
        .expect("the holder starts both");
    let (pid, place) = told.split_once(' ').unwrap();
    let process = PathBuf::from(format!("/proc/{pid}"));
    assert!(process.exists());
    signal(holder.id(), "KILL");
    holder.wait().unwrap();
    within(Duration::from_secs(20), "the process is gone", || !process.exists());
    let place = Path::new(place);
    within(Duration::from_secs(20), "the disk is gone", || !is_mounted(place) && !place.exists());
}

fn sleeper() -> Kept {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let owner = std::fs::metadata(folder.path()).unwrap();
    Kept::start(Path::new("sleep"), &["60"], (owner.uid(), owner.gid()), Path::new("/dev/null"))
}
