use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Failed;
use crate::error::AcquireError;
use crate::policy::breaker::Reason;
use crate::policy::verdict::Finding;

/// A call brought no answer.
#[derive(Debug)]
pub enum CallError {
    /// The breaker lets nobody pass: nothing was sent, no slot was spent.
    CircuitOpen { surface: Arc<str>, reason: Reason, retry_after: Duration },
    /// The credential or the surface is held: nothing was sent, no slot was spent.
    Held { surface: Arc<str>, scope: String, why: Arc<str>, retry_after: Duration },
    /// The budget gave no slot: nothing was sent.
    Budget(AcquireError),
    /// There is no such surface in the settings.
    UnknownSurface(String),
    /// It was sent, or was to be, and no whole answer came.
    Failed { surface: Arc<str>, finding: Option<Finding>, attempts: u32, source: Failed },
    /// No token could be had.
    Token { surface: Arc<str>, source: Box<CallError> },
}

impl CallError {
    /// The stable string, such as `CALL_BUDGET_CIRCUIT_OPEN`.
    pub fn code(&self) -> &'static str {
        todo!()
    }

    /// The earliest that trying again can help, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        todo!()
    }

    /// Whether the request may have been carried out although no answer came.
    pub fn may_have_been_sent(&self) -> bool {
        todo!()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Error for CallError {}
