//! What the store shows, read for everybody who looks: a reading at a time, however many there are, and none more often
//! than is worth looking at.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex as AsyncMutex;

use super::House;
use super::problem::Problem;
use crate::clock::{Clock, SystemClock};
use crate::config::Connection;
use crate::policy::Instant;
use crate::store::direct::Direct;
use crate::store::operation::{Operation, OperationError};
use crate::store::report::Report;
use crate::store::{CONTRACT, admin, status};

/// A reading of this age is as good as a new one.
const FRESH: Duration = Duration::from_millis(700);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// One reading, connecting too. Whoever looks waits no longer.
const READ_WITHIN: Duration = Duration::from_secs(3);
/// A session through which nobody has looked for so long is closed, where nobody has to look.
const UNUSED_FOR: Duration = Duration::from_secs(10);
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
    pub problem: Option<Problem>,
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

    /// Nothing stale passes as true now: somebody else's reading goes on, and this is what was before.
    fn unless_stale(mut self) -> Self {
        if self.problem.is_none() && self.age().is_none_or(|age| age > READ_WITHIN) {
            self.problem = Some(silent());
        }
        self
    }

    pub fn is_reachable(&self) -> bool {
        self.problem.is_none() && self.report.is_some()
    }

    /// Why it cannot be seen now: a sentence.
    pub fn why(&self) -> Option<String> {
        self.problem.as_ref().map(|problem| problem.detail().to_owned())
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
            return self.known().unless_stale();
        };
        // Somebody else may have read it meanwhile.
        if let Some(seen) = self.fresh() {
            return seen;
        }
        let read = SystemClock.until(deadline, self.read(&mut session)).await;
        let read = read.unwrap_or_else(|| Err(silent()));
        if read.is_err() {
            // In doubt: the next reading begins with a new one.
            *session = None;
        }
        self.note(read)
    }

    async fn close_unused(&self) {
        let mut session = self.session.lock().await;
        let tried_at = self.seen().tried_at;
        if tried_at.is_some_and(|tried_at| SystemClock.now().saturating_since(tried_at) >= UNUSED_FOR) {
            *session = None;
        }
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

    async fn read(&self, session: &mut Option<Direct>) -> Result<Report, Problem> {
        let Some(store) = &self.store else {
            return Err(Problem::store_unavailable("no setting says where the store is: there is nothing to see"));
        };
        let open = match session {
            Some(open) => open,
            None => session.insert(Direct::connect(store.clone()).await?),
        };
        let refused = |error: OperationError| Problem::of_operation(&error, "client");
        let operation = Operation::begin(open.client()).await.map_err(refused)?;
        check_contract(admin::contract(&operation).await.map_err(refused)?)?;
        let budgets = status::budgets(&operation, None).await.map_err(refused)?;
        let report = Report::of(&operation, budgets).await.map_err(refused)?;
        operation.commit().await.map_err(refused)?;
        Ok(report)
    }

    fn note(&self, read: Result<Report, Problem>) -> Seen {
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
                if seen.problem.take().is_some() {
                    tracing::info!("call_budget_status_readable");
                }
                (seen.report, seen.read_at) = (Some(Arc::new(report)), Some(now));
            }
            Err(problem) => {
                // Once for as long as it lasts; that there is no store is no news.
                if seen.problem.is_none() && self.store.is_some() {
                    let error = problem.detail();
                    tracing::warn!(error, "call_budget_status_unreadable");
                }
                seen.problem = Some(problem);
            }
        }
        seen.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn silent() -> Problem {
    Problem::store_unavailable(format!("the store did not answer within {} s", READ_WITHIN.as_secs()))
}

/// Nothing is read or written in a schema that means something else by the same names.
pub(super) fn check_contract(contract: i32) -> Result<(), Problem> {
    let way_out = match contract.cmp(&CONTRACT) {
        Ordering::Equal => return Ok(()),
        Ordering::Less => "run \"call-budget migrate\"",
        Ordering::Greater => "use a newer call-budget",
    };
    let detail = format!("the schema speaks contract {contract}, this service speaks {CONTRACT}: {way_out}");
    Err(Problem::misconfigured(detail))
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

/// Closes the session that nobody looks through any longer, for as long as it runs: while the switch is off, the store is
/// left alone.
pub(super) async fn leave_alone(house: Arc<House>) {
    loop {
        tokio::time::sleep(SAMPLE_EVERY).await;
        house.lookout.close_unused().await;
    }
}

/// Looks once a second for as long as it runs, so that who comes later sees what was before.
pub(super) async fn sample(house: Arc<House>) {
    loop {
        house.lookout.look().await;
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_stale_never_passes_as_true_now() {
        let lookout = Lookout::new(None);
        // Somebody else's reading goes on.
        let _reading = lookout.session.lock().await;
        assert!(lookout.look().await.why().is_some_and(|why| why.contains("3 s")));
        let just_read = Seen { read_at: Some(SystemClock.now()), ..Seen::default() };
        assert_eq!(just_read.unless_stale().why(), None);
    }
}
