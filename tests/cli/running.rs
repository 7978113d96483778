//! `call-budget run`: when a command runs, how it ends, and that nothing of it changes on the way.

mod jobs;
mod signals;
mod terminal;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio_postgres::Client;

use crate::support::eventually;
use crate::{Outcome, call_budget, database_with_budget, words};

const PROGRAM: &str = env!("CARGO_BIN_EXE_call-budget");
/// Nothing listens there.
const NOWHERE: &str = "postgresql://u:not-a-real-password@127.0.0.1:1/d?sslmode=disable";

/// A store that a busy machine makes slow is waited for and not told of.
const PATIENT: [(&str, &str); 2] = [("CALL_BUDGET_STATEMENT_TIMEOUT", "5s"), ("RUST_LOG", "error")];

/// `call-budget run` with the switch on, as its own process group: a test may run in the foreground of a terminal.
fn run(url: &str, options: &[&str], command: &[&str]) -> Command {
    let mut run = Command::new(PROGRAM);
    run.args([&["run"], options, &["kis-real", "eod", "--"], command].concat())
        .env("CALL_BUDGET_ENABLED", "true")
        .env("DATABASE_URL", url)
        .envs(PATIENT)
        .process_group(0)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    run
}

/// Runs it to its end, at most half a minute.
async fn outcome(command: &mut Command) -> Outcome {
    let output = tokio::time::timeout(Duration::from_secs(30), command.kill_on_drop(true).output());
    let output = output.await.unwrap_or_else(|_| panic!("{command:?} did not end")).unwrap();
    Outcome {
        exit: output.status.code().expect("call-budget dies of no signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The slots that the budget has granted.
async fn granted(client: &Client) -> i64 {
    let granted = "SELECT sum(granted)::bigint FROM call_budget.call_budget_class WHERE budget = 'kis-real'";
    client.query_one(granted, &[]).await.unwrap().get(0)
}

/// A directory with the path of a file that a command would make.
fn trace() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    (directory, file)
}

async fn line(reader: &mut (impl AsyncBufReadExt + Unpin)) -> String {
    let mut line = String::new();
    let read = tokio::time::timeout(Duration::from_secs(20), reader.read_line(&mut line));
    read.await.expect("the command says nothing").unwrap();
    line.trim_end().to_owned()
}

async fn exit_code(child: &mut Child) -> i32 {
    let status = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.expect("run did not end");
    status.unwrap().code().expect("call-budget dies of no signal")
}

#[tokio::test]
async fn the_exit_code_of_the_command_is_passed_on_and_its_death_said_as_shells_say_it() {
    let database = database_with_budget().await;
    for (script, exit) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137)] {
        let outcome = outcome(&mut run(&database.url, &[], &["sh", "-c", script])).await;
        assert_eq!((outcome.exit, outcome.stdout.as_str(), outcome.stderr.as_str()), (exit, "", ""), "{script}");
    }
    assert!(granted(&database.client).await >= 4, "each has had a slot of its own");
}

#[tokio::test]
async fn the_streams_are_the_commands_alone_byte_by_byte() {
    let database = database_with_budget().await;
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    let mut child = run(&database.url, &[], &["sh", "-c", "echo only this >&2; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (output, ()) = tokio::join!(child.wait_with_output(), async {
        stdin.write_all(&bytes).await.unwrap();
        drop(stdin);
    });
    let output = output.unwrap();
    assert!(output.stdout == bytes, "{} bytes came of {}", output.stdout.len(), bytes.len());
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"only this\n".as_slice()));
}

#[tokio::test]
async fn a_refusal_says_whether_to_try_later_and_nothing_is_started() {
    let database = database_with_budget().await;
    let (_directory, file) = trace();
    let touch = ["touch", file.to_str().unwrap()];
    let refused = async |options: &[&str]| outcome(&mut run(&database.url, options, &touch)).await;
    let done = async |command: &str| call_budget(&database.url, &words(command)).await.done();

    refused(&["--cost", "2"]).await.refused(2, &["the command was not started", "cost"]);
    refused(&["--cost", "0"]).await.refused(2, &["'0'", "--cost"]);
    refused(&["--max-wait", "25h"]).await.refused(2, &["max_wait", "1 day"]);
    done("budget pause kis-real --reason maintenance").await;
    refused(&[]).await.refused(75, &["the command was not started", "CALL_BUDGET_PAUSED"]);
    done("budget resume kis-real").await;
    done("budget pushback kis-real --for 1h").await;
    refused(&["--max-wait", "10s"]).await.refused(75, &["CALL_BUDGET_WAIT_EXCEEDED", "try again in"]);
    assert!(!file.exists());
    assert_eq!(granted(&database.client).await, 0);
}

#[tokio::test]
async fn an_unknown_name_is_an_error_of_usage_and_a_store_that_is_out_is_not() {
    let database = database_with_budget().await;
    for (names, known) in
        [(["kis-rael", "eod"], "call-budget budget list"), (["kis-real", "eood"], "call-budget class list")]
    {
        let mut run = Command::new(PROGRAM);
        run.arg("run").args(names).args(["--", "true"]);
        run.env("CALL_BUDGET_ENABLED", "true").env("DATABASE_URL", &database.url);
        let outcome = outcome(&mut run).await;
        assert_eq!(outcome.stderr.matches(known).count(), 1, "the way out is told once: {}", outcome.stderr);
        outcome.refused(2, &["CALL_BUDGET_UNKNOWN"]);
    }
    let mut out = run(NOWHERE, &[], &["true"]);
    let out = outcome(out.env("CALL_BUDGET_STORE_OUTAGE_MAX", "0s")).await;
    assert_eq!((out.exit, out.stdout.as_str()), (69, ""), "{}", out.stderr);
    assert!(out.stderr.contains("CALL_BUDGET_STORE_UNAVAILABLE"), "{}", out.stderr);
    assert!(!out.stderr.contains("not-a-real-password"), "{}", out.stderr);
    // Short of what counts as an outage: what is missing is the store all the same, and not a free slot.
    outcome(&mut run(NOWHERE, &["--max-wait", "1s"], &["true"]))
        .await
        .refused(69, &["CALL_BUDGET_WAIT_EXCEEDED", "connect"]);
}

