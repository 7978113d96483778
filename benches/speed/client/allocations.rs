//! What one acquire allocates: alone, with a store call of its own, and as one of many that share their calls.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::{AcquireError, CallBudget};
use serde::Serialize;
use tokio::task::JoinSet;

use super::SETTLED;
use super::counting::Counting;
use crate::Outcome;
use crate::ground::{CLASS, Ground};
use crate::options::Options;
use crate::report::Report;

const BUDGET: &str = "allocations";
/// Too many a second to pace.
const RATE: u32 = 1_000_000;
const TASKS: [usize; 2] = [1, 1000];

#[derive(Serialize)]
struct PerAcquire {
    tasks: usize,
    acquires: u64,
    store_calls: u64,
    /// Everything on the way, the database client among it, over all threads.
    allocations_per_acquire: f64,
    bytes_per_acquire: f64,
}

pub async fn run(ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    ground.set_budget(BUDGET, RATE).await?;
    let mut rows = Vec::new();
    for tasks in TASKS {
        let caller = ground.caller(1)?;
        // Connecting, and the first use of everything, are not the way of every call.
        acquire_until(&caller, tasks, SETTLED).await?;
        let calls_before = caller.counters().store_calls;
        let counting = Counting::begin();
        let acquires = acquire_until(&caller, tasks, options.time()).await?;
        let count = counting.so_far();
        let store_calls = caller.counters().store_calls - calls_before;
        if store_calls == 0 || count.allocations == 0 {
            return Err(
                format!("{acquires} acquires of {tasks} tasks: {store_calls} calls, {count:?}: not counted").into()
            );
        }
        rows.push(PerAcquire {
            tasks,
            acquires,
            store_calls,
            allocations_per_acquire: count.allocations as f64 / acquires as f64,
            bytes_per_acquire: count.bytes as f64 / acquires as f64,
        });
    }
    let columns = ["tasks", "acquires", "store_calls", "allocations_per_acquire", "bytes_per_acquire"];
    report.table("client_allocations", "What an acquire allocates:", &columns, &rows)
}

/// How many acquires so many tasks made in the time.
async fn acquire_until(caller: &CallBudget, tasks: usize, time: Duration) -> Outcome<u64> {
    let end = SystemClock.now() + time;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let caller = caller.clone();
        running.spawn(async move {
            let mut acquires = 0;
            while SystemClock.now() < end {
                drop(caller.acquire(BUDGET, CLASS).await?);
                acquires += 1;
            }
            Ok::<u64, AcquireError>(acquires)
        });
    }
    let mut acquires = 0;
    while let Some(ended) = running.join_next().await {
        acquires += ended??;
    }
    Ok(acquires)
}
