//! Why a call must not be sent. Every error means: do not send.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::policy::stage::Stage;

/// What kind of no it is. The strings are stable; new kinds may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The store could not be used for as long as an outage may last; the stage is named.
    StoreUnavailable,
    /// Time ran out on an attempt whose request had left and whose answer never came.
    Uncertain,
    /// `max_wait` passed, or the estimate is longer than it (then refused before waiting).
    WaitExceeded,
    /// The budget is paused.
    Paused,
    /// There is no such budget.
    UnknownBudget,
    /// The budget has no such class.
    UnknownClass,
    /// Settings, schema contract, privileges or arguments: waiting will not help.
    Misconfigured,
}

/// The pair that collectors store about a call that was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// `CALL_BUDGET_BLOCKED` or `CALL_BUDGET_MISCONFIGURED`.
    pub code: &'static str,
    /// Whether trying again later can help.
    pub transient: bool,
}

impl Code {
    /// The stable string, such as `CALL_BUDGET_WAIT_EXCEEDED`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::StoreUnavailable => "CALL_BUDGET_STORE_UNAVAILABLE",
            Code::Uncertain => "CALL_BUDGET_UNCERTAIN",
            Code::WaitExceeded => "CALL_BUDGET_WAIT_EXCEEDED",
            Code::Paused => "CALL_BUDGET_PAUSED",
            Code::UnknownBudget => "CALL_BUDGET_UNKNOWN_BUDGET",
            Code::UnknownClass => "CALL_BUDGET_UNKNOWN_CLASS",
            Code::Misconfigured => "CALL_BUDGET_MISCONFIGURED",
        }
    }

    /// The pair that collectors store.
    pub const fn failure(self) -> Failure {
        match self {
            Code::StoreUnavailable | Code::Uncertain | Code::WaitExceeded | Code::Paused => {
                Failure { code: "CALL_BUDGET_BLOCKED", transient: true }
            }
            Code::UnknownBudget | Code::UnknownClass | Code::Misconfigured => {
                Failure { code: "CALL_BUDGET_MISCONFIGURED", transient: false }
            }
        }
    }

    /// Whether a collector should end its run instead of trying the next symbol.
    pub const fn stops_the_run(self) -> bool {
        !matches!(self, Code::WaitExceeded)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `acquire()` ended without a permit: do not send.
///
/// What it says of spending covers the whole acquire, not its last attempt.
#[derive(Debug)]
pub struct AcquireError {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) stage: Option<Stage>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) lost: u32,
    pub(crate) max_cost: Option<u32>,
}

impl AcquireError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), stage: None, retry_after: None, lost: 0, max_cost: None }
    }

    /// What kind of no it is.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The stage of the store call that failed or ran out of time, where one did.
    pub fn stage(&self) -> Option<Stage> {
        self.stage
    }

    /// The earliest that trying again can help, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether a slot may have been spent on this acquire although nothing was sent.
    pub fn may_have_spent(&self) -> bool {
        self.lost > 0
    }

    /// How many attempts ended with their request sent and no answer: each may have spent one grant.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// The largest cost that the budget allows, where the caller's is over it.
    pub fn max_cost(&self) -> Option<u32> {
        self.max_cost
    }

    /// What happened, without the code.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The pair that collectors store.
    pub fn failure(&self) -> Failure {
        self.code.failure()
    }

    /// Whether a collector should end its run instead of trying the next symbol.
    pub fn stops_the_run(&self) -> bool {
        self.code.stops_the_run()
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl Error for AcquireError {}
