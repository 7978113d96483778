//! What this process is told reaches the command, once, and ends a wait.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::BufReader;
use tokio::process::{Child, Command};

use super::{NOWHERE, PROGRAM, exit_code, line, outcome, run, trace};
use crate::support::eventually;
use crate::{call_budget, database_with_budget, words};

fn tell(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn every_signal_reaches_the_command_which_decides_how_to_end() {
    let database = database_with_budget().await;
    // A shell looks at its traps when what it runs has ended. It ends by itself where nobody tells it to.
    let script = "for s in HUP INT QUIT USR1 USR2; do trap \"echo $s\" $s; done
        trap 'echo TERM; exit 9' TERM
        echo ready; for i in $(seq 2000); do sleep 0.02; done";
    let mut child = run(&database.url, &[], &["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(line(&mut said).await, "ready");
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::TERM, "TERM"),
    ] {
        tell(&child, signal);
        assert_eq!(line(&mut said).await, name);
    }
    assert_eq!(exit_code(&mut child).await, 9);
}

#[tokio::test]
async fn a_command_that_a_signal_ends_leaves_nothing_behind() {
    let database = database_with_budget().await;
    let mut child =
        run(&database.url, &[], &["sh", "-c", "echo $$; exec sleep 60"]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = line(&mut BufReader::new(child.stdout.take().unwrap())).await;
    tell(&child, Signal::TERM);
    assert_eq!(exit_code(&mut child).await, 143);
    assert!(!std::path::Path::new("/proc").join(pid).exists(), "not even a zombie");
}

#[tokio::test]
async fn a_signal_ends_the_wait_at_once_and_nothing_is_started() {
    let database = database_with_budget().await;
    call_budget(&database.url, &words("budget pushback kis-real --for 1h")).await.done();
    let (_directory, file) = trace();
    for (signal, name, exit) in
        [(Signal::TERM, "SIGTERM", 143), (Signal::INT, "SIGINT", 130), (Signal::USR1, "SIGUSR1", 138)]
    {
        let child = run(&database.url, &["--max-wait", "2h"], &["touch", file.to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("it waits", async || {
            let waits = "SELECT count(*) FROM call_budget.call_budget_waiter WHERE units > 0";
            database.client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        tell(&child, signal);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), child.wait_with_output());
        let ended = ended.await.expect("the wait goes on").unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), ended.stdout.len()), (Some(exit), 0), "{said}");
        assert!(said.contains(name) && said.contains("was not started"), "{said}");
        database.client.execute("UPDATE call_budget.call_budget_waiter SET units = 0", &[]).await.unwrap();
    }
    assert!(!file.exists());
}

/// As by nohup, or in the background of a script: what was to be ignored stays ignored, and the exit code is known.
#[tokio::test]
async fn what_it_was_started_to_ignore_the_command_ignores_too() {
    let ignore = "import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])";
    let mut ignoring = Command::new("python3");
    ignoring.args(["-c", ignore, PROGRAM]);
    ignoring.args(words("run kis-real eod -- sh -c")).arg("grep SigIgn: /proc/self/status; exit 5");
    let ignoring = outcome(ignoring.env("DATABASE_URL", NOWHERE)).await;
    assert_eq!((ignoring.exit, ignoring.stderr.as_str()), (5, ""));
    let mask = ignoring.stdout.split_whitespace().last().map(|mask| u64::from_str_radix(mask, 16).unwrap()).unwrap();
    let ignored = |signal: Signal| mask >> (signal.as_raw() - 1) & 1 == 1;
    assert_eq!((ignored(Signal::HUP), ignored(Signal::INT), ignored(Signal::TERM)), (true, true, false));
}
