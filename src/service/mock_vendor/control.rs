//! The endpoints under `/mock/`, for whoever runs the vendor. They are not calls: nothing here is counted. The report
//! is quick enough to be polled during a run; writing out the arrivals of a long run takes long enough to be a stall.

use bytes::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use super::body::Body;
use super::vendor::Vendor;

pub const PREFIX: &str = "/mock/";

/// Answers a request under [`PREFIX`].
pub fn answer(vendor: &Vendor, head: &Parts, body: &Bytes) -> Response<Body> {
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/mock/report") => json_answer(StatusCode::OK, &vendor.report()),
        (&Method::GET, "/mock/arrivals") => {
            let lines: String = vendor.arrivals().iter().map(|arrival| line(arrival) + "\n").collect();
            with_type("application/x-ndjson", lines)
        }
        (&Method::POST, "/mock/settings") => match vendor.change(|settings| settings.with(body)) {
            Ok(()) => no_content(),
            Err(sentence) => json_answer(StatusCode::BAD_REQUEST, &json!({"error": sentence})),
        },
        (&Method::POST, "/mock/reset") => {
            vendor.reset();
            no_content()
        }
        (&Method::POST, "/mock/expire-tokens") => {
            vendor.expire_tokens();
            no_content()
        }
        _ => {
            let sentence = "no such control; the controls are GET /mock/report, GET /mock/arrivals, \
                            POST /mock/settings, POST /mock/expire-tokens and POST /mock/reset";
            json_answer(StatusCode::NOT_FOUND, &json!({"error": sentence}))
        }
    }
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers, strings and lists have a JSON form")
}

fn json_answer(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let mut response = with_type("application/json", line(value));
    *response.status_mut() = status;
    response
}

fn with_type(content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, content_type.parse().expect("a media type is a header value"));
    response
}

fn no_content() -> Response<Body> {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
