//! The page and what it is made of: no word of it comes from elsewhere, and it may ask nobody but this service.

use axum::http::HeaderMap;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::IntoResponse;

use super::json::InPath;
use super::problem::Problem;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const JS: &str = "text/javascript; charset=utf-8";

/// What `page.js` is made of.
const MODULES: &[(&str, &str)] = &[
    ("alarms.js", include_str!("page/alarms.js")),
    ("breakers.js", include_str!("page/breakers.js")),
    ("budgets.js", include_str!("page/budgets.js")),
    ("dialogs.js", include_str!("page/dialogs.js")),
    ("dom.js", include_str!("page/dom.js")),
    ("figures.js", include_str!("page/figures.js")),
    ("stream.js", include_str!("page/stream.js")),
    ("words.js", include_str!("page/words.js")),
];

pub(super) async fn html() -> impl IntoResponse {
    file("text/html; charset=utf-8", include_str!("page/page.html"))
}

pub(super) async fn css() -> impl IntoResponse {
    file("text/css; charset=utf-8", include_str!("page/page.css"))
}

pub(super) async fn js() -> impl IntoResponse {
    file(JS, include_str!("page/page.js"))
}

pub(super) async fn module(InPath(name): InPath) -> Result<impl IntoResponse, Problem> {
    let found = MODULES.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| file(JS, text)).ok_or_else(Problem::no_such_path)
}

pub(super) async fn openapi() -> impl IntoResponse {
    file("application/json", include_str!("openapi.json"))
}

fn file(content_type: &'static str, text: &'static str) -> (HeaderMap, &'static str) {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    let headers = headers.map(|(name, value): (HeaderName, _)| (name, HeaderValue::from_static(value)));
    (headers.into_iter().collect(), text)
}
