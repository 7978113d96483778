//! Settings, pause, pushback, drain: what is refused, and what takes effect when.

use std::time::Duration;

use call_budget::policy::spacing::Limit;
use call_budget::store::memory::scheduler::{Call, Settings};
use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::store::{BUDGET, KIS, START_US, Store};

const BOUND: &str = "the interval keeps every window within the limit, max_cost too";
const FLOORS: &str = "the floors of a budget sum to at most 1";

/// Every interval below the bound lets a window hold more than the limit, or could with clocks that tick a thousandth apart.
#[tokio::test]
async fn a_budget_whose_max_cost_breaks_the_bound_is_refused() {
    let store = Store::new(KIS).await;
    let set = async |limit: Limit, interval_us: i64| {
        let us = |duration: Duration| duration.as_micros() as i64;
        let sql = "SELECT call_budget.call_budget_set('bound', $1, $2, $3, $4, $5, $6, 60000)";
        let (window, send_window, jitter) = (us(limit.window), us(limit.send_window), us(limit.arrival_jitter));
        let (units, max_cost) = (limit.units as i32, limit.max_cost as i32);
        store
            .client()
            .query_one(sql, &[&units, &window, &send_window, &jitter, &max_cost, &interval_us])
            .await
            .map(|_| ())
    };
    let ms = Duration::from_millis;
    let design =
        |units, max_cost| Limit { units, window: ms(1000), send_window: ms(50), arrival_jitter: ms(50), max_cost };
    for (limit, least_us) in [(design(18, 1), 61_173), (design(18, 3), 68_819), (design(1, 1), 1_101_101)] {
        assert_refused(set(limit, least_us - 1).await, &SqlState::CHECK_VIOLATION, BOUND);
        set(limit, least_us).await.unwrap();
    }
    let mut rng = Rng::with_seed(7);
    for _ in 0..300 {
        let units = rng.u32(1..=50);
        let limit = Limit {
            units,
            window: ms(rng.u64(1..5000)),
            send_window: ms(rng.u64(1..200)),
            arrival_jitter: ms(rng.u64(0..200)),
            max_cost: rng.u32(1..=units),
        };
        let interval_us = limit.interval().unwrap().as_micros() as i64;
        set(limit, interval_us).await.unwrap_or_else(|error| panic!("{limit:?} at {interval_us}: {error:?}"));
        let shorter_us = (interval_us * rng.i64(500..1000) / 1000 - 2).max(1);
        let accepted = set(limit, shorter_us).await.is_ok();
        let safe = limit.is_safe_at(Duration::from_micros(shorter_us as u64));
        assert_eq!(accepted, safe, "{limit:?} at {shorter_us}");
    }
    let over = Limit { max_cost: 19, ..design(18, 1) };
    assert_refused(set(over, 10_000_000).await, &SqlState::CHECK_VIOLATION, BOUND);
}

#[tokio::test]
async fn an_absurd_setting_is_refused_by_a_sentence_and_nothing_is_written() {
    let store = Store::new(KIS).await;
    let before = store.rows().await;
    let refusals = [
        ("0, 1000000, 50000, 50000, 1, 61174, 60000", "the limit is between 1 and 1,000,000 units"),
        ("18, 0, 50000, 50000, 1, 61174, 60000", "the window is between 1 ms and 1 day"),
        ("18, 1000000, -1, 50000, 1, 61174, 60000", "the send window is between 1 ms and 60 s"),
        ("18, 1000000, 50000, -1, 1, 61174, 60000", "the arrival jitter is between 0 and 60 s"),
        ("18, 1000000, 50000, 50000, 0, 61174, 60000", "the largest cost is at least 1"),
        ("18, 1000000, 50000, 50000, 1, 0, 60000", "the interval is between 1 us and 10 days"),
        ("18, 1000000, 50000, 50000, 1, 61174, 6000000", "the lookahead is between 1 ms and 5 s"),
        ("18, 1000000, 50000, 50000, 18, 800000000000, 60000", "the largest cost takes at most 10 days"),
    ];
    for (arguments, constraint) in refusals {
        let sql = format!("SELECT call_budget.call_budget_set($1, {arguments})");
        let refused = store.client().query_one(&sql, &[&BUDGET]).await.map(|_| ());
        assert_refused(refused, &SqlState::CHECK_VIOLATION, constraint);
    }
    let class = "the priority is between 0 and 1000";
    assert_refused(store.set_class("order", -1, 0).await, &SqlState::CHECK_VIOLATION, class);
    let floor = "the floor is 0 or between 0.001 and 1";
    assert_refused(store.set_class("order", 0, 999).await, &SqlState::CHECK_VIOLATION, floor);
    assert_eq!(store.rows().await, before);
}

