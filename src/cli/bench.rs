//! What an acquire costs, beside the least that a row in PostgreSQL can cost, and how many grants one row gives.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;

use super::command_error::CommandError;
use super::database::{Connected, Database};
use super::demo::start_server;
use super::progress::Progress;
use super::{interrupted, output};
use crate::clock::{Clock, SystemClock};
use crate::store::floor::Floor;
use crate::store::{admin, status};
use crate::{AcquireError, CallBudget, Settings};

/// As many runs of each kind, alternating; the median counts.
const RUNS: u32 = 5;
const LANES: [usize; 3] = [1, 4, 16];
const TASKS_PER_LANE: usize = 100;
/// Too many a second to pace: what is measured is the store, not the schedule.
const UNITS: i32 = 1_000_000;

/// Measure acquire on a given database, or on a throw-away PostgreSQL
///
/// One caller: acquire through the library against a bare one-row UPDATE ...
/// RETURNING, both as one typed statement in one round trip, alternating, the
/// median of five runs. Many: grants a second on one budget with 1, 4 and 16
/// lanes of 100 waiting tasks. Does not ask for call_budget_enabled.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = "Example: call-budget bench --seconds 10 --json")]
pub struct Bench {
    /// How long in all, 2 to 600
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// A database to use instead of a throw-away PostgreSQL
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
}

#[derive(Debug, Serialize)]
struct Figures {
    acquire_p50_us: f64,
    raw_p50_us: f64,
    /// Acquire over the bare UPDATE.
    ratio: f64,
    runs: Vec<PairOfRuns>,
    many: Vec<Many>,
    settings: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct PairOfRuns {
    acquire_p50_us: f64,
    raw_p50_us: f64,
}

#[derive(Debug, Serialize)]
struct Many {
    lanes: usize,
    tasks: usize,
    grants_per_s: f64,
    /// Grants that one store call brought.
    grants_per_store_call: f64,
    /// From a task's asking until it had its permit, while all of a lane's tasks ask at once.
    batch_p50_us: f64,
}

impl Bench {
    pub async fn run(self) -> Result<(), CommandError> {
        let (url, server) = match self.database_url.clone() {
            Some(url) => (url, None),
            None => {
                let server = start_server().await?;
                (server.url("postgres"), Some(server))
            }
        };
        let (mut connected, _) = Database::from(url.clone()).migrate().await?;
        let budget = format!("bench-{:x}", fastrand::u64(..));
        let figures = tokio::select! {
            figures = self.measure(&mut connected, &url, &budget) => figures,
            signal = interrupted() => Err(CommandError::failed(format!("stopped by {signal}, nothing was kept"))),
        };
        if server.is_none() {
            clear(&url, &budget).await?;
        }
        let _ = tokio::task::spawn_blocking(move || drop(server)).await;
        let figures = figures?;
        if self.json {
            output::print_json(&figures);
        } else {
            output::print(&figures.in_words());
        }
        Ok(())
    }

    async fn measure(&self, connected: &mut Connected, url: &str, budget: &str) -> Result<Figures, CommandError> {
        let operation = connected.begin().await?;
        admin::set(&operation, budget, &unpaced()?).await?;
        admin::class_set(&operation, budget, "bench", 0, 0).await?;
        let settings = status::server(&operation).await?.durability();
        operation.commit().await?;

        // Half the time for one caller, half for many.
        let part = Duration::from_secs(u64::from(self.seconds)) / 2;
        let mut floor = Floor::make(Database::from(url.to_owned()).connect().await?.into_session()).await?;
        let one = caller(url)?;
        drop(one.acquire(budget, "bench").await.map_err(refused)?);
        let progress = Progress::new();
        let mut runs = Vec::new();
        for run in 1..=RUNS {
            progress.say(&format!("one caller: run {run} of {RUNS}, {} s in all", self.seconds));
            let raw_p50_us = median_us(part / (2 * RUNS), async || Ok(floor.update().await?)).await?;
            let acquire = async || one.acquire(budget, "bench").await.map_err(refused).map(drop);
            let acquire_p50_us = median_us(part / (2 * RUNS), acquire).await?;
            runs.push(PairOfRuns { acquire_p50_us, raw_p50_us });
        }
        floor.clear().await?;
        let mut many = Vec::new();
        for lanes in LANES {
            progress.say(&format!("many callers: {lanes} lanes of {TASKS_PER_LANE} tasks, {} s in all", self.seconds));
            many.push(measure_many(url, budget, lanes, part / LANES.len() as u32).await?);
        }
        let (acquire_p50_us, raw_p50_us) =
            (middle(runs.iter().map(|run| run.acquire_p50_us)), middle(runs.iter().map(|run| run.raw_p50_us)));
        Ok(Figures { acquire_p50_us, raw_p50_us, ratio: acquire_p50_us / raw_p50_us, runs, many, settings })
    }
}

/// Each lane is a [`CallBudget`] of its own, with its own connection, and all contend for one row.
async fn measure_many(url: &str, budget: &str, lanes: usize, time: Duration) -> Result<Many, CommandError> {
    let callers = (0..lanes).map(|_| caller(url)).collect::<Result<Vec<_>, _>>()?;
    for caller in &callers {
        drop(caller.acquire(budget, "bench").await.map_err(refused)?);
    }
    let before: u64 = callers.iter().map(|caller| caller.counters().store_calls).sum();
    let begin = SystemClock.now();
    let end = begin + time;
    let mut tasks = JoinSet::new();
    for caller in callers.iter().flat_map(|caller| std::iter::repeat_n(caller, TASKS_PER_LANE)) {
        let (caller, budget) = (caller.clone(), budget.to_owned());
        tasks.spawn(async move {
            let mut waits_us = Vec::new();
            while SystemClock.now() < end {
                let asked = SystemClock.now();
                let permit = caller.acquire(&budget, "bench").await?;
                waits_us.push(micros(SystemClock.now().saturating_since(asked)));
                drop(permit);
            }
            Ok::<_, AcquireError>(waits_us)
        });
    }
    let mut waits_us = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let task = task.map_err(|error| CommandError::failed(format!("a task of the bench ended: {error}")))?;
        waits_us.extend(task.map_err(refused)?);
    }
    let seconds = SystemClock.now().saturating_since(begin).as_secs_f64();
    let store_calls: u64 = callers.iter().map(|caller| caller.counters().store_calls).sum::<u64>() - before;
    Ok(Many {
        lanes,
        tasks: lanes * TASKS_PER_LANE,
        grants_per_s: waits_us.len() as f64 / seconds,
        grants_per_store_call: waits_us.len() as f64 / store_calls.max(1) as f64,
        batch_p50_us: middle(waits_us.into_iter()),
    })
}

