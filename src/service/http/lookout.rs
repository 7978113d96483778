//! What the store shows, read for everybody who looks: a reading at a time, however many there are, and none more often
//! than is worth looking at.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex as AsyncMutex;

use super::House;
use crate::clock::{Clock, SystemClock};
use crate::config::Connection;
use crate::policy::Instant;
use crate::store::direct::Direct;
use crate::store::operation::Operation;
use crate::store::report::Report;
use crate::store::{CONTRACT, admin, status};

/// A reading of this age is as good as a new one.
const FRESH: Duration = Duration::from_millis(700);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// One reading, connecting too. Whoever looks waits no longer.
const READ_WITHIN: Duration = Duration::from_secs(3);
/// Samples that are kept, and what lies between two at least.
const SAMPLES: usize = 120;

pub(super) struct Lookout {
    store: Option<Connection>,
    session: AsyncMutex<Option<Direct>>,
    seen: Mutex<Seen>,
}

/// What was seen last, and whether it can be seen now.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub report: Option<Arc<Report>>,
    /// When the report was read.
    read_at: Option<Instant>,
    tried_at: Option<Instant>,
    /// Why the last try brought nothing.
    pub why: Option<String>,
    pub samples: Arc<VecDeque<Sample>>,
}

/// How much each class had been granted at a moment.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    pub unix_ms: i64,
    pub granted: BTreeMap<String, BTreeMap<String, i64>>,
}

impl Seen {
    /// How old the report is.
    pub fn age(&self) -> Option<Duration> {
        self.read_at.map(|read_at| SystemClock.now().saturating_since(read_at))
    }

    pub fn is_reachable(&self) -> bool {
        self.why.is_none() && self.report.is_some()
    }
}

impl Lookout {
    pub fn new(store: Option<Connection>) -> Self {
        Self { store, session: AsyncMutex::new(None), seen: Mutex::default() }
    }

    /// What there is to see, read now where what is known is not fresh. Takes 3 s at most.
    pub async fn look(&self) -> Seen {
        let deadline = SystemClock.now() + READ_WITHIN;
        if let Some(seen) = self.fresh() {
            return seen;
        }
        let Some(mut session) = SystemClock.until(deadline, self.session.lock()).await else {
            return self.known();
        };
        // Somebody else may have read it meanwhile.
        if let Some(seen) = self.fresh() {
            return seen;
        }
        let read = SystemClock.until(deadline, self.read(&mut session)).await;
        let read = read.unwrap_or_else(|| Err(format!("the store did not answer within {} s", READ_WITHIN.as_secs())));
        if read.is_err() {
            // In doubt: the next reading begins with a new one.
            *session = None;
        }
        self.note(read)
    }

    /// What was seen last, as old as it is.
    pub fn known(&self) -> Seen {
        self.seen().clone()
    }

    fn fresh(&self) -> Option<Seen> {
        let seen = self.seen();
        let fresh = seen.tried_at.is_some_and(|tried_at| SystemClock.now().saturating_since(tried_at) < FRESH);
        fresh.then(|| seen.clone())
    }

    async fn read(&self, session: &mut Option<Direct>) -> Result<Report, String> {
        let Some(store) = &self.store else {
            return Err("no setting says where the store is: there is nothing to see".to_owned());
        };
        if session.is_none() {
            *session = Some(Direct::connect(store.clone()).await.map_err(|error| error.to_string())?);
        }
        let Some(open) = session else { return Err("no session".to_owned()) };
        let operation = Operation::begin(open.client()).await.map_err(|error| error.to_string())?;
        let contract = admin::contract(&operation).await.map_err(|error| error.to_string())?;
        if contract != CONTRACT {
            return Err(format!("the schema speaks contract {contract}, this service speaks {CONTRACT}"));
        }
        let budgets = status::budgets(&operation, None).await.map_err(|error| error.to_string())?;
        let report = Report::of(&operation, budgets).await.map_err(|error| error.to_string())?;
        operation.commit().await.map_err(|error| error.to_string())?;
        Ok(report)
    }

    fn note(&self, read: Result<Report, String>) -> Seen {
        let now = SystemClock.now();
        let mut seen = self.seen();
        seen.tried_at = Some(now);
        match read {
            Ok(report) => {
                let samples = Arc::make_mut(&mut seen.samples);
                samples.push_back(Sample::of(&report));
                while samples.len() > SAMPLES {
                    samples.pop_front();
                }
                (seen.report, seen.read_at, seen.why) = (Some(Arc::new(report)), Some(now), None);
            }
            Err(why) => seen.why = Some(why),
        }
        seen.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sample {
    fn of(report: &Report) -> Self {
        let classes = report.budgets.iter().map(|view| {
            let granted = view.classes.iter().map(|view| (view.class.name.clone(), view.class.granted)).collect();
            (view.budget.name.clone(), granted)
        });
        Self { unix_ms: SystemClock.wall().unix_us() / 1000, granted: classes.collect() }
    }
}

/// Looks once a second for as long as it runs, so that who comes later sees what was before.
pub(super) async fn sample(house: Arc<House>) {
    loop {
        house.lookout.look().await;
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
}
