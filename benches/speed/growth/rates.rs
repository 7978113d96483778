//! Fleets that want more than there is, at three rates: what a send costs the store, and whether the rate is kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;
use call_budget::{AcquireError, CallBudget, Counters, Options as Asked, Settings};
use serde::Serialize;
use tokio::task::JoinSet;

use super::{granted, windows};
use crate::Outcome;
use crate::ground::{CLASS, Ground, Spent};
use crate::options::Options;
use crate::report::Report;

/// The window that `Ground::set_budget` counts in.
const WINDOW: Duration = Duration::from_secs(1);
/// A fleet is watched for as many times the usual: at 16/s one second is a few sends.
const LONGER: u32 = 5;
const SETTLING: u32 = 2;
/// With fewer sends between two looks a figure means nothing, however long it took.
const FEW: usize = 10;
/// The last of many waits longest; a task that gives up would end the fleet.
const PATIENCE: Duration = Duration::from_secs(600);

/// Lanes, each a process's worth: a [`CallBudget`] and a connection of its own.
struct Fleet {
    name: &'static str,
    /// Units a window, such that the interval gives the rate of the name.
    limit: u32,
    lanes: usize,
    /// Among which the lanes are divided, each with a priority and a floor; or the one class of the ground.
    classes: &'static [Class],
    /// That wait in each lane at any time: more than the lane can be granted at once, but where it says one.
    tasks: usize,
    /// The most store calls a send may take, where that was promised.
    most_calls: Option<f64>,
}

/// Name, priority, floor in parts per million.
type Class = (&'static str, i32, i32);
const ONE: &[Class] = &[(CLASS, 0, 0)];
/// As in the design's own fleets.
const THREE: &[Class] = &[(CLASS, 0, 300_000), ("second", 1, 200_000), ("third", 2, 100_000)];
/// Nothing is left that goes by priority: the order changes with nearly every slot, and appointments are guesses.
const FOUR: &[Class] = &[(CLASS, 0, 400_000), ("second", 1, 300_000), ("third", 2, 200_000), ("fourth", 3, 100_000)];

const FLEETS: [Fleet; 8] = [
    Fleet { name: "16/s, 60 lanes", limit: 18, lanes: 60, classes: ONE, tasks: 2, most_calls: Some(5.0) },
    Fleet { name: "16/s, 60 lanes, 3 classes", limit: 18, lanes: 60, classes: THREE, tasks: 2, most_calls: Some(5.0) },
    Fleet { name: "16/s, 60 lanes, 4 classes", limit: 18, lanes: 60, classes: FOUR, tasks: 2, most_calls: Some(5.0) },
    Fleet { name: "16/s, 60 lanes, 1 task each", limit: 18, lanes: 60, classes: ONE, tasks: 1, most_calls: Some(5.0) },
    Fleet { name: "1,000/s, 12 lanes", limit: 1103, lanes: 12, classes: ONE, tasks: 40, most_calls: None },
    Fleet { name: "1,000/s, 24 lanes", limit: 1103, lanes: 24, classes: ONE, tasks: 40, most_calls: None },
    Fleet { name: "10,000/s, 12 lanes", limit: 11_123, lanes: 12, classes: ONE, tasks: 250, most_calls: Some(0.05) },
    Fleet {
        name: "10,000/s, 12 lanes, 3 classes",
        limit: 11_123,
        lanes: 12,
        classes: THREE,
        tasks: 250,
        most_calls: Some(0.05),
    },
];
/// Of the slots offered while everybody waits, the part that must be granted.
const LEAST_USE: f64 = 0.97;

const COLUMNS: [&str; 16] = [
    "fleet",
    "limit",
    "interval_us",
    "seconds",
    "sends",
    "calls_per_send",
    "most_calls",
    "use_granted",
    "worst_window",
    "over_limit_windows",
    "server_cpu_us_per_send",
    "server_cpu_percent",
    "wal_bytes_per_send",
    "dropped",
    "lapsed",
    "met",
];

#[derive(Debug, Serialize)]
struct Row {
    fleet: &'static str,
    limit: u32,
    interval_us: u64,
    seconds: f64,
    sends: usize,
    sends_per_s: f64,
    /// Store calls of every kind.
    calls_per_send: f64,
    most_calls: Option<f64>,
    /// Of the slots that the schedule offered between the first and the last look.
    use_granted: f64,
    use_sent: f64,
    /// Over the whole life of the fleet, at a receiver in this process.
    worst_window: usize,
    over_limit_windows: usize,
    server_cpu_us_per_send: f64,
    /// Of one core.
    server_cpu_percent: f64,
    wal_bytes_per_send: f64,
    /// Came and was not handed out; with what was lost.
    dropped: u64,
    /// Was handed out, and its task woke up too late.
    lapsed: u64,
    met: &'static str,
}

/// One look at everything that is counted.
struct Look {
    at: Instant,
    sends: usize,
    counted: Sum,
    granted: i64,
    last_slot_us: i64,
    spent: Spent,
}

/// Over all callers.
#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    dropped: u64,
    lapsed: u64,
}

