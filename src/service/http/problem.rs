//! What went wrong, as `application/problem+json` with a stable code.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::json::ms;
use crate::store::operation::OperationError;
use crate::store::sqlstate::Meaning;
use crate::store::{Failing, StoreError};
use crate::{AcquireError, CallError, Code};

/// Where nothing says when to come back.
const RETRY: Duration = Duration::from_secs(1);

/// An answer that is a no.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Problem {
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    detail: String,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    may_have_spent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'static str>,
    /// The connection is ended with it: others want one.
    #[serde(skip)]
    hangs_up: bool,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self {
            title,
            status,
            detail: detail.into(),
            code,
            retry_after_ms: None,
            may_have_spent: None,
            stage: None,
            hangs_up: false,
        }
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "CALL_BUDGET_BAD_REQUEST", detail)
    }

    pub fn wrong_host() -> Self {
        let detail =
            "this service does not answer to that Host: call it by its address, or add the name to allowed_hosts";
        Self::new(StatusCode::MISDIRECTED_REQUEST, "CALL_BUDGET_WRONG_HOST", detail)
    }

    pub fn no_such_path() -> Self {
        Self::unknown("CALL_BUDGET_NO_SUCH_PATH", "there is no such path: see /v1/openapi.json")
    }

    pub fn unauthorized(detail: &str) -> Self {
        let detail = format!("{detail}: send \"Authorization: Bearer TOKEN\"");
        Self::new(StatusCode::UNAUTHORIZED, "CALL_BUDGET_UNAUTHORIZED", detail)
    }

    pub fn no_admin_token() -> Self {
        let detail =
            "this service has no admin token, so nobody can change anything here: start it with --admin-token-file";
        Self::new(StatusCode::FORBIDDEN, "CALL_BUDGET_NO_ADMIN_TOKEN", detail)
    }

    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "CALL_BUDGET_STOPPING", "this service stops: ask another")
            .retry_after(Some(RETRY))
    }

    pub fn busy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "CALL_BUDGET_BUSY", detail).retry_after(Some(RETRY))
    }

    /// As many wait as may: whoever is told so makes room for who does not wait.
    pub fn crowded() -> Self {
        let detail = "as many callers wait or look on as max_connections allows: ask another service, or raise it";
        Self { hangs_up: true, ..Self::busy(detail) }
    }

    pub fn misconfigured(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Misconfigured.as_str(), detail)
    }

    /// An operation of somebody who needs the rights of `role`, as `call-budget access` calls them.
    pub fn of_operation(error: &OperationError, role: &str) -> Self {
        let detail = error.to_string();
        match error.meaning() {
            Meaning::NoSuchName => Self::unknown(Code::UnknownBudget.as_str(), detail),
            Meaning::BadArgument | Meaning::BadSetting | Meaning::Refused => Self::bad_request(detail),
            Meaning::NotPermitted => Self::misconfigured(format!(
                "{detail}: give the role of this service the rights, call-budget access ROLE --as {role}"
            )),
            Meaning::NoSchema => Self::misconfigured(format!("{detail}: run \"call-budget migrate\"")),
            Meaning::Uncertain => Self {
                retry_after_ms: Some(ms(RETRY)),
                ..Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    Code::Uncertain.as_str(),
                    format!("{detail}: look before you try again"),
                )
            },
            _ => Self::store_unavailable(detail),
        }
    }

    /// The sentence.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub fn store_unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::StoreUnavailable.as_str(), detail).retry_after(Some(RETRY))
    }

    pub fn unknown(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    fn retry_after(self, wait: Option<Duration>) -> Self {
        let wait = wait.or_else(|| self.is_for_a_while().then_some(RETRY));
        Self { retry_after_ms: wait.map(ms), ..self }
    }

    /// Who is refused so is told when to come back, one way or the other.
    fn is_for_a_while(&self) -> bool {
        matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
    }

    fn retry_after_seconds(&self) -> Option<HeaderValue> {
        let wait = Duration::try_from_secs_f64(self.retry_after_ms.unwrap_or_default() / 1000.0).unwrap_or(RETRY);
        // A whole second at least, and never too early.
        let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(RETRY.as_secs());
        self.is_for_a_while().then(|| HeaderValue::from(seconds))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).expect("texts and numbers are always JSON");
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, seconds);
        }
        if self.hangs_up {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<AcquireError> for Problem {
    fn from(error: AcquireError) -> Self {
        let code = error.code();
        let status = match code {
            Code::StoreUnavailable | Code::Uncertain | Code::Paused => StatusCode::SERVICE_UNAVAILABLE,
            Code::WaitExceeded => StatusCode::TOO_MANY_REQUESTS,
            Code::UnknownBudget | Code::UnknownClass => StatusCode::NOT_FOUND,
            // The caller's own slip, not the settings'.
            _ if error.max_cost().is_some() => return Self::bad_request(error.message()),
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self {
            may_have_spent: Some(error.may_have_spent()),
            stage: error.stage().map(|stage| stage.as_str()),
            ..Self::new(status, code.as_str(), error.message()).retry_after(error.retry_after())
        }
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let (code, retry_after) = (error.code(), error.retry_after());
        let status = match error {
            CallError::Budget(error) => return error.into(),
            CallError::CircuitOpen { .. } | CallError::Held { .. } => StatusCode::SERVICE_UNAVAILABLE,
            CallError::UnknownSurface(_) => StatusCode::NOT_FOUND,
            // Of attempts that this service would make itself: it makes none.
            CallError::Failed { .. } | CallError::Token { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let detail = error.to_string();
        // The code stands beside it.
        let detail = detail.strip_prefix(code).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&detail);
        Self { may_have_spent: Some(false), ..Self::new(status, code, detail).retry_after(retry_after) }
    }
}

impl From<OperationError> for Problem {
    /// Of an order.
    fn from(error: OperationError) -> Self {
        Self::of_operation(&error, "admin")
    }
}

impl From<StoreError> for Problem {
    /// Of connecting.
    fn from(error: StoreError) -> Self {
        match error.kind {
            Failing::Misconfigured => Self::misconfigured(error.to_string()),
            Failing::Unavailable | Failing::Uncertain => Self::store_unavailable(error.to_string()),
        }
    }
}

fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}
