//! `POST /v1/calls`, and what came of them: callers in any language share the breakers of this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::House;
use super::acquire::{Entered, Leave, check_cost, check_name, max_wait, one, unless_stopped};
use super::json::{Json, Named, ms};
use super::problem::Problem;
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;
use crate::policy::verdict::{Broken, Finding, Verdict};
use crate::store::PostgresStore;
use crate::{CallOptions, Credential, Guarded, Told};

/// A call that nobody settles for so long is lost.
const LOST_AFTER: Duration = Duration::from_secs(60);
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Calls that may be out at once.
const MOST_OPEN: usize = 10_000;

type Call = Guarded<SystemClock, PostgresStore>;

/// The calls that are out, by their id.
#[derive(Default)]
pub(super) struct OpenCalls {
    open: Mutex<HashMap<u128, Open>>,
    lost: AtomicU64,
    settled: Notify,
}

struct Open {
    call: Call,
    lost_at: Instant,
}

impl OpenCalls {
    pub fn count(&self) -> usize {
        self.open().len()
    }

    fn is_full(&self) -> bool {
        self.count() >= MOST_OPEN
    }

    fn keep(&self, call: Call) -> String {
        let id = fastrand::u128(..);
        self.open().insert(id, Open { call, lost_at: SystemClock.now() + LOST_AFTER });
        format!("{id:032x}")
    }

    /// Nobody else gets it from now on.
    fn take(&self, id: &str) -> Option<Call> {
        // Only as it was given out: other ways to write the number are other names.
        let number = u128::from_str_radix(id, 16).ok().filter(|number| format!("{number:032x}") == id)?;
        let open = self.open().remove(&number)?;
        self.settled.notify_waiters();
        (SystemClock.now() < open.lost_at).then_some(open.call)
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

    /// Completes when no call is out any longer, or at the deadline.
    pub async fn until_settled(&self, deadline: Instant) {
        loop {
            let settled = self.settled.notified();
            if self.count() == 0 || SystemClock.until(deadline, settled).await.is_none() {
                return;
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u128, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    cost: u32,
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
    check_cost(wanted.cost)?;
    check_name("surface", &wanted.surface)?;
    if let Some(class) = &wanted.class {
        check_name("class", class)?;
    }
    if let Some(credential) = &wanted.credential {
        check_name("credential", credential)?;
    }
    if house.calls.is_full() {
        return Err(Problem::busy(format!("{MOST_OPEN} calls are out and not settled")));
    }
    let credential = Credential::new(wanted.credential.as_deref().unwrap_or_default());
    let credential = credential.revision(wanted.revision.unwrap_or_default());
    let options = CallOptions {
        class: wanted.class.map(Into::into),
        cost: wanted.cost,
        max_wait: max_wait(wanted.max_wait_ms)?,
        idempotent: None,
    };
    let _waiting = house.waits();
    let call = unless_stopped(&house, house.budgets.guard(&wanted.surface, &credential, options)).await??;
    let attempt_timeout_ms = ms(call.attempt_timeout());
    let (nonce, closes_at) = (call.nonce(), call.closes_at());
    let id = house.calls.keep(call);
    Ok(Json(Begun { id, leave: Leave::new(entered, nonce, closes_at), attempt_timeout_ms }))
}

/// What the caller has seen of it.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "either status (100 to 599, with code, text, retry_after_ms) or error; elapsed_ms with both"
)]
pub(super) enum Outcome {
    Answer(AnswerSeen),
    Broken(BrokenSeen),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerSeen {
    status: u16,
    code: Option<String>,
    text: Option<String>,
    retry_after_ms: Option<u64>,
    elapsed_ms: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BrokenSeen {
    error: How,
    elapsed_ms: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum How {
    NotConnected,
    Interrupted,
    TimedOut,
    NotSent,
}

/// What the vendor's table makes of it.
#[derive(Serialize)]
pub(super) struct Settled {
    verdict: &'static str,
    code: Option<String>,
    meaning: String,
    throttled: bool,
    outcome_unknown: bool,
    never_again: bool,
    no_data: bool,
}

pub(super) async fn settle(
    State(house): State<Arc<House>>,
    Named(id): Named,
    Json(outcome): Json<Outcome>,
) -> Result<Json<Settled>, Problem> {
    // Before the call is taken: a slip can be mended.
    let elapsed = outcome.elapsed()?;
    outcome.check()?;
    let Some(call) = house.calls.take(&id) else {
        return Err(Problem::unknown(
            "CALL_BUDGET_UNKNOWN_CALL",
            "no such call is out here: it was settled or lost (60 s), or another service began it",
        ));
    };
    let told = match &outcome {
        Outcome::Answer(seen) => Told::Answer {
            status: seen.status,
            code: seen.code.as_deref(),
            text: seen.text.as_deref(),
            retry_after: seen.retry_after_ms.map(Duration::from_millis),
        },
        Outcome::Broken(BrokenSeen { error, .. }) => Told::Broken(match error {
            How::NotConnected => Broken::NotConnected,
            How::Interrupted => Broken::Interrupted,
            How::TimedOut => Broken::TimedOut,
            How::NotSent => {
                call.not_sent();
                return Ok(Json(Settled::not_sent()));
            }
        }),
    };
    Ok(Json(call.settle(told, elapsed).into()))
}

impl Outcome {
    fn elapsed(&self) -> Result<Option<Duration>, Problem> {
        let (Outcome::Answer(AnswerSeen { elapsed_ms, .. }) | Outcome::Broken(BrokenSeen { elapsed_ms, .. })) = self;
        let duration = |ms: f64| Duration::try_from_secs_f64(ms / 1000.0);
        elapsed_ms
            .map(duration)
            .transpose()
            .map_err(|_| Problem::bad_request("elapsed_ms is a number of milliseconds, not below 0"))
    }

    fn check(&self) -> Result<(), Problem> {
        match self {
            Outcome::Answer(seen) if !(100..=599).contains(&seen.status) => {
                Err(Problem::bad_request(format!("status is {}: it lies between 100 and 599", seen.status)))
            }
            _ => Ok(()),
        }
    }
}

impl Settled {
    fn not_sent() -> Self {
        Self {
            verdict: word(Verdict::None),
            code: None,
            meaning: "It was not sent: nothing was seen of the vendor, and the slot is spent.".into(),
            throttled: false,
            outcome_unknown: false,
            never_again: false,
            no_data: false,
        }
    }
}

impl From<Finding> for Settled {
    fn from(finding: Finding) -> Self {
        let Finding { verdict, code, throttled, outcome_unknown, never_again, no_data, meaning, .. } = finding;
        let (code, meaning) = (code.map(|code| code.to_string()), meaning.to_string());
        Self { verdict: word(verdict), code, meaning, throttled, outcome_unknown, never_again, no_data }
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Bad => "bad",
        Verdict::None => "none",
    }
}
