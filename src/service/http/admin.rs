//! `POST /v1/admin/...`: what operators order, behind the admin token.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde::Deserialize;

use super::House;
use super::json::Json;
use super::limits::check_name;
use super::looking::unknown_budget;
use super::lookout::check_contract;
use super::problem::Problem;
use super::status::{BreakerHere, breakers_here};
use crate::store::direct::Direct;
use crate::store::operation::Operation;
use crate::store::report::View;
use crate::store::{admin, status};

const LONGEST_PUSHBACK_MS: u64 = 3_600_000;
const LONGEST_ORDER_MS: u64 = 86_400_000;
/// Reasons are for people to read.
const LONGEST_REASON: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pause {
    budget: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneBudget {
    budget: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pushback {
    budget: String,
    duration_ms: u64,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByHand {
    breaker: String,
    order: Order,
    who: String,
    why: String,
    for_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    ForceOpen,
    Bypass,
    Observe,
    Reset,
}

pub(super) async fn pause(State(house): State<Arc<House>>, Json(order): Json<Pause>) -> Result<Json<View>, Problem> {
    let Pause { budget, reason } = order;
    check_reason("reason", reason.as_deref())?;
    let view = change(&house, &budget, async |operation: &Operation<'_>| {
        admin::pause(operation, &budget, reason.as_deref()).await
    });
    let view = view.await?;
    tracing::warn!(budget, reason, "call_budget_paused");
    Ok(Json(view))
}

pub(super) async fn resume(
    State(house): State<Arc<House>>,
    Json(order): Json<OneBudget>,
) -> Result<Json<View>, Problem> {
    let OneBudget { budget } = order;
    let view =
        change(&house, &budget, async |operation: &Operation<'_>| admin::resume(operation, &budget).await).await?;
    tracing::warn!(budget, "call_budget_resumed");
    Ok(Json(view))
}

pub(super) async fn pushback(
    State(house): State<Arc<House>>,
    Json(order): Json<Pushback>,
) -> Result<Json<View>, Problem> {
    let Pushback { budget, duration_ms, reason } = order;
    check_reason("reason", reason.as_deref())?;
    if !(1..=LONGEST_PUSHBACK_MS).contains(&duration_ms) {
        return Err(Problem::bad_request(format!(
            "duration_ms is {duration_ms}: it lies between 1 and {LONGEST_PUSHBACK_MS}, an hour"
        )));
    }
    let view = change(&house, &budget, async |operation: &Operation<'_>| {
        let duration_us = i64::try_from(duration_ms * 1000).unwrap_or(i64::MAX);
        admin::pushback(operation, &budget, duration_us, reason.as_deref()).await.map(drop)
    });
    let view = view.await?;
    tracing::warn!(budget, duration_ms, reason, "call_budget_pushed_back");
    Ok(Json(view))
}

pub(super) async fn fence(
    State(house): State<Arc<House>>,
    Json(order): Json<OneBudget>,
) -> Result<Json<View>, Problem> {
    let OneBudget { budget } = order;
    let view =
        change(&house, &budget, async |operation: &Operation<'_>| admin::fence(operation, &budget).await.map(drop));
    let view = view.await?;
    tracing::warn!(budget, "call_budget_fenced_by_hand");
    Ok(Json(view))
}

pub(super) async fn breaker(
    State(house): State<Arc<House>>,
    Json(by_hand): Json<ByHand>,
) -> Result<Json<BreakerHere>, Problem> {
    let ByHand { breaker: name, order, who, why, for_ms } = by_hand;
    for (what, text) in [("who", &who), ("why", &why)] {
        check_reason(what, Some(text))?;
        if text.trim().is_empty() {
            return Err(Problem::bad_request(format!("{what} is empty: whoever looks at the breaker wants to know")));
        }
    }
    if for_ms.is_some_and(|ms| !(1..=LONGEST_ORDER_MS).contains(&ms)) {
        return Err(Problem::bad_request(format!("for_ms lies between 1 and {LONGEST_ORDER_MS}, a day")));
    }
    if for_ms.is_some() && matches!(order, Order::Reset) {
        return Err(Problem::bad_request("for_ms does not go with reset: it holds until something else happens"));
    }
    let unknown = || {
        let detail = format!("this service has no breaker {name:?}: GET /v1/breakers lists them under \"here\"");
        Problem::unknown("CALL_BUDGET_UNKNOWN_BREAKER", detail)
    };
    // A breaker is asked for by one of its surfaces.
    let reports = house.budgets.breakers();
    let surfaces = reports.iter().find(|report| *report.name == *name).map(|report| report.surfaces.clone());
    let surface = surfaces.and_then(|surfaces| surfaces.into_iter().next()).ok_or_else(unknown)?;
    let breaker = house.budgets.breaker(&surface).ok_or_else(unknown)?;
    let until = for_ms.map(Duration::from_millis);
    match order {
        Order::ForceOpen => breaker.force_open(&who, &why, until),
        Order::Bypass => breaker.bypass(&who, &why, until),
        Order::Observe => breaker.observe(&who, &why, until),
        Order::Reset => breaker.reset(&who, &why),
    }
    breakers_here(&house).into_iter().find(|here| here.breaker == name).map(Json).ok_or_else(unknown)
}

/// Does it in one transaction, and shows the budget as it is then.
async fn change(
    house: &House,
    budget: &str,
    order: impl AsyncFnOnce(&Operation<'_>) -> Result<(), crate::store::operation::OperationError>,
) -> Result<View, Problem> {
    check_name("budget", budget)?;
    let Some(store) = house.store.clone() else {
        return Err(Problem::store_unavailable("no setting says where the store is: there is nothing to change"));
    };
    let mut session = Direct::connect(store).await?;
    let operation = Operation::begin(session.client()).await?;
    check_contract(admin::contract(&operation).await?)?;
    if status::budgets(&operation, Some(budget)).await?.is_empty() {
        return Err(unknown_budget(budget));
    }
    order(&operation).await?;
    let now = status::budgets(&operation, Some(budget)).await?;
    let view = match now.into_iter().next() {
        Some(budget) => View::of(&operation, budget).await?,
        None => return Err(unknown_budget(budget)),
    };
    operation.commit().await?;
    Ok(view)
}

fn check_reason(what: &str, reason: Option<&str>) -> Result<(), Problem> {
    let wrong = |text: &str| text.chars().count() > LONGEST_REASON || text.contains(char::is_control);
    match reason {
        Some(text) if wrong(text) => Err(Problem::bad_request(format!(
            "{what} has at most {LONGEST_REASON} characters, none of them a control character"
        ))),
        _ => Ok(()),
    }
}
