//! Whether it lives, and whether to send it callers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::House;
use super::json::Json;

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
pub(super) async fn ready(State(house): State<Arc<House>>) -> (StatusCode, Json<Ready>) {
    let why = if house.is_stopping() {
        Some("it stops".to_owned())
    } else if house.enabled {
        // Everybody may ask this: where the store is and what it said is told to those who may look.
        house.lookout.look().await.why.map(|_| "the store cannot be used: GET /v1/status says why".to_owned())
    } else {
        None
    };
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready: why.is_none(), why }))
}
