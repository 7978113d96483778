//! Whether it lives, whether to send it callers, and its figures.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::House;
use super::json::Json;
use crate::clock::{Clock, SystemClock};
use crate::service::metrics::{self, ServiceFigures};

/// When to ask again.
const RETRY_SECONDS: &str = "1";

#[derive(Serialize)]
pub(super) struct Ready {
    ready: bool,
    why: Option<String>,
}

/// It answers: that is all it says.
pub(super) async fn live() -> Json<Ready> {
    Json(Ready { ready: true, why: None })
}

/// Not while it stops, nor while the store is out. While the switch is off no caller needs the store.
pub(super) async fn ready(State(house): State<Arc<House>>) -> Response {
    let why = if house.is_stopping() {
        Some("it stops".to_owned())
    } else if house.enabled {
        // Everybody may ask this: where the store is and what it said is told to those who may look.
        house.lookout.look().await.problem.map(|_| "the store cannot be used: GET /v1/status says why".to_owned())
    } else {
        None
    };
    let ready = Json(Ready { ready: why.is_none(), why });
    if ready.0.ready {
        ready.into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, RETRY_SECONDS)], ready).into_response()
    }
}

/// What Prometheus reads.
pub(super) async fn metrics(State(house): State<Arc<House>>) -> impl IntoResponse {
    // While the switch is on somebody looks once a second anyway.
    let seen = house.lookout.known();
    let reachable = house.enabled.then(|| seen.is_reachable());
    let service = ServiceFigures {
        enabled: house.enabled,
        uptime: SystemClock.now().saturating_since(house.started),
        waiting: house.waiting.load(Ordering::Relaxed),
        open_calls: house.calls.count(),
        calls_lost: house.calls.lost(),
        store_reachable: reachable,
        http: house.http.read(),
    };
    let report = seen.report.as_deref().zip(seen.age());
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&house.budgets.figures(), &service, report))
}
