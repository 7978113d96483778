//! What the library promises its callers, judged from outside through `CallBudget`.
//!
//! Where a moment matters to the microsecond, a store that does what the test says (`script`) runs on a clock that the test
//! moves. Where the scheduler matters, it is the store in memory or a real PostgreSQL.

#[path = "../support/mod.rs"]
mod support;

mod books;
mod cancelling;
mod deadlines;
mod fences;
mod figures;
mod lanes;
mod outages;
mod postgres;
mod refusals;
mod runtimes;
mod script;
mod store_clock;
mod switch;
mod telling;
mod windows;

use std::time::Duration;

use call_budget::clock::Clock;
use call_budget::test_util::{Instant, Limit, ManualClock, MemoryStore};
use call_budget::{AcquireError, CallBudget, Options, Permit, Settings};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(moment: Duration) -> Instant {
    Instant::from_boot(moment)
}

fn within(max_wait: Duration) -> Options {
    Options { max_wait: Some(max_wait), ..Options::default() }
}

fn costing(cost: u32) -> Options {
    Options { cost, ..Options::default() }
}

/// The limit of the design's example, with another number of units and another largest cost.
fn limit(units: u32, max_cost: u32) -> Limit {
    Limit { units, window: ms(1000), send_window: ms(50), arrival_jitter: ms(50), max_cost }
}

/// A budget in memory on a clock that stands, with one class.
fn in_memory(
    limit: Limit,
) -> (CallBudget<ManualClock, MemoryStore<ManualClock>>, MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::at(Instant::default());
    let store = MemoryStore::new(clock.clone());
    store.set_budget("kis-real", limit);
    store.set_class("kis-real", "order", 0, 0.0);
    (CallBudget::with_store(&Settings::default(), clock.clone(), store.clone()).unwrap(), store, clock)
}

/// One call, answered at once.
fn send<C: Clock>(permit: Result<Permit<C>, AcquireError>) {
    drop(permit.expect("a permit").start().expect("inside its window"));
}

/// What a task came to. A test of a wait that never ends must end.
async fn ended<T>(task: JoinHandle<T>) -> T {
    timeout(ms(10_000), task).await.expect("it does not end").unwrap()
}

async fn all_ended<T: 'static>(tasks: JoinSet<T>) -> Vec<T> {
    timeout(ms(10_000), tasks.join_all()).await.expect("they do not end")
}

/// Lets every task of this runtime run until it waits for something: on a clock that stands, that is an event.
async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

/// Moves the clock by small steps, as time does.
async fn pass(clock: &ManualClock, time: Duration) {
    let steps = time.as_millis();
    for _ in 0..steps {
        clock.advance(ms(1));
        settle().await;
    }
}
