//! `preflight` on real servers: everything passes where all is as the documents say, and each thing that can really be made
//! bad is told by its line. (What cannot be made here stands beside the judges in src/cli/preflight/judge.)

mod database;
mod load;
mod server;
mod way;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use call_budget::service::mock_vendor::{MockVendor, Settings};
use serde_json::Value;

use crate::support::{self, TestDatabase, TestRole};
use crate::watching::Terminal;
use crate::{Outcome, call_budget, words};

const NAMES: [&str; 40] = [
    "dns",
    "connect",
    "tls",
    "login",
    "fresh_connection",
    "pooler",
    "schema",
    "rights",
    "role",
    "table_rights",
    "marker",
    "primary",
    "timeline",
    "server",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "isolation",
    "statement_timeout",
    "lock_timeout",
    "idle_timeout",
    "check_interval",
    "keepalives",
    "connections",
    "role_connections",
    "database_connections",
    "budget",
    "interval",
    "classes",
    "budget_state",
    "send_window",
    "lookahead",
    "round_trip",
    "lock_waits",
    "lock_holders",
    "oldest_snapshot",
    "idle_in_transaction",
    "clock_offset",
    "clock_steps",
    "arrival_jitter",
];

/// What a machine that is busy with other things can make slow. Everything else passes at once or not at all.
const TIMED: [&str; 9] =
    ["dns", "connect", "tls", "login", "fresh_connection", "lookahead", "round_trip", "lock_waits", "arrival_jitter"];

/// A call that the mock vendor answers as a real one, given the header tr_id.
const PRICE: &str = "/uapi/domestic-stock/v1/quotations/inquire-price";

/// What one run said.
pub struct Report {
    pub exit: i32,
    pub stderr: String,
    pub verdict: String,
    pub lines: BTreeMap<String, Value>,
}

impl Report {
    fn of(outcome: Outcome) -> Report {
        let document: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome:?}"));
        let lines = document["lines"].as_array().unwrap().clone();
        let names: Vec<&str> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
        assert_eq!(names, NAMES, "every line is there, in its place");
        for line in &lines {
            let told = ["bar", "reason"].iter().all(|key| !line[key].as_str().unwrap().is_empty());
            assert!(told && line["figures"].is_object(), "{line}");
        }
        Report {
            exit: outcome.exit,
            stderr: outcome.stderr,
            verdict: document["verdict"].as_str().unwrap().to_owned(),
            lines: lines.into_iter().map(|line| (line["name"].as_str().unwrap().to_owned(), line)).collect(),
        }
    }

    /// That the line has this verdict, and its reason these words.
    #[track_caller]
    pub fn says(&self, name: &str, verdict: &str, words: &str) -> &Value {
        let line = &self.lines[name];
        assert_eq!(line["verdict"], verdict, "{line:#}");
        assert!(line["reason"].as_str().unwrap().contains(words), "{line:#} does not say {words:?}");
        line
    }

    #[track_caller]
    pub fn passes(&self, names: &[&str]) {
        for name in names {
            self.says(name, "pass", "");
        }
    }

    /// That no other line is worse than pass, but for what a busy machine makes slow.
    #[track_caller]
    pub fn passes_but(&self, names: &[&str]) {
        let worse = self.worse_than_pass();
        let others: Vec<_> = worse.iter().filter(|name| !TIMED.contains(name) && !names.contains(name)).collect();
        assert!(others.is_empty(), "{others:?}: {:#?}", self.lines);
    }

    pub fn worse_than_pass(&self) -> Vec<&str> {
        let worse = self.lines.iter().filter(|(_, line)| line["verdict"] != "pass");
        worse.map(|(name, _)| name.as_str()).collect()
    }
}

/// A database as the documents have it: the budget and the classes of the demo, and a role that is a client with timeouts.
pub struct Ground {
    pub database: TestDatabase,
    pub role: TestRole,
}

impl Ground {
    pub async fn new() -> Ground {
        let mut database = support::database().await;
        set_up(&database.url).await;
        let role = database.role().await;
        call_budget(&database.url, &["access", &role.name, "--as", "client", "--set-timeouts"]).await.done();
        Ground { database, role }
    }

    /// Runs it for a second as the client.
    pub async fn preflight(&self, options: &str) -> Report {
        preflight(&self.role.url, options).await
    }

    pub async fn does(&self, sql: &str) {
        self.database.client.batch_execute(sql).await.unwrap();
    }

    /// The role's name in quotes.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.role.name)
    }
}

/// The demo's budget and classes.
pub async fn set_up(url: &str) {
    for command in [
        "budget set kis-real --limit 18 --window 1s",
        "class set kis-real order --priority 0 --floor 0.1",
        "class set kis-real minute --priority 1 --floor 0.4",
        "class set kis-real index --priority 2 --floor 0.2",
        "class set kis-real eod --priority 3 --floor 0.1",
    ] {
        call_budget(url, &words(command)).await.done();
    }
}

pub async fn preflight(url: &str, options: &str) -> Report {
    preflight_calling(url, options, &[]).await
}

/// The same with options that hold spaces.
pub async fn preflight_calling(url: &str, options: &str, more: &[&str]) -> Report {
    let short = if options.contains("--seconds") { vec![] } else { words("--seconds 1") };
    let arguments = [words("preflight kis-real --json"), short, words(options), more.to_vec()].concat();
    Report::of(call_budget(url, &arguments).await)
}