#[tokio::test]
async fn where_nothing_names_a_store_each_command_says_how_to() {
    for command in ["run kis-real eod -- true", "status", "preflight kis-real"] {
        let mut nowhere = Command::new(PROGRAM);
        nowhere.args(words(command)).env("CALL_BUDGET_ENABLED", "true").env_remove("DATABASE_URL").stdin(Stdio::null());
        let ways = ["database_url (CALL_BUDGET_DATABASE_URL)", "the variable DATABASE_URL", "--database-url"];
        outcome(&mut nowhere).await.refused(2, &ways);
    }
}

#[tokio::test]
async fn a_command_that_cannot_run_costs_no_slot() {
    let database = database_with_budget().await;
    let (directory, file) = trace();
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    let plain = file.to_str().unwrap();
    let folder = directory.path().to_str().unwrap();
    for (command, exit, why) in [
        ("no-such-command", 127, "is not found"),
        ("/no/such/command", 127, "is not found"),
        ("", 127, "is not found"),
        (plain, 126, "cannot be executed"),
        (folder, 126, "cannot be executed"),
    ] {
        outcome(&mut run(&database.url, &[], &[command])).await.refused(exit, &[command, why]);
    }
    let mut found = run(&database.url, &[], &["trace"]);
    outcome(found.env("PATH", format!("/no/such/folder:{folder}"))).await.refused(126, &["\"trace\""]);
    assert_eq!(granted(&database.client).await, 0);
}

#[tokio::test]
async fn a_script_that_does_not_name_its_shell_runs_as_in_a_shell() {
    let database = database_with_budget().await;
    let (directory, file) = trace();
    std::fs::write(&file, "echo \"$1\"\nexit 5\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let mut script = run(&database.url, &[], &["trace", "a  b"]);
    let script = outcome(script.env("PATH", format!("{}:/bin", directory.path().display()))).await;
    assert_eq!((script.exit, script.stdout.as_str(), script.stderr.as_str()), (5, "a  b\n", ""));
}

/// No terminal, no environment, no home, nothing on stdin; what it has to know stands in a file.
#[tokio::test]
async fn it_works_as_cron_starts_it() {
    let database = database_with_budget().await;
    let (_directory, settings) = trace();
    std::fs::write(&settings, format!("call_budget_enabled = true\ndatabase_url = \"{}\"\n", database.url)).unwrap();
    let mut cron = Command::new("setsid");
    cron.args(["--wait", PROGRAM, "run", "--config"]).arg(&settings).args(words("kis-real eod -- sh -c"));
    cron.arg("cat; echo \"home ${HOME-unset}\"; (: < /dev/tty) 2> /dev/null || echo no terminal; exit 4");
    cron.env_clear().envs(PATIENT).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    let outcome = outcome(&mut cron).await;
    assert_eq!(
        (outcome.exit, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (4, "home unset\nno terminal\n", ""),
        "{}",
        outcome.stdout
    );
    assert!(granted(&database.client).await >= 1);
}

#[tokio::test]
async fn without_any_path_the_usual_places_are_searched() {
    let mut bare = Command::new(PROGRAM);
    bare.args(words("run kis-real eod -- sh -c")).arg("exit 6").env_clear().stdin(Stdio::null());
    assert_eq!(outcome(&mut bare).await.exit, 6);
}

#[tokio::test]
async fn while_the_switch_is_off_the_command_runs_and_no_store_is_touched() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("postgresql://u:not-a-real-password@{}/d?sslmode=disable", listener.local_addr().unwrap());
    for switch in [None, Some("false")] {
        let mut off = run(&url, &[], &["sh", "-c", "exit 3"]);
        match switch {
            Some(value) => off.env("CALL_BUDGET_ENABLED", value),
            None => off.env_remove("CALL_BUDGET_ENABLED"),
        };
        let off = outcome(&mut off).await;
        assert_eq!((off.exit, off.stdout.as_str(), off.stderr.as_str()), (3, "", ""), "cron would mail it");
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    // With the switch on the same place is asked: the test would see it.
    let mut on = run(&url, &["--max-wait", "300ms"], &["true"]);
    assert_eq!(outcome(&mut on).await.exit, 69);
    assert!(listener.accept().is_ok());
}

#[tokio::test]
async fn a_long_command_holds_no_session_of_the_store() {
    let database = database_with_budget().await;
    let sessions = async || -> i64 {
        let sessions = "SELECT count(*) FROM pg_stat_activity
                         WHERE datname = current_database() AND application_name = 'call-budget'";
        database.client.query_one(sessions, &[]).await.unwrap().get(0)
    };
    let mut child = run(&database.url, &[], &["sh", "-c", "echo started; read line; exit 2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(line(&mut BufReader::new(child.stdout.take().unwrap())).await, "started");
    eventually("the session is closed", async || sessions().await == 0).await;
    assert!(child.try_wait().unwrap().is_none(), "the command still runs");
    drop(child.stdin.take());
    assert_eq!(exit_code(&mut child).await, 2);
}