#[tokio::test]
async fn floors_that_sum_to_more_than_one_are_refused() {
    let store = Store::with_classes(KIS, &[("order", 0, 600_000)]).await;
    let over = store.set_class("minute", 1, 400_001).await;
    assert_refused(over, &SqlState::from_code("CB004"), FLOORS);
    store.set_class("minute", 1, 400_000).await.unwrap();
    let nobody = "SELECT call_budget.call_budget_class_set('nobody', 'order', 0, 0)";
    let missing = store.client().query_one(nobody, &[]).await.map(|_| ());
    assert_eq!(missing.unwrap_err().code(), Some(&SqlState::from_code("CB003")));
}

#[tokio::test]
async fn floors_written_directly_are_checked_when_they_are_committed() {
    let mut store = Store::with_classes(KIS, &[("order", 0, 600_000), ("eod", 1, 400_000)]).await;
    let write = |floor: i32, class: &str| {
        format!("UPDATE call_budget.call_budget_class SET floor_ppm = {floor} WHERE name = '{class}'")
    };
    let swap = store.client_mut().transaction().await.unwrap();
    swap.batch_execute(&write(600_000, "eod")).await.unwrap();
    swap.batch_execute(&write(400_000, "order")).await.unwrap();
    swap.commit().await.expect("two floors can be swapped");
    let over = store.client_mut().transaction().await.unwrap();
    over.batch_execute(&write(600_001, "eod")).await.unwrap();
    assert_refused(over.commit().await, &SqlState::from_code("CB004"), FLOORS);
}

#[tokio::test]
async fn two_transactions_that_raise_floors_at_once_cannot_pass_each_other() {
    let store = Store::with_classes(KIS, &[("order", 0, 0), ("eod", 1, 0)]).await;
    let (mut one, mut two) = (store.connect().await, store.connect().await);
    let raise = |class| format!("UPDATE call_budget.call_budget_class SET floor_ppm = 600000 WHERE name = '{class}'");
    let (first, second) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    first.batch_execute(&raise("order")).await.unwrap();
    second.batch_execute(&raise("eod")).await.unwrap();
    let (first, second) = tokio::join!(first.commit(), second.commit());
    assert!(first.is_ok() != second.is_ok(), "one of the two is refused: {first:?}, {second:?}");
    assert_refused(first.and(second), &SqlState::from_code("CB004"), FLOORS);
}

/// Its snapshot would be older than the lock: the sum of the floors would leave out what was committed meanwhile.
#[tokio::test]
async fn a_floor_changed_under_an_older_snapshot_is_refused() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let mut admin = store.connect().await;
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let transaction = admin.transaction().await.unwrap();
        transaction.batch_execute(&format!("SET TRANSACTION ISOLATION LEVEL {isolation}")).await.unwrap();
        let sql = "SELECT call_budget.call_budget_class_set($1, 'order', 0, 500000)";
        let refused = transaction.query_one(sql, &[&BUDGET]).await.map(|_| ());
        assert_eq!(refused.unwrap_err().code(), Some(&SqlState::from_code("CB002")), "{isolation}");
    }
}

#[tokio::test]
async fn every_change_of_the_settings_shows_in_the_version_of_the_next_answer() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let version = store.reserve(ask(1), START_US).await.version;
    store.set(Settings { lookahead_us: 100_000, ..KIS }).await;
    let answer = store.reserve(ask(1), START_US).await;
    assert_eq!((answer.version, answer.lookahead_us), (version + 1, 100_000));
    store.client().query("SELECT call_budget.call_budget_pause($1, 'test')", &[&BUDGET]).await.unwrap();
    assert_eq!(store.reserve(ask(1), START_US).await.version, version + 2);
}