/// The same with variables of the environment.
pub async fn preflight_with(url: &str, options: &str, variables: &[(&str, &str)]) -> Report {
    let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_call-budget"))
        .args(["preflight", "kis-real", "--seconds", "1", "--json"])
        .args(words(options))
        .env("DATABASE_URL", url)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(30), run).await.unwrap().unwrap();
    Report::of(Outcome {
        exit: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_is_as_the_documents_say_every_line_passes_and_none_is_left_out() {
    let ground = Ground::new().await;
    let vendor = MockVendor::start(Settings::default()).await.unwrap();
    let options = format!("--url http://{}{PRICE} --processes 4", vendor.addr());
    let header = ["--header", "tr_id: FHKST01010100"];
    let mut last = Vec::new();
    // A busy machine makes times long, and nothing else: whatever else does not pass fails at once. The other tests of this
    // binary keep it busy, but not for ever.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(180) {
        let report = preflight_calling(&ground.role.url, &options, &header).await;
        let worse = report.worse_than_pass();
        report.passes_but(&[]);
        assert!(report.stderr.contains("sending 20 GET requests to http://127.0.0.1:"), "{}", report.stderr);
        if worse.is_empty() {
            assert_eq!((report.exit, report.verdict.as_str()), (0, "pass"));
            assert_eq!(report.lines["arrival_jitter"]["figures"]["status_200"], 20);
            assert_eq!(report.lines["connections"]["figures"]["need"], 8);
            return vendor.stop().await;
        }
        last = worse.iter().map(|name| report.lines[*name].clone()).collect();
    }
    panic!("the machine was too busy each time: {last:#?}");
}

#[tokio::test]
async fn nothing_is_changed_no_slot_is_spent_and_no_session_stays() {
    const STATE: &str = "SELECT (SELECT string_agg(b::text, ' ') FROM call_budget.call_budget AS b)
        || (SELECT string_agg(s::text, ' ') FROM call_budget.call_budget_schedule AS s)
        || (SELECT string_agg(c::text, ' ' ORDER BY c.name) FROM call_budget.call_budget_class AS c)
        || coalesce((SELECT string_agg(w::text, ' ') FROM call_budget.call_budget_waiter AS w), 'nobody waits')
        || coalesce((SELECT string_agg(m::text, ' ') FROM call_budget.call_budget_marker AS m), 'no marker')
        || (SELECT count(*) FROM pg_class WHERE relkind = 'r')";
    let ground = Ground::new().await;
    let client = &ground.database.client;
    // As after a crash: an acquire that could be granted would fence first.
    ground.does("DELETE FROM call_budget.call_budget_marker").await;
    let before: String = client.query_one(STATE, &[]).await.unwrap().get(0);
    let report = ground.preflight("").await;
    assert!(report.lines["lock_waits"]["figures"]["calls"].as_u64().unwrap() > 0);
    assert_eq!(client.query_one(STATE, &[]).await.unwrap().get::<_, String>(0), before);
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND application_name = 'call-budget preflight'";
    support::eventually("its sessions are gone", async || {
        client.query_one(ours, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
}

#[tokio::test]
async fn people_read_one_line_each_within_80_columns_and_programs_no_colour() {
    let ground = Ground::new().await;
    ground.does("UPDATE call_budget.call_budget SET paused = true").await;
    let outcome = call_budget(&ground.role.url, &words("preflight kis-real --seconds 1 --processes 1000")).await;
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (1, ""));
    for name in NAMES {
        assert!(outcome.stdout.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
    }
    assert!(outcome.stdout.contains("    every call is refused until somebody runs"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("\nverdict: fail: connections"), "{}", outcome.stdout);
    let round_trip = outcome.stdout.lines().find(|line| line.starts_with("round_trip ")).unwrap();
    assert!(round_trip.contains(" probes: p50 "), "{round_trip}");
    assert!(!outcome.stdout.contains('\x1b'));
    for line in outcome.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[tokio::test]
async fn at_a_terminal_it_says_what_it_is_at_and_wipes_that_away() {
    let ground = Ground::new().await;
    let mut terminal = Terminal::run(&ground.role.url, "preflight kis-real --seconds 3");
    let rest = async { while terminal.more().await {} };
    tokio::time::timeout(Duration::from_secs(30), rest).await.expect("it ends");
    let (before, after) = terminal.shown.split_once("measuring round trips, locks and clocks").expect("it says so");
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
    assert!(after.find("\r\x1b[K").unwrap() < after.find("verdict: ").unwrap(), "{after:?}");
}

#[tokio::test]
async fn what_is_asked_for_wrongly_is_a_usage_error() {
    for (arguments, words) in [
        (words("preflight kis-real --url vendor.example"), "begins with http"),
        (words("preflight kis-real --seconds 0"), "--seconds"),
        (words("preflight kis-real --header not-a-real-key"), "--header number 1 has no colon"),
        (words("preflight"), "<BUDGET>"),
    ] {
        let outcome = call_budget("postgresql://me@127.0.0.1/db", &arguments).await;
        assert_eq!(outcome.exit, 2, "{outcome:?}");
        assert!(outcome.stderr.contains(words) && !outcome.stderr.contains("not-a-real"), "{}", outcome.stderr);
    }
    let unknown = call_budget("postgresql://me@127.0.0.1/db?sslmode=prefer", &words("preflight kis-real")).await;
    unknown.refused(2, &["plain text"]);
}
