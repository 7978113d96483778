//! `POST /v1/acquire`: a slot for a caller in any language, on the caller's own clock.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::House;
use super::json::{Json, ms};
use super::problem::Problem;
use crate::Options;
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;

/// When the head of the request was here.
#[derive(Clone, Copy)]
pub(super) struct Entered(pub Instant);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    budget: String,
    class: String,
    #[serde(default = "one")]
    cost: u64,
    max_wait_ms: Option<u64>,
}

/// Leave to send, from now until `held_ms` + `remaining_ms` after the caller began to ask.
#[derive(Serialize)]
pub(super) struct Leave {
    governed: bool,
    nonce: Option<String>,
    held_ms: f64,
    remaining_ms: Option<f64>,
}

impl Leave {
    /// Counted from when the request was here: that is after the caller looked at its clock, so that it stops sending
    /// before its window closes, by as long as the request was under way.
    pub fn new(entered: Entered, nonce: Option<u64>, closes_at: Option<Instant>) -> Self {
        let now = SystemClock.now();
        Self {
            governed: nonce.is_some(),
            nonce: nonce.map(|nonce| nonce.to_string()),
            held_ms: ms(now.saturating_since(entered.0)),
            remaining_ms: closes_at.map(|closes_at| ms(closes_at.saturating_since(now))),
        }
    }
}

pub(super) async fn acquire(
    State(house): State<Arc<House>>,
    Extension(entered): Extension<Entered>,
    Json(wanted): Json<Wanted>,
) -> Result<Json<Leave>, Problem> {
    let Wanted { budget, class, cost: units, max_wait_ms } = wanted;
    check_name("budget", &budget)?;
    check_name("class", &class)?;
    let cost = cost(units)?;
    let deadline = SystemClock.now() + max_wait(max_wait_ms)?.unwrap_or(house.budgets.max_wait());
    let _waiting = house.waits()?;
    loop {
        let options = Options { cost, max_wait: Some(deadline.saturating_since(SystemClock.now())) };
        let permit = unless_stopped(&house, house.budgets.acquire_with(&budget, &class, options)).await??;
        let (nonce, closes_at) = (permit.nonce(), permit.closes_at());
        // It is the caller's from here: what becomes of it is not ours to see. On a busy machine its window may close just
        // now: no reason to refuse somebody who would wait.
        if permit.start().is_ok() {
            return Ok(Json(Leave::new(entered, nonce, closes_at)));
        }
    }
}

/// What `work` comes to, or a problem where the service is told to stop before.
pub(super) async fn unless_stopped<T>(house: &House, work: impl Future<Output = T>) -> Result<T, Problem> {
    tokio::select! {
        biased;
        () = house.stopped() => Err(Problem::stopping()),
        done = work => Ok(done),
    }
}

pub(super) fn cost(units: u64) -> Result<u32, Problem> {
    const HIGHEST: u32 = i32::MAX.unsigned_abs();
    match u32::try_from(units) {
        Ok(cost @ 1..=HIGHEST) => Ok(cost),
        _ => Err(Problem::bad_request(format!("cost is {units}: it is at least 1, and at most the budget's max_cost"))),
    }
}

/// As the schema has it for names: what cannot be one is not looked for.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), Problem> {
    const LONGEST: usize = 100;
    if (1..=LONGEST).contains(&name.chars().count()) && !name.contains(char::is_control) {
        Ok(())
    } else {
        Err(Problem::bad_request(format!(
            "{what} is a name of 1 to {LONGEST} characters, none of them a control character"
        )))
    }
}

pub(super) fn max_wait(ms: Option<u64>) -> Result<Option<Duration>, Problem> {
    const LONGEST_MS: u64 = 86_400_000;
    match ms {
        Some(ms) if ms > LONGEST_MS => {
            Err(Problem::bad_request(format!("max_wait_ms is {ms}: it is at most {LONGEST_MS}, a day")))
        }
        ms => Ok(ms.map(Duration::from_millis)),
    }
}

pub(super) const fn one() -> u64 {
    1
}