#[tokio::test]
async fn pushbacks_come_to_their_maximum_and_are_capped() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    store.at(START_US).await;
    let push = async |function: &str, seconds: i64| {
        let sql = format!("SELECT call_budget.call_budget_{function}($1, {}, 'too many')", seconds * 1_000_000);
        store.number(&sql).await / 1_000_000
    };
    assert_eq!(push("report_pushback", 10).await, 10);
    assert_eq!(push("report_pushback", 10).await, 10, "the maximum, not the sum");
    assert_eq!(push("report_pushback", 3).await, 10, "a shorter one changes nothing");
    let blocked = store.reserve(ask(1), START_US).await;
    assert_eq!((blocked.waits_us.len(), blocked.retry_us), (0, Some(5_000_000)));
    assert_eq!(store.reserve(ask(1), START_US + 10_000_000).await.waits_us, [0]);
    store.at(START_US + 10_000_000).await;
    assert_eq!(push("report_pushback", 100_000).await, 60, "a caller's is capped at a minute");
    assert_eq!(push("pushback", 100_000).await, 3600, "an operator's at an hour");
    for duration in ["-1", "NULL"] {
        let sql = format!("SELECT call_budget.call_budget_pushback($1, {duration}, 'wrong')");
        let refused = store.client().query_one(&sql, &[&BUDGET]).await.unwrap_err();
        assert_eq!(refused.code(), Some(&SqlState::from_code("CB004")), "{duration}");
    }
}

#[tokio::test]
async fn a_pause_stops_grants_at_once_and_resuming_releases_no_burst() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    store.reserve(ask(1), START_US).await;
    store.client().query("SELECT call_budget.call_budget_pause($1, 'vendor is down')", &[&BUDGET]).await.unwrap();
    let before = store.rows().await;
    for lane in 2..30 {
        let paused = store.reserve(ask(lane), START_US + 3_600_000_000).await;
        assert_eq!((paused.reason, paused.retry_us), (Some("paused"), Some(1_000_000)));
    }
    assert_eq!(store.rows().await, before, "a paused budget stands still");
    store.client().query("SELECT call_budget.call_budget_resume($1)", &[&BUDGET]).await.unwrap();
    let mut slots_us = Vec::new();
    for lane in 30..60 {
        let now_us = START_US + 3_600_000_000;
        slots_us.extend(store.reserve(ask(lane), now_us).await.waits_us);
    }
    assert_eq!(slots_us, [0], "one slot starts within the lookahead, as ever");
}

#[tokio::test]
async fn a_budget_is_drained_when_the_last_slot_its_cost_and_the_send_window_have_passed() {
    let settings = Settings { max_cost: 3, ..KIS };
    let store = Store::with_classes(settings, &[("order", 0, 0)]).await;
    store.reserve(Call { costs: &[3], ..ask(1) }, START_US).await;
    store.client().query("SELECT call_budget.call_budget_pause($1, 'drain')", &[&BUDGET]).await.unwrap();
    let drained_us = async |after_us| {
        store.at(START_US + after_us).await;
        store.number("SELECT call_budget.call_budget_drained_us($1)").await
    };
    let whole_us = 3 * 61_174 + 50_000;
    assert_eq!(drained_us(0).await, whole_us);
    assert_eq!(drained_us(whole_us - 1).await, 1);
    assert_eq!(drained_us(whole_us + 1).await, 0);
}

/// A crash while paused forgets what was granted last; nobody has fenced yet, since a paused budget decides nothing.
#[tokio::test]
async fn a_budget_that_may_have_forgotten_grants_is_not_drained_before_they_have_passed() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let survived = store.rows().await;
    store.reserve(ask(1), START_US).await;
    store.restore(&survived).await;
    store.forget().await;
    store.client().query("SELECT call_budget.call_budget_pause($1, 'drain')", &[&BUDGET]).await.unwrap();
    store.at(START_US + 1000).await;
    let drained_us = store.number("SELECT call_budget.call_budget_drained_us($1)").await;
    assert!(drained_us >= 61_174 + 50_000 - 1000, "drained in {drained_us} us, but a slot is out");
}

