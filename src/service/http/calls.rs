//! `POST /v1/calls`, and what came of them: callers in any language share the breakers of this process.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::House;
use super::json::{InPath, Json, ms};
use super::leave::{Entered, Leave};
use super::limits::{check_name, cost, max_wait, one};
use super::outcome::{Said, Settled};
use super::problem::Problem;
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;
use crate::store::PostgresStore;
use crate::{CallOptions, Credential, Guarded};

/// A call that nobody settles for so long is lost.
const LOST_AFTER: Duration = Duration::from_secs(60);
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Calls that may be out at once.
const MOST_OPEN: usize = 10_000;

type Call = Guarded<SystemClock, PostgresStore>;

/// The calls that are out, by their id.
pub(super) struct OpenCalls {
    lost_after: Duration,
    open: Mutex<HashMap<u128, Open>>,
    lost: AtomicU64,
    /// Callers that are about to get one.
    beginning: AtomicUsize,
    settled: Notify,
}

/// Counts until it is dropped.
struct Beginning<'a>(&'a OpenCalls);

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.0.beginning.fetch_sub(1, Ordering::AcqRel);
        self.0.settled.notify_waiters();
    }
}

struct Open {
    call: Call,
    lost_at: Instant,
}

impl Default for OpenCalls {
    fn default() -> Self {
        Self::lost_after(LOST_AFTER)
    }
}

impl OpenCalls {
    fn lost_after(lost_after: Duration) -> Self {
        Self {
            lost_after,
            open: Mutex::default(),
            lost: AtomicU64::new(0),
            beginning: AtomicUsize::new(0),
            settled: Notify::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.open().len()
    }

    fn is_full(&self) -> bool {
        self.count() >= MOST_OPEN
    }

    /// Calls of which nobody had news in time, since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn begins(&self) -> Beginning<'_> {
        self.beginning.fetch_add(1, Ordering::AcqRel);
        Beginning(self)
    }

    /// The id under which it can be settled; none where others have taken the last place meanwhile, and it is given up.
    fn keep(&self, call: Call) -> Option<String> {
        let mut open = self.open();
        if open.len() >= MOST_OPEN {
            drop(open);
            call.not_sent();
            return None;
        }
        let id = unguessable();
        open.insert(id, Open { call, lost_at: SystemClock.now() + self.lost_after });
        Some(format!("{id:032x}"))
    }

