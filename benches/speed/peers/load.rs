//! One caller after the other, or many at once, and how long each of them waited for its grant.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::redis::Redis;
use crate::Outcome;
use crate::ground::{Ground, Spent};
use crate::measure::Took;

/// How often it is looked whether everybody has been served.
const LOOK: Duration = Duration::from_millis(10);

/// Whoever gives grants.
pub trait Caller: Send + Sync + 'static {
    /// Waits for one grant for the task of this number, under the key of this number. Both count from 0.
    fn grant(&self, task: usize, key: usize) -> impl Future<Output = Outcome<()>> + Send;
}

/// Whose CPU and log are read.
#[derive(Clone, Copy)]
pub enum Meter<'a> {
    Postgres(&'a Ground),
    Redis(&'a Redis),
}

/// One run of one subject.
pub struct Sample {
    pub grants: usize,
    pub seconds: f64,
    /// From a task's asking until its grant.
    pub waits: Took,
    /// Tasks that the run was too short for. Their waits count for as long as they have lasted: percentiles are then bounds
    /// from below.
    pub never_served: usize,
    pub cpu: Duration,
    pub log_bytes: u64,
}

/// How many ask, under how many keys, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub tasks: usize,
    pub keys: usize,
    pub least: Duration,
    /// Where somebody has not been served yet, it lasts longer, but no longer than this.
    pub most: Duration,
}

impl Meter<'_> {
    pub async fn spent(self) -> Outcome<Spent> {
        match self {
            Self::Postgres(ground) => ground.spent().await,
            Self::Redis(redis) => redis.spent().await,
        }
    }
}

/// One caller, who asks again once it has been served, under one key after the other.
pub async fn one<C: Caller>(caller: &C, meter: Meter<'_>, keys: usize, time: Duration) -> Outcome<Sample> {
    let before = meter.spent().await?;
    let begin = Instant::now();
    let mut waits = Took::default();
    let mut asked = begin;
    for turn in 0.. {
        caller.grant(0, turn % keys).await?;
        let granted = Instant::now();
        waits.add(granted - asked);
        asked = granted;
        if granted - begin >= time {
            break;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let after = meter.spent().await?;
    Ok(Sample::new(waits, seconds, 0, before, after))
}

/// All ask at once, and each again as soon as it has been served.
pub async fn many<C: Caller>(caller: &Arc<C>, meter: Meter<'_>, load: Load) -> Outcome<Sample> {
    let (start, started) = watch::channel(false);
    let unserved = Arc::new(AtomicUsize::new(load.tasks));
    let mut tasks = JoinSet::new();
    let mut logs = Vec::new();
    for task in 0..load.tasks {
        let log = Arc::<Mutex<Log>>::default();
        logs.push(Arc::clone(&log));
        let asking = Asking { task, key: task / 2 % load.keys, log, unserved: Arc::clone(&unserved) };
        tasks.spawn(asking.ask_again(Arc::clone(caller), started.clone()));
    }
    let before = meter.spent().await?;
    let begin = Instant::now();
    start.send_replace(true);
    tokio::time::sleep(load.least).await;
    while unserved.load(Ordering::Relaxed) > 0 && begin.elapsed() < load.most {
        tokio::time::sleep(LOOK).await;
    }
    let after = meter.spent().await?;
    let end = Instant::now();
    // None ends by itself but by an error. What is aborted leaves its statement behind: later errors mean nothing.
    if let Some(ended) = tasks.try_join_next() {
        ended??;
    }
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}

    let never_served = logs.iter().filter(|log| Log::of(log).first_after(end)).count();
    let mut waits = Took::default();
    let mut grants = 0;
    for log in &logs {
        let log = Log::of(log);
        for &(asked, granted) in log.served.iter().filter(|(_, granted)| *granted <= end) {
            waits.add(granted - asked);
            grants += 1;
        }
        if never_served > 0
            && let Some(asked) = log.asking_at(end)
        {
            waits.add(end - asked);
        }
    }
    let seconds = (end - begin).as_secs_f64();
    Ok(Sample { grants, ..Sample::new(waits, seconds, never_served, before, after) })
}

/// What one task saw.
#[derive(Default)]
struct Log {
    /// When it asked, while it waits.
    asked: Option<Instant>,
    /// When it asked and when it was served, each time.
    served: Vec<(Instant, Instant)>,
}

impl Log {
    /// Nobody else has it but at the end.
    fn of(log: &Mutex<Self>) -> MutexGuard<'_, Self> {
        log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first_after(&self, end: Instant) -> bool {
        self.served.first().is_none_or(|(_, granted)| *granted > end)
    }

    fn asking_at(&self, end: Instant) -> Option<Instant> {
        let late = self.served.iter().find(|(_, granted)| *granted > end).map(|(asked, _)| *asked);
        late.or(self.asked).filter(|asked| *asked <= end)
    }
}

struct Asking {
    task: usize,
    key: usize,
    log: Arc<Mutex<Log>>,
    unserved: Arc<AtomicUsize>,
}

impl Asking {
    async fn ask_again<C: Caller>(self, caller: Arc<C>, mut started: watch::Receiver<bool>) -> Outcome<()> {
        started.wait_for(|started| *started).await?;
        loop {
            let asked = Instant::now();
            Log::of(&self.log).asked = Some(asked);
            caller.grant(self.task, self.key).await?;
            let mut log = Log::of(&self.log);
            if log.served.is_empty() {
                self.unserved.fetch_sub(1, Ordering::Relaxed);
            }
            log.served.push((asked, Instant::now()));
            log.asked = None;
        }
    }
}

impl Sample {
    pub fn new(waits: Took, seconds: f64, never_served: usize, before: Spent, after: Spent) -> Self {
        Self {
            grants: waits.count(),
            seconds,
            waits,
            never_served,
            cpu: after.cpu.saturating_sub(before.cpu),
            log_bytes: after.wal_bytes.saturating_sub(before.wal_bytes),
        }
    }
}
