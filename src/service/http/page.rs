//! The page and what it is made of: no word of it comes from elsewhere, and it may ask nobody but this service.

use axum::Router;
use axum::http::HeaderMap;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::routing::get;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page's files, by their path: routes are made of this list.
pub(super) const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("page/page.html")),
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/page.js", JS, include_str!("page/page.js")),
    ("/page/alarms.js", JS, include_str!("page/alarms.js")),
    ("/page/breakers.js", JS, include_str!("page/breakers.js")),
    ("/page/budgets.js", JS, include_str!("page/budgets.js")),
    ("/page/dialogs.js", JS, include_str!("page/dialogs.js")),
    ("/page/dom.js", JS, include_str!("page/dom.js")),
    ("/page/figures.js", JS, include_str!("page/figures.js")),
    ("/page/stream.js", JS, include_str!("page/stream.js")),
    ("/page/words.js", JS, include_str!("page/words.js")),
    ("/v1/openapi.json", JSON, include_str!("openapi.json")),
];

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// A route for each file.
pub(super) fn files<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, &(path, content_type, text)| {
        router.route(path, get(move || std::future::ready(file(content_type, text))))
    })
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
