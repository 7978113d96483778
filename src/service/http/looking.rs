//! `GET /v1/budgets`, `/v1/breakers`, `/v1/status`: what there is to see.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;

use super::House;
use super::json::{InPath, Json};
use super::lookout::Seen;
use super::problem::Problem;
use super::status::{BreakerHere, Status, breakers_here};
use crate::Code;
use crate::store::report::View;
use crate::store::status::Breaker;

#[derive(Serialize)]
pub(super) struct Budgets {
    budgets: Vec<View>,
}

#[derive(Serialize)]
pub(super) struct Breakers {
    here: Vec<BreakerHere>,
    fleet: Vec<Breaker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet_unseen: Option<String>,
}

pub(super) async fn budgets(State(house): State<Arc<House>>) -> Result<Json<Budgets>, Problem> {
    let seen = as_of_now(house.lookout.look().await)?;
    Ok(Json(Budgets { budgets: seen }))
}

pub(super) async fn budget(State(house): State<Arc<House>>, InPath(name): InPath) -> Result<Json<View>, Problem> {
    let budgets = as_of_now(house.lookout.look().await)?;
    let found = budgets.into_iter().find(|view| view.budget.name == name);
    found.map(Json).ok_or_else(|| unknown_budget(&name))
}

pub(super) async fn breakers(State(house): State<Arc<House>>) -> Json<Breakers> {
    let seen = house.lookout.look().await;
    let unseen = seen.report.as_ref().and_then(|report| report.breakers_unseen).map(str::to_owned);
    Json(Breakers {
        here: breakers_here(&house),
        fleet_unseen: seen.why().or(unseen),
        fleet: seen.report.map(|report| report.breakers.clone()).unwrap_or_default(),
    })
}

pub(super) async fn status(State(house): State<Arc<House>>) -> Json<Status> {
    let seen = house.lookout.look().await;
    Json(Status::of(&house, seen))
}

pub(super) fn unknown_budget(name: &str) -> Problem {
    Problem::unknown(Code::UnknownBudget.as_str(), format!("there is no budget {name:?}: GET /v1/budgets lists them"))
}

/// What is true now, or a problem.
fn as_of_now(seen: Seen) -> Result<Vec<View>, Problem> {
    match (seen.report, seen.problem) {
        (Some(report), None) => Ok(report.budgets.clone()),
        (_, Some(problem)) => Err(problem),
        (None, None) => Err(Problem::store_unavailable("the store was not reached yet")),
    }
}
