//! What `--job` says of many runs: each counted once, however many there are at a time.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use call_budget::service::mock_vendor::{MockVendor, Settings};
use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::process::Command;

use super::{NOWHERE, PATIENT, PROGRAM, exit_code, granted, line, outcome, run, trace};
use crate::{Outcome, call_budget, database_with_budget, support, words};

/// A shell loop of runs, all at once, as people write it. The runs end before the loop does.
fn at_once(url: &str, runs: u32, directory: &Path, command: &str) -> Command {
    let script = format!(
        "for i in $(seq {runs}); do
           \"$0\" run --job eod --job-dir \"$1\" --max-wait 1m kis-real eod -- {command} &
         done; wait"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, PROGRAM]).arg(directory).env("DATABASE_URL", url).envs(PATIENT).stdin(Stdio::null());
    shell
}

async fn report(directory: &Path, more: &[&str]) -> Outcome {
    let mut report = Command::new(PROGRAM);
    report.args(["run", "--job", "eod", "--report", "--job-dir"]).arg(directory).args(more);
    // Where no date changes for as long as this runs, whatever the time of day.
    outcome(report.env("TZ", "Asia/Seoul").env("DATABASE_URL", NOWHERE)).await
}

async fn counts(directory: &Path) -> Value {
    report(directory, &["--json"]).await.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_runs_at_once_keep_the_limit_at_the_vendor_and_are_counted_by_their_job() {
    let vendor = MockVendor::start(Settings { limit: 18, ..Settings::default() }).await.unwrap();
    let database = support::database().await;
    // The jitter is what thirty processes that start on a busy machine may differ by.
    for command in
        ["budget set kis-real --limit 18 --window 1s --arrival-jitter 1s", "class set kis-real eod --priority 3"]
    {
        call_budget(&database.url, &words(command)).await.done();
    }
    let directory = tempfile::tempdir().unwrap();
    let call = format!("curl --silent http://{}/uapi/domestic-stock/v1/quotations/inquire-price", vendor.addr());
    let mut shell = at_once(&database.url, 30, directory.path(), &call);
    let done = outcome(shell.env("CALL_BUDGET_ENABLED", "true")).await;

    let seen = vendor.report();
    assert_eq!((seen.arrivals, seen.over_limit_windows, seen.refused), (30, 0, 0), "{}", seen.worst_window);
    assert_eq!(done.stdout.matches("rt_cd").count(), 30, "each answer is on stdout: {}", done.stdout);
    let told: Vec<&str> = done.stderr.lines().collect();
    assert!(told.len() == 30 && told.iter().all(|line| line.starts_with("job eod: ")), "{}", done.stderr);
    assert!(told.iter().any(|line| line.starts_with("job eod: 30 sends, first ")), "{}", done.stderr);

    let counted = counts(directory.path()).await;
    assert_eq!((&counted["job"], &counted["sends"], &counted["refused"]), (&json!("eod"), &json!(30), &json!(0)));
    assert!(counted["first"].as_str().unwrap().ends_with("+09:00"), "{counted}");
    let lasted = Duration::from_micros(counted["lasted_us"].as_u64().unwrap());
    assert!(lasted > Duration::from_secs(2), "30 at 18 in 2.05 s: {counted}");
    assert!(counted["waited_us"].as_u64() > counted["lasted_us"].as_u64(), "they waited at once: {counted}");
    vendor.stop().await;
}

#[tokio::test]
async fn runs_that_count_at_the_same_moment_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let done = outcome(&mut at_once(NOWHERE, 40, directory.path(), "true")).await;
    assert_eq!(done.stderr.lines().count(), 40, "{}", done.stderr);
    assert_eq!(counts(directory.path()).await["sends"], json!(40));
    let text = report(directory.path(), &[]).await.done();
    assert!(text.starts_with("job eod: 40 sends, first ") && text.contains("refused 0"), "{text}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the counts and the lock: {left:?}");
}

#[tokio::test]
async fn a_send_counts_from_its_start_and_a_refusal_counts_as_one() {
    let database = database_with_budget().await;
    let directory = tempfile::tempdir().unwrap();
    let options = ["--job", "eod", "--job-dir", directory.path().to_str().unwrap()];
    let mut child = run(&database.url, &options, &["sh", "-c", "echo started; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(line(&mut BufReader::new(child.stdout.take().unwrap())).await, "started");
    support::eventually("the send is counted", async || report(directory.path(), &[]).await.exit == 0).await;
    assert!(child.try_wait().unwrap().is_none(), "the command still runs");
    drop(child.stdin.take());
    assert_eq!(exit_code(&mut child).await, 1, "read has met the end");

    call_budget(&database.url, &words("budget pause kis-real")).await.done();
    let refused = outcome(&mut run(&database.url, &options, &["true"])).await;
    assert_eq!((refused.exit, refused.stdout.as_str()), (75, ""), "{}", refused.stderr);
    let told: Vec<&str> = refused.stderr.lines().collect();
    assert!(told[0].starts_with("job eod: 1 send, first ") && told[0].ends_with("refused 1"), "{told:?}");
    assert!(told[1].contains("CALL_BUDGET_PAUSED"), "{told:?}");
    let counted = counts(directory.path()).await;
    assert_eq!((&counted["sends"], &counted["refused"]), (&json!(1), &json!(1)));
    assert_eq!(counted["first"], counted["last"]);
}

#[tokio::test]
async fn a_job_that_cannot_be_counted_is_refused_before_a_slot_is_spent() {
    let database = database_with_budget().await;
    let (directory, file) = trace();
    std::fs::write(&file, "").unwrap();
    std::fs::write(directory.path().join("spoilt.json"), "{").unwrap();
    let (there, occupied) = (directory.path().to_str().unwrap(), file.to_str().unwrap());
    for (options, word) in [
        (["--job", "eod", "--job-dir", occupied], "cannot be counted"),
        (["--job", "spoilt", "--job-dir", there], "spoilt.json"),
        (["--job", "x/../../eod", "--job-dir", there], "a job's name"),
        (["--job", ".lock", "--job-dir", there], "a job's name"),
    ] {
        outcome(&mut run(&database.url, &options, &["true"])).await.refused(2, &[word]);
    }
    let mut homeless = run(&database.url, &["--job", "eod"], &["true"]);
    outcome(homeless.env_remove("HOME").env_remove("XDG_STATE_HOME")).await.refused(2, &["HOME", "--job-dir"]);
    assert_eq!(granted(&database.client).await, 0);
    report(directory.path(), &[]).await.refused(2, &["nothing was counted", "\"eod\""]);
}

#[tokio::test]
async fn jobs_are_kept_where_state_belongs() {
    let (home, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let counted = async |state_home: &Path| {
        let mut run = run(NOWHERE, &["--job", "마감 수집"], &["true"]);
        run.env_remove("CALL_BUDGET_ENABLED").env("HOME", home.path()).env("XDG_STATE_HOME", state_home);
        assert_eq!(outcome(&mut run).await.exit, 0);
    };
    counted(state.path()).await;
    assert!(state.path().join("call-budget/jobs/마감 수집.json").exists());
    assert!(!home.path().join(".local").exists());
    // By the specification a path that is not absolute is passed over.
    counted(Path::new("state")).await;
    assert!(home.path().join(".local/state/call-budget/jobs/마감 수집.json").exists());
}

#[tokio::test]
async fn an_empty_file_which_a_crash_can_leave_counts_as_none_and_full_counts_stay_full() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("eod.json");
    let counted = async || {
        let mut run = Command::new(PROGRAM);
        run.args(words("run --job eod --job-dir")).arg(directory.path()).args(words("kis-real eod -- sh -c"));
        outcome(run.arg("exit 3").env_remove("CALL_BUDGET_ENABLED").env("RUST_LOG", "warn").stdin(Stdio::null())).await
    };
    std::fs::write(&file, "").unwrap();
    let first = counted().await;
    assert_eq!(first.exit, 3, "{first:?}");
    assert!(first.stderr.contains("the counts of the job are lost"), "{first:?}");
    assert!(first.stderr.contains("job eod: 1 send, "), "{first:?}");
    assert!(!counted().await.stderr.contains("are lost"));

    let full = json!({"sends": u64::MAX, "refused": 0, "first_us": 1, "last_us": 1, "waited_us": u64::MAX});
    std::fs::write(&file, full.to_string()).unwrap();
    let more = counted().await;
    assert_eq!(more.exit, 3, "{more:?}");
    assert_eq!(counts(directory.path()).await["sends"], u64::MAX);
}
