//! Ten thousand tasks of one process that wait in one lane: what they take while they wait, and how fast they get away.

use std::time::Duration;

use call_budget::Options as Acquire;
use call_budget::clock::{Clock, SystemClock};
use serde::Serialize;
use tokio::task::JoinSet;

use super::SETTLED;
use super::counting::Counting;
use crate::Outcome;
use crate::ground::{CLASS, Ground};
use crate::measure::own_cpu;
use crate::options::Options;
use crate::report::Report;

const TASKS: usize = 10_000;
const BUDGET: &str = "waiting";
const SLOWLY: u32 = 16;
const AT_ONCE: u32 = 1_000_000;

#[derive(Serialize)]
struct Waiting {
    tasks: usize,
    /// On the heap, the task itself among it.
    bytes_per_task: f64,
    /// Of one core, of this process alone, while a few slots a second are granted.
    cpu_percent: f64,
    store_calls_per_s: f64,
    /// From the moment at which there were slots for all.
    drained_per_s: f64,
}

pub async fn run(ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    ground.set_budget(BUDGET, SLOWLY).await?;
    let caller = ground.caller(1)?;
    drop(caller.acquire(BUDGET, CLASS).await?);
    let mut running = JoinSet::new();
    let counting = Counting::begin();
    for _ in 0..TASKS {
        let caller = caller.clone();
        running.spawn(async move {
            let patient = Acquire { max_wait: Some(Duration::from_secs(600)), ..Acquire::default() };
            caller.acquire_with(BUDGET, CLASS, patient).await.map(drop)
        });
    }
    tokio::time::sleep(SETTLED).await;
    let bytes_per_task = counting.so_far().live_bytes as f64 / TASKS as f64;
    drop(counting);

    let (begin, cpu, calls) = (SystemClock.now(), own_cpu(), caller.counters().store_calls);
    tokio::time::sleep(options.time()).await;
    let seconds = SystemClock.now().saturating_since(begin).as_secs_f64();
    let cpu_percent = (own_cpu() - cpu).as_secs_f64() / seconds * 100.0;
    let store_calls_per_s = (caller.counters().store_calls - calls) as f64 / seconds;

    let granted_before = caller.counters().permits;
    let begin = SystemClock.now();
    ground.set_budget(BUDGET, AT_ONCE).await?;
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let drained = (caller.counters().permits - granted_before) as f64;
    let drained_per_s = drained / SystemClock.now().saturating_since(begin).as_secs_f64();
    if bytes_per_task <= 0.0 || drained <= 0.0 {
        return Err(format!("{TASKS} tasks that waited took {bytes_per_task} bytes each, {drained} got away").into());
    }
    let row = Waiting { tasks: TASKS, bytes_per_task, cpu_percent, store_calls_per_s, drained_per_s };
    let columns = ["tasks", "bytes_per_task", "cpu_percent", "store_calls_per_s", "drained_per_s"];
    report.table("client_waiting", "Tasks that wait in one lane of one process:", &columns, &[row])
}
