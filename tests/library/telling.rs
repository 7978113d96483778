//! What a process tells the store besides asking for slots: what the vendor said, and what its breakers look like.

use std::sync::Arc;
use std::time::Duration;

use call_budget::Settings;
use call_budget::clock::SystemClock;
use call_budget::policy::Wall;
use call_budget::policy::breaker::event::Cause;
use call_budget::policy::breaker::view::EpisodeView;
use call_budget::policy::breaker::{Shown, View};
use call_budget::store::breakers::Snapshot;
use call_budget::store::{Ask, Failing, PostgresStore, Store};
use call_budget::test_util::{Instant, ManualClock, MemoryStore};

use crate::support::{self, TestDatabase};
use crate::{limit, ms};

#[tokio::test]
async fn reported_pushbacks_come_to_their_maximum_and_to_a_minute_at_most() {
    let database = database().await;
    let memory = MemoryStore::new(ManualClock::at(Instant::default()));
    memory.set_budget("kis-real", limit(18, 1));
    pushed_back(&store(&database), ms(5_000)).await;
    pushed_back(&memory, ms(0)).await;
    let sql = "SELECT blocked_reason FROM call_budget.call_budget_status";
    let reason: String = database.client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(reason, format!("EGW00201 {}", "초".repeat(191)), "one line of 200 characters");
}

/// `late`: how much of a second may have passed on the way.
async fn pushed_back<S: Store>(store: &S, late: Duration) {
    let report = async |duration: Duration| {
        let reason = format!("EGW00201\n{}", "초".repeat(1000));
        store.report_pushback("kis-real", duration, &reason, &Arc::default()).await.unwrap()
    };
    let near =
        |left: Duration, whole: Duration| assert!(left <= whole && left + late >= whole, "{left:?} of {whole:?}");
    assert_eq!(report(Duration::ZERO).await, Duration::ZERO);
    near(report(ms(20_000)).await, ms(20_000));
    near(report(ms(10_000)).await, ms(20_000));
    near(report(Duration::MAX).await, ms(60_000));
    near(report(ms(20_000)).await, ms(60_000));
    let unknown = store.report_pushback("nobody", ms(1), "x", &Arc::default()).await.unwrap_err();
    assert_eq!(unknown.kind, Failing::Unavailable, "{unknown}");
    // Nothing starts within the pushback.
    let ask = Ask {
        budget: "kis-real".into(),
        class: "order".into(),
        lane: 1,
        costs: vec![1],
        patience: ms(1_000),
        nonce: 1,
    };
    assert!(store.acquire(&ask, &Arc::default()).await.unwrap().answer.slots.is_empty());
}

#[tokio::test]
async fn a_process_shows_its_breakers_and_is_told_when_that_is_too_often() {
    let database = database().await;
    let store = store(&database);
    let mut open = snapshot("kis/real/quote", Shown::Open);
    open.retry_after = Some(ms(23_000));
    open.view.why = "bad ones in a row".into();
    (open.view.successes, open.view.failures, open.view.failure_rate) = (7, 5, Some(0.5));
    open.view.episode = Some(EpisodeView {
        started_at: Wall::from_unix_us(0),
        total_open: ms(290_000),
        reopen_count: 2,
        probe_count: 3,
        cause: Cause::Streak,
    });
    open.holds = vec![("surface kis/real/balance".into(), ms(40_000), "EGW00215".into())];
    let snapshots = [snapshot("kis/real/order", Shown::Closed), open];
    assert_eq!(store.publish(7, &snapshots, &Arc::default()).await.unwrap(), Duration::ZERO);
    let wait = store.publish(7, &snapshots, &Arc::default()).await.unwrap();
    assert!(wait <= ms(1_000), "{wait:?}");
    let sql = "SELECT concat_ws('|', breaker, application_name, state, why, calls, failure_rate_ppm, total_open_us,
                                reopen_count, probe_count, cause, holds->0->>'scope', stale)
                 FROM call_budget.call_budget_breaker_status WHERE process = 7 ORDER BY breaker";
    let rows: Vec<String> = database.client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(
        rows,
        [
            "kis/real/order|collector|closed||0|f",
            "kis/real/quote|collector|open|bad ones in a row|12|500000|290000000|2|3|streak|surface kis/real/balance|f"
        ]
    );
}

/// The schema of the release before, or a role whose rights nobody has renewed.
#[tokio::test]
async fn where_the_store_cannot_take_it_nobody_loses_a_session() {
    let database = database().await;
    let store = store(&database);
    let told = async || store.publish(7, &[snapshot("a", Shown::Open)], &Arc::default()).await;
    store.probe(&Arc::default()).await.unwrap();
    let sessions = async || {
        let sql = "SELECT array_agg(pid) FROM pg_stat_activity
                    WHERE application_name = 'collector' AND datname = current_database()";
        database.client.query_one(sql, &[]).await.unwrap().get::<_, Vec<i32>>(0)
    };
    let before = sessions().await;
    for sql in [
        "DROP VIEW call_budget.call_budget_breaker_status",
        "DROP FUNCTION call_budget.call_budget_publish_breakers",
        "DROP TABLE call_budget.call_budget_breaker",
    ] {
        database.client.batch_execute(sql).await.unwrap();
    }
    let error = told().await.unwrap_err();
    assert_eq!(error.kind, Failing::Misconfigured, "{error}");
    assert!(error.to_string().contains("call-budget migrate"), "{error}");
    store.report_pushback("nobody", ms(1), "x", &Arc::default()).await.unwrap_err();
    store.probe(&Arc::default()).await.unwrap();
    assert_eq!(sessions().await, before);
}

fn store(database: &TestDatabase) -> PostgresStore {
    let mut settings = Settings::default();
    (settings.enabled, settings.database_url) = (true, Some(database.url.as_str().into()));
    settings.application_name = "collector".into();
    PostgresStore::new(&settings, SystemClock).unwrap()
}

async fn database() -> TestDatabase {
    let database = support::database().await;
    database
        .client
        .batch_execute(
            "SELECT call_budget.call_budget_set('kis-real', 18, 1000000, 50000, 50000, 1, 61174, 60000);
             SELECT call_budget.call_budget_class_set('kis-real', 'order', 0, 0)",
        )
        .await
        .unwrap();
    database
}

fn snapshot(breaker: &str, shown: Shown) -> Snapshot {
    let view = View {
        shown,
        failure_rate: None,
        slow_rate: None,
        streak: 0,
        calls: 0,
        successes: 0,
        failures: 0,
        rejected: 0,
        stale: 0,
        why: String::new(),
        retry_at: None,
        rung: 0,
        epoch: 0,
        episode: None,
    };
    Snapshot { breaker: breaker.into(), surfaces: vec![breaker.into()], view, retry_after: None, holds: Vec::new() }
}
