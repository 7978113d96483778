//! Bodies that come and go.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::House;
use super::fields::Fields;
use super::problem::Problem;

const LONGEST_BODY: usize = 64 * 1024;
/// Of what is longer, so much is read and left: whoever sends it can then read why it is refused.
const LONGEST_LEFT: usize = 1024 * 1024;
/// For a body to come in whole.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A JSON body: read whole, of bounded length and time, and of the type that is wanted, or refused with a problem.
pub(super) struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<House>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, house: &Arc<House>) -> Result<Self, Problem> {
        // Also so that no page can ask in somebody's browser: without the permission that is never given, it cannot say this.
        if !is_json(request.headers().get(CONTENT_TYPE)) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "CALL_BUDGET_NOT_JSON",
                "send JSON, and say so: Content-Type: application/json",
            ));
        }
        let body = tokio::select! {
            biased;
            body = whole(request.into_body()) => body?,
            () = house.closing() => return Err(Problem::stopping()),
        };
        let read = Fields::of_json(&body).and_then(Fields::read);
        read.map(Json).map_err(|why| Problem::bad_request(format!("the body is not what this path takes: {why}")))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.0).expect("what is answered is always JSON");
        ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
    }
}

/// The part of the path that is a name.
pub(super) struct InPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if !is_encoded(parts.uri.path()) {
            return Err(Problem::bad_request("in a path, % begins two hexadecimal digits: %25 is the sign itself"));
        }
        let name = Path::<String>::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(name)).map_err(|error: PathRejection| Problem::bad_request(error.body_text()))
    }
}

async fn whole(body: Body) -> Result<Bytes, Problem> {
    tokio::time::timeout(BODY_WITHIN, collected(body)).await.unwrap_or_else(|_| {
        Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "CALL_BUDGET_BODY_TIMEOUT",
            format!("the body did not come in within {} s", BODY_WITHIN.as_secs()),
        ))
    })
}

async fn collected(mut body: Body) -> Result<Bytes, Problem> {
    let (mut whole, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::bad_request(format!("the body did not come in whole: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length <= LONGEST_BODY {
            whole.extend_from_slice(&data);
        } else if length > LONGEST_LEFT {
            break;
        }
    }
    if length > LONGEST_BODY {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "CALL_BUDGET_TOO_LARGE",
            format!("a body has at most {LONGEST_BODY} bytes here"),
        ));
    }
    Ok(whole.into())
}

/// Whether each % is what it has to be in a path.
fn is_encoded(path: &str) -> bool {
    let hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = path.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || hex(bytes.get(at + 1)) && hex(bytes.get(at + 2)))
}

fn is_json(content_type: Option<&HeaderValue>) -> bool {
    let essence = content_type.and_then(|value| value.to_str().ok()).and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Milliseconds to the microsecond, rounded down: a caller that trusts it is never late.
pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