#[tokio::test]
async fn settings_commit_durably_whatever_the_role_says() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let mut admin = store.connect().await;
    admin.batch_execute("SET synchronous_commit = off; SET contract.now_us = 0").await.unwrap();
    for call in [
        "call_budget_set($1, 18, 1000000, 50000, 50000, 1, 61174, 60000)::text",
        "call_budget_class_set($1, 'order', 0, 0)::text",
        "call_budget_pause($1, 'test')::text",
        "call_budget_pushback($1, 1, 'test')::text",
    ] {
        let transaction = admin.transaction().await.unwrap();
        transaction.query_one(&format!("SELECT call_budget.{call}"), &[&BUDGET]).await.unwrap();
        let mode: String = transaction.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0);
        assert_eq!(mode, "on", "{call}");
    }
    let transaction = admin.transaction().await.unwrap();
    let sql = "SELECT FROM call_budget.call_budget_acquire($1, 'order', 1, '{1}', 0, 1)";
    transaction.query_one(sql, &[&BUDGET]).await.unwrap();
    let mode: String = transaction.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0);
    assert_eq!(mode, "off", "a caller's commit mode is the caller's");
}

#[tokio::test]
async fn a_budget_is_not_deleted_while_its_grants_can_still_leave() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    store.reserve(ask(1), START_US).await;
    store.at(START_US + 1000).await;
    let delete = "SELECT call_budget.call_budget_delete($1)";
    let error = store.client().query_one(delete, &[&BUDGET]).await.unwrap_err();
    assert_eq!(error.code().map(SqlState::code), Some("CB004"));
    store.at(START_US + 61_174 + 50_000).await;
    store.client().query_one(delete, &[&BUDGET]).await.unwrap();
}

#[tokio::test]
async fn settings_and_callers_at_once_never_deadlock() {
    let store = Store::with_classes(KIS, &[("order", 0, 300_000), ("eod", 1, 100_000)]).await;
    let until = Instant::now() + Duration::from_secs(3);
    let set = "SELECT call_budget.call_budget_set($1, 1000000, 1000, 50000, 0, 1, 61174, 60000)";
    let changes = [
        vec!["SELECT call_budget.call_budget_class_set($1, 'order', 0, 300000)"],
        vec!["SELECT call_budget.call_budget_class_set($1, 'eod', 1, 100000)"],
        vec!["SELECT call_budget.call_budget_pause($1, 'x')", "SELECT call_budget.call_budget_resume($1)"],
        vec!["SELECT call_budget.call_budget_delete($1)", set],
        vec![set, "SELECT call_budget.call_budget_report_pushback($1, 1, 'x')"],
        vec!["SELECT a.reason FROM call_budget.call_budget_acquire($1, 'order', 1, '{1}', 0, 1) AS a"],
        vec!["SELECT a.reason FROM call_budget.call_budget_acquire($1, 'eod', 2, '{1}', 1000000, 1) AS a"],
    ];
    let mut connections = JoinSet::new();
    for statements in changes {
        let client = store.connect().await;
        client.batch_execute("SET contract.now_us = 0").await.unwrap();
        connections.spawn(async move {
            let mut done = 0;
            while Instant::now() < until {
                for statement in &statements {
                    let result = timeout(Duration::from_secs(20), client.query(*statement, &[&BUDGET])).await;
                    match result.expect("no answer for 20 s") {
                        Ok(_) => done += 1,
                        // The budget or the class was deleted a moment ago, or granted a moment ago.
                        Err(error) if matches!(error.code().map(SqlState::code), Some("CB003" | "CB004")) => {}
                        Err(error) => panic!("{statement}: {error:?}"),
                    }
                }
            }
            done
        });
    }
    let done = connections.join_all().await;
    assert!(done.iter().all(|done| *done > 0), "everybody got through: {done:?}");
}

fn ask(lane: i64) -> Call<'static> {
    Call { class: "order", lane, costs: &[1], patience_us: 86_400_000_000 }
}

fn assert_refused(result: Result<(), Error>, code: &SqlState, constraint: &str) {
    let error = result.expect_err(constraint);
    let refusal = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
    assert_eq!((refusal.code(), refusal.constraint()), (code, Some(constraint)), "{refusal:?}");
}
