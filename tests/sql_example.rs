//! docs/examples/acquire.py, run as it stands: many lanes in many processes, against a real budget.

#[path = "support/mod.rs"]
mod support;

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// 50 units in any second, with 50 ms of send window and 50 ms of jitter.
const BUDGET: &str = "SELECT call_budget.call_budget_set('b', 50, 1000000, 50000, 50000, 1, 22023, 60000);
                      SELECT call_budget.call_budget_class_set('b', 'c', 0, 0)";
const INTERVAL_US: i64 = 22_023;
const SEND_WINDOW_US: i64 = 50_000;
/// Two clocks of one machine, read a moment apart.
const READING_US: i64 = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_lanes_of_the_example_keep_spacing_windows_and_limit() {
    let database = support::database().await;
    database.client.batch_execute(BUDGET).await.unwrap();
    // What the store's clock shows when this machine's clock since boot shows zero.
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let store_us: i64 = database.client.query_one(sql, &[]).await.unwrap().get(0);
    let boot_us = store_us - now_us();

    let runs: Vec<_> = (0..4).map(|_| example(&database.url, &["b", "c", "--threads", "4", "--calls", "8"])).collect();
    let lines: Vec<_> = runs.into_iter().flat_map(|run| lines(&run.join().unwrap())).collect();
    assert_eq!(lines.len(), 4 * 4 * 8);
    let sent: Vec<_> = lines.iter().filter(|line| line["sent"].is_i64()).collect();
    // A thread that was not woken in time lets its slot lapse; on a busy machine some do.
    assert!(sent.len() >= 100, "only {} of {} were sent: {lines:?}", sent.len(), lines.len());

    let of = |key: &str| {
        let mut moments: Vec<_> = sent.iter().map(|line| line[key].as_i64().unwrap()).collect();
        moments.sort_unstable();
        moments
    };
    let slots = of("slot");
    for pair in slots.windows(2) {
        assert!(pair[1] - pair[0] >= INTERVAL_US, "two slots are {} us apart", pair[1] - pair[0]);
    }
    for line in &sent {
        let after_slot = line["sent"].as_i64().unwrap() + boot_us - line["slot"].as_i64().unwrap();
        assert!((-READING_US..=SEND_WINDOW_US + READING_US).contains(&after_slot), "{after_slot} us after its slot");
    }
    let moments = of("sent");
    let worst = moments.iter().map(|end| moments.iter().filter(|at| (end - 1_000_000..=*end).contains(*at)).count());
    assert!(worst.max().unwrap() <= 50);
    let rows = "SELECT count(*) FROM call_budget.call_budget_waiter";
    assert!(
        database.client.query_one(rows, &[]).await.unwrap().get::<_, i64>(0) <= 16,
        "a lane left more than its row"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_is_refused_by_name_and_within_its_time() {
    let database = support::database().await;
    database.client.batch_execute(BUDGET).await.unwrap();
    database.client.batch_execute("SELECT call_budget.call_budget_pause('b', 'test')").await.unwrap();
    let begun = Instant::now();
    for (budget, class, reason, retry_after) in [("b", "c", "paused", Some(1.0)), ("nope", "c", "unknown_budget", None)]
    {
        let lines = lines(&example(&database.url, &[budget, class, "--calls", "1", "--max-wait", "5"]).join().unwrap());
        assert_eq!(lines[0]["refused"], format!("refused: {reason}"));
        assert_eq!(lines[0]["retry_after"].as_f64(), retry_after);
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "a refusal does not wait");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgresql://nobody@{}/none", silent.local_addr().unwrap());
    let begun = Instant::now();
    let lines = lines(&example(&url, &["b", "c", "--calls", "1", "--max-wait", "2"]).join().unwrap());
    assert!(lines[0]["refused"].as_str().unwrap().contains("the store failed last"), "{lines:?}");
    assert!((2..6).contains(&begun.elapsed().as_secs()), "it took {:?}", begun.elapsed());
}

fn example(url: &str, arguments: &[&str]) -> thread::JoinHandle<Output> {
    let mut command = Command::new("python3");
    command.arg("docs/examples/acquire.py").arg(url).args(arguments);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("PYTHONPATH", psycopg()).stdin(Stdio::null());
    thread::spawn(move || command.output().unwrap_or_else(|error| panic!("python3 cannot be started: {error}")))
}

/// Where psycopg is: prepared on first use.
fn psycopg() -> String {
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/psycopg")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// This machine's clock as the example reads it.
fn now_us() -> i64 {
    use call_budget::clock::{Clock, SystemClock};
    i64::try_from(SystemClock.now().since_boot().as_micros()).unwrap()
}
