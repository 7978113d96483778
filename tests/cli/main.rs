//! The real binary against a real PostgreSQL: what operators type, what they read, and what is left untouched when it was
//! nonsense.

#[path = "../support/mod.rs"]
mod support;

#[path = "../fault/tools/mod.rs"]
mod tools;

mod access;
mod bad_input;
mod breakers;
mod explaining;
mod help;
mod holds;
mod logs;
mod preflight;
mod probing;
mod reaching;
mod running;
mod settings;
mod watching;

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use support::TestDatabase;
use tokio_postgres::Client;

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    pub exit: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Panics unless the command succeeded; its output.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!((self.exit, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        self.stdout
    }

    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.done()).unwrap()
    }

    /// Panics unless the command ended with this exit code, said all of these words and printed nothing else.
    #[track_caller]
    pub fn refused(&self, exit: i32, words: &[&str]) {
        assert_eq!((self.exit, self.stdout.as_str()), (exit, ""), "{}", self.stderr);
        let sentence = self.stderr.lines().next().unwrap_or_default();
        for word in words {
            assert!(sentence.contains(word), "{sentence:?} does not say {word:?}");
        }
    }
}

/// Runs `call-budget` on the database at `url`. No command may last longer than half a minute.
pub async fn call_budget(url: &str, arguments: &[&str]) -> Outcome {
    let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_call-budget"))
        .args(arguments)
        .env("DATABASE_URL", url)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(30), run)
        .await
        .unwrap_or_else(|_| panic!("call-budget {arguments:?} did not end"))
        .unwrap();
    Outcome {
        exit: output.status.code().expect("no command dies of a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A database with the budget `kis-real` of the design's example and its classes `order` and `eod`.
pub async fn database_with_budget() -> TestDatabase {
    let database = support::database().await;
    for command in [
        "budget set kis-real --limit 18 --window 1s",
        "class set kis-real order --priority 0 --floor 0.25",
        "class set kis-real eod --priority 3",
    ] {
        call_budget(&database.url, &words(command)).await.done();
    }
    database
}

pub fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

/// Says, past the capture of passing tests, what this machine does not let us try: `scripts/test` shows it.
pub fn not_tried(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT TRIED: {what}: {why}");
}

/// Every budget and class, whole.
pub async fn everything(client: &Client) -> String {
    let row = client
        .query_one(
            "SELECT coalesce((SELECT string_agg(b::text, E'\\n' ORDER BY name) FROM call_budget.call_budget AS b), '')
                    || coalesce((SELECT string_agg(c::text, E'\\n' ORDER BY budget, name)
                                   FROM call_budget.call_budget_class AS c), '')",
            &[],
        )
        .await
        .unwrap();
    row.get(0)
}

/// Waits until a command waits for a lock in this database.
pub async fn somebody_waits_for_a_lock(client: &Client) {
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                    AND application_name = 'call-budget' AND wait_event_type = 'Lock')";
    for _ in 0..400 {
        if client.query_one(waits, &[]).await.unwrap().get(0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("no command waited for the lock");
}
