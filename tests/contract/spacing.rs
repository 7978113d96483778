//! Any two slots are at least `cost * interval` apart, whoever asked and however long he waited for the lock.

use std::time::Duration;

use call_budget::store::memory::scheduler::{Answer, Call, Settings};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;

use crate::store::{self, BUDGET, KIS, START_US, Store};
use crate::support;

const ACQUIRE: &str = "SELECT * FROM call_budget.call_budget_acquire($1, $2, $3, $4, 86400000000, $5)";

/// Reading the clock before the lock is granted would take the calls that went first for a clock that stepped back.
#[tokio::test]
async fn slots_keep_their_distance_however_long_the_lock_was_waited_for() {
    let settings = Settings { interval_us: 300_000, lookahead_us: 5_000_000, ..KIS };
    let store = Store::with_classes(settings, &[("order", 0, 0)]).await;
    let (first, second) = (store.connect().await, store.connect().await);
    // The first holds the row; the second comes and waits for it; only then does the first take its slots.
    first.batch_execute("BEGIN; SELECT FROM call_budget.call_budget FOR UPDATE").await.unwrap();
    let second_pid: i32 = second.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let waiting = tokio::spawn(async move { acquire(&second, 2, &[1]).await });
    wait_for_lock(store.client(), second_pid).await;
    // So that the two readings of the clock differ by more than any rounding.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let taken = acquire(&first, 1, &[1; 6]).await;
    first.batch_execute("COMMIT").await.unwrap();
    let waited = waiting.await.unwrap();

    let mut slots_us = [slots_us(&taken), slots_us(&waited)].concat();
    assert_eq!(slots_us.len(), 7, "{taken:?}, {waited:?}");
    slots_us.sort_unstable();
    assert_spaced(&slots_us, settings.interval_us);
    assert!(waited.store_us > taken.store_us, "its time is that of the lock, not of the call");
}

#[tokio::test]
async fn the_wait_for_a_lock_does_not_put_a_slot_into_the_past() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let (first, second) = (store.connect().await, store.connect().await);
    first.batch_execute("BEGIN; SELECT FROM call_budget.call_budget FOR UPDATE").await.unwrap();
    let second_pid: i32 = second.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let waiting = tokio::spawn(async move { acquire(&second, 2, &[1]).await });
    wait_for_lock(store.client(), second_pid).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let released_us: i64 = first.query_one(sql, &[]).await.unwrap().get(0);
    first.batch_execute("COMMIT").await.unwrap();
    let slots_us = slots_us(&waiting.await.unwrap());
    assert_eq!(slots_us.len(), 1);
    assert!(slots_us[0] >= released_us, "a slot {} us before the lock was free", released_us - slots_us[0]);
}

#[tokio::test]
async fn eight_connections_at_once_never_come_closer_than_the_interval() {
    let settings = Settings { interval_us: 2000, ..KIS };
    let store = Store::with_classes(settings, &[("order", 0, 300_000), ("eod", 1, 0)]).await;
    let until = Instant::now() + Duration::from_secs(3);
    let mut callers = JoinSet::new();
    for lane in 0..8 {
        let client = store.connect().await;
        callers.spawn(async move {
            let class = if lane % 2 == 0 { "order" } else { "eod" };
            let mut slots = Vec::new();
            while Instant::now() < until {
                let answer = acquire_as(&client, class, lane, &[1, 1, 1]).await;
                assert!(
                    answer.waits_us.iter().all(|wait_us| (0..=settings.lookahead_us).contains(wait_us)),
                    "{answer:?}"
                );
                slots.extend(slots_us(&answer));
            }
            slots
        });
    }
    let mut slots_us = callers.join_all().await.concat();
    slots_us.sort_unstable();
    // How many depends on the machine; enough to mean something.
    assert!(slots_us.len() >= 300, "{} slots", slots_us.len());
    assert_spaced(&slots_us, settings.interval_us);
}

#[tokio::test]
async fn a_lowered_rate_holds_from_the_very_next_slot() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    assert_eq!(store.reserve(ask(&[1]), START_US).await.waits_us, [0]);
    store.set(Settings { interval_us: 1_000_000, ..KIS }).await;
    assert_eq!(store.reserve(ask(&[1]), START_US + 61_174).await.waits_us, [0; 0]);
    assert_eq!(store.reserve(ask(&[1]), START_US + 940_000).await.waits_us, [60_000]);
}

#[tokio::test]
async fn an_idle_hour_earns_nothing() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    store.reserve(ask(&[1]), START_US).await;
    let after = store.reserve(ask(&[1; 20]), START_US + 3_600_000_000).await;
    assert_eq!(after.waits_us, [0], "one slot starts within the lookahead, as ever");
}

#[tokio::test]
async fn a_cost_takes_as_many_intervals() {
    let settings = Settings { max_cost: 5, lookahead_us: 1_000_000, ..KIS };
    let store = Store::with_classes(settings, &[("order", 0, 0)]).await;
    let answer = store.reserve(ask(&[3, 1, 5, 1]), START_US).await;
    assert_eq!(answer.waits_us, [0, 3 * 61_174, 4 * 61_174, 9 * 61_174]);
    let next = store.reserve(ask(&[1]), START_US + 1).await;
    assert_eq!(next.waits_us, [10 * 61_174 - 1]);
}

fn ask(costs: &[i32]) -> Call<'_> {
    Call { class: "order", lane: 1, costs, patience_us: 86_400_000_000 }
}

async fn acquire(client: &Client, lane: i64, costs: &[i32]) -> Answer {
    acquire_as(client, "order", lane, costs).await
}

async fn acquire_as(client: &Client, class: &str, lane: i64, costs: &[i32]) -> Answer {
    let row =
        timeout(Duration::from_secs(30), client.query_one(ACQUIRE, &[&BUDGET, &class, &lane, &costs, &lane])).await;
    store::answer(&row.expect("no answer for 30 s").unwrap_or_else(|error| panic!("{error:?}")))
}

/// In the store's own time.
fn slots_us(answer: &Answer) -> Vec<i64> {
    answer.waits_us.iter().map(|wait_us| answer.store_us + wait_us).collect()
}

fn assert_spaced(slots_us: &[i64], interval_us: i64) {
    for pair in slots_us.windows(2) {
        assert!(pair[1] - pair[0] >= interval_us, "two slots are {} us apart", pair[1] - pair[0]);
    }
}

async fn wait_for_lock(client: &Client, pid: i32) {
    support::eventually("the second caller waits for the row", async || {
        let sql = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1";
        client.query_one(sql, &[&pid]).await.unwrap().get::<_, Option<bool>>(0) == Some(true)
    })
    .await;
}
