//! `POST /v1/acquire`: a slot for a caller in any language, on the caller's own clock.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use serde::Deserialize;

use super::House;
use super::json::Json;
use super::leave::{Entered, Leave};
use super::limits::{check_name, cost, max_wait, one};
use super::problem::Problem;
use crate::Options;
use crate::clock::{Clock, SystemClock};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    budget: String,
    class: String,
    #[serde(default = "one")]
    cost: u64,
    max_wait_ms: Option<u64>,
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
        let permit = house.unless_stopped(house.budgets.acquire_with(&budget, &class, options)).await??;
        let (nonce, closes_at) = (permit.nonce(), permit.closes_at());
        // It is the caller's from here: what becomes of it is not ours to see. On a busy machine its window may close just
        // now: no reason to refuse somebody who would wait.
        if permit.start().is_ok() {
            return Ok(Json(Leave::new(entered, nonce, closes_at)));
        }
    }
}