    /// Nobody else gets it from now on.
    fn take(&self, id: &str) -> Option<Call> {
        // Only as it was given out: other ways to write the number are other names.
        let number = u128::from_str_radix(id, 16).ok().filter(|number| format!("{number:032x}") == id)?;
        let open = self.open().remove(&number)?;
        self.settled.notify_waiters();
        if SystemClock.now() < open.lost_at {
            return Some(open.call);
        }
        // The sweep was about to come.
        self.lost.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn give_up_lost(&self) {
        let now = SystemClock.now();
        let lost: Vec<Open> = self.open().extract_if(|_, open| open.lost_at <= now).map(|(_, open)| open).collect();
        if !lost.is_empty() {
            self.lost.fetch_add(lost.len() as u64, Ordering::Relaxed);
            tracing::warn!(calls = lost.len(), "call_budget_calls_lost");
            self.settled.notify_waiters();
        }
    }

    /// Completes when no call is out any longer and none is about to be, or at the deadline.
    pub async fn until_settled(&self, deadline: Instant) {
        loop {
            let settled = self.settled.notified();
            let beginning = self.beginning.load(Ordering::Acquire);
            if (beginning == 0 && self.count() == 0) || SystemClock.until(deadline, settled).await.is_none() {
                return;
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u128, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From the system's own randomness: who knows one id knows nothing of the next.
fn unguessable() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

/// Gives up the calls that nobody settled, for as long as it runs.
pub(super) async fn sweep(house: Arc<House>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        house.calls.give_up_lost();
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    surface: String,
    class: Option<String>,
    credential: Option<String>,
    revision: Option<u64>,
    #[serde(default = "one")]
    cost: u64,
    max_wait_ms: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct Begun {
    id: String,
    #[serde(flatten)]
    leave: Leave,
    attempt_timeout_ms: f64,
}

pub(super) async fn begin(
    State(house): State<Arc<House>>,
    Extension(entered): Extension<Entered>,
    Json(wanted): Json<Wanted>,
) -> Result<Json<Begun>, Problem> {
    let cost = cost(wanted.cost)?;
    check_name("surface", &wanted.surface)?;
    if let Some(class) = &wanted.class {
        check_name("class", class)?;
    }
    if let Some(credential) = &wanted.credential {
        check_name("credential", credential)?;
    }
    let full = || Problem::busy(format!("{MOST_OPEN} calls are out and not settled"));
    if house.calls.is_full() {
        return Err(full());
    }
    let credential = Credential::new(wanted.credential.as_deref().unwrap_or_default());
    let credential = credential.revision(wanted.revision.unwrap_or_default());
    let options = CallOptions {
        class: wanted.class.map(Into::into),
        cost,
        max_wait: max_wait(wanted.max_wait_ms)?,
        idempotent: None,
    };
    let _waiting = house.waits()?;
    let _beginning = house.calls.begins();
    let call = house.unless_stopped(house.budgets.guard(&wanted.surface, &credential, options)).await??;
    let attempt_timeout_ms = ms(call.attempt_timeout());
    let (nonce, closes_at) = (call.nonce(), call.closes_at());
    let id = house.calls.keep(call).ok_or_else(full)?;
    Ok(Json(Begun { id, leave: Leave::new(entered, nonce, closes_at), attempt_timeout_ms }))
}

pub(super) async fn settle(
    State(house): State<Arc<House>>,
    InPath(id): InPath,
    Json(said): Json<Said>,
) -> Result<Json<Settled>, Problem> {
    // Before the call is taken: a slip can be mended.
    let outcome = said.outcome()?;
    let Some(call) = house.calls.take(&id) else {
        return Err(Problem::unknown(
            "CALL_BUDGET_UNKNOWN_CALL",
            "no such call is out here: it was settled or lost (60 s), or another service began it",
        ));
    };
    Ok(Json(match outcome.told() {
        Some(told) => call.settle(told, outcome.elapsed).into(),
        None => {
            call.not_sent();
            Settled::not_sent()
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{CallBudget, CallError, Settings, Told};

    const SETTINGS: &str = r#"
        polite_interval = "0s"
        [breaker.quick]
        streak = 2
        schedule = ["10ms"]
        [surface."mine/prices"]
        budget = "mine"
        class = "batch"
        vendor = "http-shared-key"
        breaker = "quick"
        idempotent = true
    "#;

    fn budgets() -> CallBudget {
        CallBudget::new(&Settings::of_toml(SETTINGS, Path::new("")).unwrap()).unwrap()
    }

    async fn begun(budgets: &CallBudget) -> Result<Call, CallError> {
        budgets.guard("mine/prices", &Credential::default(), CallOptions::default()).await
    }

    #[tokio::test]
    async fn a_call_is_settled_once_and_only_by_its_very_id() {
        let (budgets, calls) = (budgets(), OpenCalls::default());
        let id = calls.keep(begun(&budgets).await.unwrap()).expect("there is room");
        for other in [id.to_uppercase() + " ", format!("+{id}"), format!("0{id}"), String::new(), id[1..].to_owned()] {
            assert!(calls.take(&other).is_none(), "{other}");
        }
        assert!(calls.take(&id).is_some());
        assert!(calls.take(&id).is_none());
    }

    #[tokio::test]
    async fn a_call_that_nobody_settles_is_lost_when_its_time_is_over_and_not_before() {
        let (budgets, calls) = (budgets(), OpenCalls::lost_after(Duration::from_millis(50)));
        let kept = SystemClock.now();
        let id = calls.keep(begun(&budgets).await.unwrap()).expect("there is room");
        calls.give_up_lost();
        let early = calls.count();
        assert!(early == 1 || SystemClock.now() >= kept + Duration::from_millis(50));
        SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(50)).await;
        // Before anybody sweeps, too.
        assert!(calls.take(&id).is_none());
        assert!(calls.keep(begun(&budgets).await.unwrap()).is_some());
        SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(50)).await;
        calls.give_up_lost();
        assert_eq!((calls.count(), calls.lost()), (0, 2));
    }

    #[tokio::test]
    async fn who_waits_for_the_last_call_waits_for_one_that_is_about_to_begin() {
        let (budgets, calls) = (budgets(), OpenCalls::default());
        let beginning = calls.begins();
        let soon = || SystemClock.now() + Duration::from_millis(50);
        let until_settled = calls.until_settled(SystemClock.now() + Duration::from_secs(60));
        let mut until_settled = std::pin::pin!(until_settled);
        assert!(SystemClock.until(soon(), &mut until_settled).await.is_none(), "it begins");
        let id = calls.keep(begun(&budgets).await.unwrap()).expect("there is room");
        drop(beginning);
        assert!(SystemClock.until(soon(), &mut until_settled).await.is_none(), "it is out");
        assert!(calls.take(&id).is_some());
        until_settled.await;
    }

    #[tokio::test]
    async fn a_probe_that_is_lost_gives_its_place_to_another() {
        let (budgets, calls) = (budgets(), OpenCalls::lost_after(Duration::ZERO));
        for _ in 0..2 {
            let call = begun(&budgets).await.unwrap();
            call.settle(Told::Broken(crate::policy::verdict::Broken::TimedOut), None);
        }
        assert!(matches!(begun(&budgets).await, Err(CallError::CircuitOpen { .. })));
        SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(20)).await;
        assert!(calls.keep(begun(&budgets).await.expect("a probe may go")).is_some());
        assert!(matches!(begun(&budgets).await, Err(CallError::CircuitOpen { .. })), "one probe at a time");
        calls.give_up_lost();
        assert_eq!(calls.count(), 0);
        // Its being lost is a failure like another: the breaker waits once more, and then lets the next one through.
        SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(20)).await;
        let next = begun(&budgets).await.expect("its place is free");
        next.settle(Told::Answer { status: 200, code: None, text: None, retry_after: None }, None);
        assert!(begun(&budgets).await.is_ok(), "a good probe closes it");
    }
}