pub async fn run(ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    windows::check_the_judge()?;
    let mut rows = Vec::new();
    for fleet in &FLEETS {
        rows.push(fleet.measure(ground, options).await?);
    }
    let title = "Paced fleets, settings as shipped. Every lane has a connection of its own and tasks that wait; limit: units in \
                 1 s, w + j = 100 ms; use: of the slots offered, those granted:";
    report.table("growth_rates", title, &COLUMNS, &rows)?;
    // A figure that is slow is a figure; a broken limit is a fault.
    match rows.iter().find(|row| row.over_limit_windows > 0) {
        Some(row) => Err(format!("{}: {} windows over the limit", row.fleet, row.over_limit_windows).into()),
        None => Ok(()),
    }
}

impl Fleet {
    async fn measure(&self, ground: &Ground, options: &Options) -> Outcome<Row> {
        let interval = ground.set_budget(self.name, self.limit).await?;
        for (class, priority, floor_ppm) in self.classes {
            let set = "SELECT call_budget.call_budget_class_set($1, $2, $3, $4)";
            ground.aside.query(set, &[&self.name, class, priority, floor_ppm]).await?;
        }
        let callers: Vec<_> = (0..self.lanes).map(|_| as_shipped(ground)).collect::<Outcome<_>>()?;
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for (caller, (class, ..)) in callers.iter().zip(self.classes.iter().cycle()) {
            for _ in 0..self.tasks {
                tasks.spawn(send_for_ever(caller.clone(), self.name, class, Arc::clone(&arrivals)));
            }
        }
        let looked = tokio::select! {
            looked = self.watch(ground, options, &callers, &arrivals) => looked,
            ended = tasks.join_next() => Err(format!("{}: a task that was to go on ended: {ended:?}", self.name).into()),
        };
        tasks.shutdown().await;
        let [before, after] = looked?;
        let windows = windows::judge(std::mem::take(&mut *lock(&arrivals)), WINDOW, usize::try_from(self.limit)?);
        self.row(interval, &before, &after, windows)
    }

    /// Lets the fleet come to its pace, then looks twice.
    async fn watch(
        &self,
        ground: &Ground,
        options: &Options,
        callers: &[CallBudget],
        arrivals: &Mutex<Vec<Instant>>,
    ) -> Outcome<[Look; 2]> {
        // Connecting and warming up are no part of the cost of a send. After them at least one nap, the longest that a lane
        // stays away.
        self.until("every lane has asked", || callers.iter().all(|caller| caller.counters().store_calls > 0)).await?;
        tokio::time::sleep(options.time() * SETTLING).await;
        self.until("the first sends", || lock(arrivals).len() >= FEW).await?;
        let before = self.look(ground, callers, arrivals).await?;
        tokio::time::sleep(options.time() * LONGER).await;
        self.until("some sends to measure", || lock(arrivals).len() >= before.sends + FEW).await?;
        Ok([before, self.look(ground, callers, arrivals).await?])
    }