fn caller(url: &str) -> Result<CallBudget, CommandError> {
    let settings = Settings {
        enabled: true,
        database_url: Some(url.into()),
        application_name: "call-budget bench".into(),
        pool_size: 1,
        // On a slow disk a commit alone may take longer than a caller would accept.
        rtt_max: Duration::from_secs(1),
        ..Settings::default()
    };
    Ok(CallBudget::new(&settings)?)
}

fn unpaced() -> Result<admin::Settings, CommandError> {
    use crate::policy::spacing::Limit;
    let send_window = Duration::from_secs(1);
    let (window, arrival_jitter) = (Duration::from_secs(1), Duration::ZERO);
    let limit = Limit { units: UNITS.unsigned_abs(), window, send_window, arrival_jitter, max_cost: 1 };
    let interval = limit.interval().map_err(|error| CommandError::failed(format!("no interval: {error:?}")))?;
    let us = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    Ok(admin::Settings {
        limit: UNITS,
        window_us: us(window),
        send_window_us: us(send_window),
        arrival_jitter_us: us(arrival_jitter),
        max_cost: 1,
        interval_us: us(interval),
        lookahead_us: 60_000,
    })
}

/// The median time of one piece of work, done one after the other for so long.
async fn median_us(
    time: Duration,
    mut work: impl AsyncFnMut() -> Result<(), CommandError>,
) -> Result<f64, CommandError> {
    let end = SystemClock.now() + time;
    let mut took = Vec::new();
    loop {
        let begin = SystemClock.now();
        if begin >= end && !took.is_empty() {
            return Ok(middle(took.into_iter()));
        }
        work().await?;
        took.push(micros(SystemClock.now().saturating_since(begin)));
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    let index = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(index, f64::total_cmp).1 }
}

/// Takes the budget out of a database that is somebody else's, once its slots are over.
async fn clear(url: &str, budget: &str) -> Result<(), CommandError> {
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut connected = Database::from(url.to_owned()).connect().await?;
    let operation = connected.begin().await?;
    if !status::budgets(&operation, Some(budget)).await?.is_empty() {
        admin::delete(&operation, budget).await?;
    }
    Ok(operation.commit().await?)
}

fn refused(error: AcquireError) -> CommandError {
    CommandError::failed(format!("an acquire of the bench was refused: {error}"))
}

impl Figures {
    fn in_words(&self) -> String {
        let head = ["lanes", "tasks", "grants/s", "grants a call", "batch p50"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for many in &self.many {
            rows.push(vec![
                many.lanes.to_string(),
                many.tasks.to_string(),
                format!("{:.0}", many.grants_per_s),
                format!("{:.1}", many.grants_per_store_call),
                format!("{:.0} us", many.batch_p50_us),
            ]);
        }
        let settings = self.settings.iter().map(|(name, value)| format!("{name} {value}"));
        format!(
            "one caller: acquire p50 {:.0} us, bare UPDATE p50 {:.0} us, ratio {:.2}\n\n{}\n\n\
             PostgreSQL: {}",
            self.acquire_p50_us,
            self.raw_p50_us,
            self.ratio,
            output::table(&rows),
            settings.collect::<Vec<_>>().join(", ")
        )
    }
}
