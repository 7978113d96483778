//! Which path leads where, and who may go there. `openapi.json` says the same to callers, and a test compares them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::leave::Entered;
use super::problem::Problem;
use super::{House, access, acquire, admin, calls, events, health, looking, page};
use crate::clock::{Clock, SystemClock};

pub(super) fn router(house: &Arc<House>) -> Router {
    let open = Router::new()
        .route("/", get(page::html))
        .route("/page.css", get(page::css))
        .route("/page.js", get(page::js))
        .route("/page/{module}", get(page::module))
        .route("/v1/openapi.json", get(page::openapi))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready));
    let callers = Router::new()
        .route("/v1/acquire", post(acquire::acquire))
        .route("/v1/calls", post(calls::begin))
        .route("/v1/calls/{id}/settle", post(calls::settle))
        .route("/v1/budgets", get(looking::budgets))
        .route("/v1/budgets/{budget}", get(looking::budget))
        .route("/v1/breakers", get(looking::breakers))
        .route("/v1/status", get(looking::status))
        .route("/v1/events", get(events::events))
        .route("/metrics", get(health::metrics))
        .route_layer(from_fn_with_state(Arc::clone(house), access::callers));
    let admins = Router::new()
        .route("/v1/admin/pause", post(admin::pause))
        .route("/v1/admin/resume", post(admin::resume))
        .route("/v1/admin/pushback", post(admin::pushback))
        .route("/v1/admin/fence", post(admin::fence))
        .route("/v1/admin/breaker", post(admin::breaker))
        .route_layer(from_fn_with_state(Arc::clone(house), access::admins));
    open.merge(callers)
        .merge(admins)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(Arc::clone(house), access::by_its_name))
        .layer(from_fn_with_state(Arc::clone(house), entered))
        .with_state(Arc::clone(house))
}

/// Around everything else that is done with the request.
async fn entered(State(house): State<Arc<House>>, mut request: Request, next: Next) -> Response {
    let entered = SystemClock.now();
    request.extensions_mut().insert(Entered(entered));
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    house.http.record(route, response.status().as_u16(), SystemClock.now().saturating_since(entered));
    response
}

async fn no_such_path() -> Response {
    Problem::no_such_path().into_response()
}

async fn no_such_method() -> Response {
    let detail = "this path does not take that method: see /v1/openapi.json";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "CALL_BUDGET_NO_SUCH_METHOD", detail).into_response()
}