    async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Outcome<()> {
        let patience = SystemClock.now() + Duration::from_secs(60);
        while !is_so() {
            if SystemClock.now() > patience {
                return Err(format!("{}: waited a minute in vain: {what}", self.name).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn look(&self, ground: &Ground, callers: &[CallBudget], arrivals: &Mutex<Vec<Instant>>) -> Outcome<Look> {
        let spent = ground.spent().await?;
        let (granted, last_slot_us) = granted(ground, self.name).await?;
        let counted = callers.iter().map(|caller| Sum::of(&caller.counters())).fold(Sum::default(), Sum::add);
        let sends = lock(arrivals).len();
        Ok(Look { at: SystemClock.now(), sends, counted, granted, last_slot_us, spent })
    }

    fn row(&self, interval: Duration, before: &Look, after: &Look, windows: windows::Windows) -> Outcome<Row> {
        let sends = after.sends - before.sends;
        let calls = after.counted.calls - before.counted.calls;
        let interval_us = u64::try_from(interval.as_micros())?;
        let offered = (after.last_slot_us - before.last_slot_us) as f64 / interval_us as f64;
        if calls == 0 || offered < 1.0 || after.spent.wal_bytes == before.spent.wal_bytes {
            return Err(format!("{}: {sends} sends, {calls} calls, {offered} slots: not measured", self.name).into());
        }
        let seconds = after.at.saturating_since(before.at).as_secs_f64();
        let cpu = after.spent.cpu.saturating_sub(before.spent.cpu).as_secs_f64();
        let calls_per_send = calls as f64 / sends as f64;
        let use_granted = (after.granted - before.granted) as f64 / offered;
        let met = windows.over_limit == 0
            && use_granted >= LEAST_USE
            && self.most_calls.is_none_or(|most| calls_per_send <= most);
        Ok(Row {
            fleet: self.name,
            limit: self.limit,
            interval_us,
            seconds,
            sends,
            sends_per_s: sends as f64 / seconds,
            calls_per_send,
            most_calls: self.most_calls,
            use_granted,
            use_sent: sends as f64 / offered,
            worst_window: windows.worst,
            over_limit_windows: windows.over_limit,
            server_cpu_us_per_send: cpu * 1e6 / sends as f64,
            server_cpu_percent: cpu * 100.0 / seconds,
            wal_bytes_per_send: (after.spent.wal_bytes - before.spent.wal_bytes) as f64 / sends as f64,
            dropped: after.counted.dropped - before.counted.dropped,
            lapsed: after.counted.lapsed - before.counted.lapsed,
            met: if met { "yes" } else { "NO" },
        })
    }
}

/// With the settings that a program has where it says nothing: whoever is too slow probes until it is not.
fn as_shipped(ground: &Ground) -> Outcome<CallBudget> {
    let mut settings = Settings::default();
    settings.enabled = true;
    settings.database_url = Some(ground.url().into());
    settings.application_name = "call-budget speed".into();
    settings.pool_size = 1;
    Ok(CallBudget::new(&settings)?)
}

/// Ends only with an error.
async fn send_for_ever(
    caller: CallBudget,
    budget: &'static str,
    class: &'static str,
    arrivals: Arc<Mutex<Vec<Instant>>>,
) -> Result<(), AcquireError> {
    let asked = Asked { max_wait: Some(PATIENCE), ..Asked::default() };
    loop {
        let permit = caller.acquire_with(budget, class, asked).await?;
        if permit.start().is_ok() {
            // Before the lock, for which a task may wait.
            let arrival = SystemClock.now();
            lock(&arrivals).push(arrival);
        }
    }
}

fn lock(arrivals: &Mutex<Vec<Instant>>) -> MutexGuard<'_, Vec<Instant>> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sum {
    fn of(counters: &Counters) -> Self {
        Self {
            calls: counters.store_calls + counters.probes + counters.fence_requests,
            dropped: counters.dropped_round_trip
                + counters.dropped_late
                + counters.dropped_unwanted
                + counters.dropped_clock_step
                + counters.lost,
            lapsed: counters.lapsed,
        }
    }

    fn add(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            dropped: self.dropped + other.dropped,
            lapsed: self.lapsed + other.lapsed,
        }
    }
}
