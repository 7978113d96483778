//! A caller who goes away at any await takes nothing along and leaves nothing behind.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use call_budget::clock::SystemClock;
use call_budget::store::{Ask, PostgresStore, Progress, Store};
use call_budget::{CallBudget, Settings};
use tokio::time::timeout;

use crate::support::{self, TestDatabase};
use crate::{Duration, ms, send};

/// Enough for the slowest way there is: connect, log in, set up, warm, ask.
const MOST_POLLS: usize = 1000;

#[tokio::test]
async fn an_acquire_dropped_at_any_await_leaves_no_task_and_no_session_and_the_next_is_served() {
    let database = fast_budget().await;
    let tasks = alive_tasks();
    for fresh in [true, false] {
        let mut budget = budget(&database);
        let mut polls = 0;
        while dropped_after(polls, budget.acquire("kis-real", "order")).await.is_none() {
            let next = timeout(Duration::from_secs(5), budget.acquire("kis-real", "order")).await;
            send(next.expect("at once"));
            if fresh {
                budget = self::budget(&database);
            }
            polls += 1;
            assert!(polls < MOST_POLLS);
        }
        assert!(polls >= 1, "it waited at least once");
    }
    nothing_is_left(&database, tasks).await;
}

/// The same for the store's own call, which has more places to stop at: the pool, connecting, the query.
#[tokio::test]
async fn a_store_call_dropped_at_any_await_leaves_no_task_and_no_session_and_the_next_is_served() {
    let database = fast_budget().await;
    let tasks = alive_tasks();
    let settings = settings(&database);
    let mut counted = Vec::new();
    for fresh in [true, false] {
        let mut store = PostgresStore::new(&settings, SystemClock).unwrap();
        let mut polls = 0;
        while dropped_after(polls, store.acquire(&ask(), &Arc::default())).await.is_none() {
            timeout(Duration::from_secs(5), store.acquire(&ask(), &Arc::<Progress>::default()))
                .await
                .expect("at once")
                .expect("an answer");
            if fresh {
                store = PostgresStore::new(&settings, SystemClock).unwrap();
            }
            polls += 1;
            assert!(polls < MOST_POLLS);
        }
        counted.push(polls);
    }
    assert!(counted[0] > counted[1], "connecting has more places to stop at than asking: {counted:?}");
    nothing_is_left(&database, tasks).await;
}

/// Polls `future` as often as it wakes, `polls` times at most, and drops it. Its output, if it came to one.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn nothing_is_left(database: &TestDatabase, tasks: usize) {
    support::eventually("the tasks have ended", async || alive_tasks() <= tasks).await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    support::eventually("the sessions have ended", async || {
        database.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn fast_budget() -> TestDatabase {
    let database = support::database().await;
    database
        .client
        .batch_execute(
            "SELECT call_budget.call_budget_set('kis-real', 10000, 1000000, 1000000, 1000000, 1, 400, 1000000);
             SELECT call_budget.call_budget_class_set('kis-real', 'order', 0, 0)",
        )
        .await
        .unwrap();
    database
}

fn settings(database: &TestDatabase) -> Settings {
    let mut settings = Settings::default();
    (settings.enabled, settings.database_url) = (true, Some(database.url.as_str().into()));
    settings.pool_size = 1;
    settings.rtt_max = ms(900);
    settings
}

fn budget(database: &TestDatabase) -> CallBudget {
    CallBudget::new(&settings(database)).unwrap()
}

fn ask() -> Ask {
    Ask {
        budget: "kis-real".into(),
        class: "order".into(),
        lane: 1,
        costs: vec![1],
        patience: Duration::from_secs(30),
        nonce: fastrand::i64(0..),
    }
}
