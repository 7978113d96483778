//! What the store granted is what became permits or was dropped, whatever the callers did.

use std::sync::Arc;

use call_budget::clock::SystemClock;
use call_budget::test_util::MemoryStore;
use call_budget::{CallBudget, Counters, Settings};
use tokio::task::JoinSet;

use crate::script::{Step, standing};
use crate::{limit, ms, settle, support, within};

pub fn balanced(counters: &Counters) -> bool {
    let Counters { granted, permits, dropped_round_trip, dropped_late, dropped_unwanted, .. } = *counters;
    granted == permits + dropped_round_trip + dropped_late + dropped_unwanted + counters.dropped_clock_step
}

#[tokio::test]
async fn a_slot_that_came_and_was_never_taken_is_booked() {
    let (_, script) = standing(|_, _| Step::GrantAll);
    let budget = script.budget(&Settings::default());
    let mut waiting = Box::pin(budget.acquire("a", "b"));
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("nobody has asked yet"),
        () = std::future::ready(()) => {}
    }
    settle().await;
    drop(waiting);
    let counters = budget.counters();
    assert_eq!((counters.granted, counters.permits, counters.dropped_unwanted), (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_books_balance_while_callers_come_and_go() {
    let store = MemoryStore::new(SystemClock);
    store.set_budget("kis-real", limit(400, 1));
    store.set_class("kis-real", "order", 0, 0.0);
    let budget = CallBudget::with_store(&Settings::default(), SystemClock, store.clone()).unwrap();
    let used = come_and_go(&budget).await;
    let counters = budget.counters();
    assert!(balanced(&counters), "{counters:?}");
    assert_eq!(counters.granted, store.granted("kis-real", "order"));
    assert_eq!(counters.permits - counters.lapsed, used);
    assert!(used > 100, "{counters:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_books_balance_against_the_database() {
    let database = support::database().await;
    database
        .client
        .batch_execute(
            "SELECT call_budget.call_budget_set('kis-real', 400, 1000000, 50000, 50000, 1, 2760, 60000);
             SELECT call_budget.call_budget_class_set('kis-real', 'order', 0, 0)",
        )
        .await
        .unwrap();
    let mut settings = Settings::default();
    (settings.enabled, settings.database_url) = (true, Some(database.url.as_str().into()));
    // On a busy machine too.
    settings.rtt_max = ms(45);
    let budget = CallBudget::new(&settings).unwrap();
    let used = come_and_go(&budget).await;
    let counters = budget.counters();
    let sql = "SELECT granted FROM call_budget.call_budget_class WHERE budget = 'kis-real' AND name = 'order'";
    let granted: i64 = database.client.query_one(sql, &[]).await.unwrap().get(0);
    assert!(balanced(&counters), "{counters:?}");
    assert!(counters.granted <= granted.cast_unsigned() && granted.cast_unsigned() <= counters.granted + counters.lost);
    assert_eq!(counters.permits - counters.lapsed, used);
    assert!(used > 20, "{counters:?}");
}

/// 400 callers; two in three leave at odd moments. Returns how many sent, once nothing is in flight any more.
async fn come_and_go<C, S>(budget: &CallBudget<C, S>) -> u64
where
    C: call_budget::clock::Clock,
    S: call_budget::store::Store,
{
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for caller in 0..400 {
        let (budget, sent) = (budget.clone(), Arc::clone(&sent));
        tasks.spawn(async move {
            let acquire = budget.acquire_with("kis-real", "order", within(ms(2000)));
            let permit = match caller % 3 {
                0 => Some(acquire.await),
                _ => tokio::time::timeout(ms(fastrand::u64(0..300)), acquire).await.ok(),
            };
            if let Some(Ok(permit)) = permit
                && permit.start().is_ok()
            {
                sent.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
    }
    tasks.join_all().await;
    // What stays is the connection that the pool keeps, who looks after it, and the watch over the store's clock.
    support::eventually("the lane's task has ended", async || {
        tokio::runtime::Handle::current().metrics().num_alive_tasks() <= before + 3
    })
    .await;
    sent.load(std::sync::atomic::Ordering::SeqCst)
}
