use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Failed;
use crate::error::AcquireError;
use crate::policy::breaker::Reason;
use crate::policy::verdict::{Broken, Finding};

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
    /// It was sent, or was to be, and no whole answer came. `source` is of the last attempt; the finding's `outcome_unknown`
    /// speaks of all of them.
    Failed { surface: Arc<str>, finding: Option<Finding>, attempts: u32, source: Failed },
    /// No token could be had: nothing was sent. Others who waited for the same token have the same source.
    Token { surface: Arc<str>, source: Arc<CallError> },
}

impl CallError {
    /// The stable string, such as `CALL_BUDGET_CIRCUIT_OPEN`.
    pub fn code(&self) -> &'static str {
        match self {
            CallError::CircuitOpen { .. } => "CALL_BUDGET_CIRCUIT_OPEN",
            CallError::Held { .. } => "CALL_BUDGET_HELD",
            CallError::Budget(error) => error.code().as_str(),
            CallError::UnknownSurface(_) => "CALL_BUDGET_UNKNOWN_SURFACE",
            CallError::Failed { source: Failed::NotSent(_), .. } => "CALL_BUDGET_NOT_SENT",
            CallError::Failed { source: Failed::Broken { how, .. }, .. } => match how {
                Broken::NotConnected => "CALL_BUDGET_NOT_CONNECTED",
                Broken::Interrupted => "CALL_BUDGET_INTERRUPTED",
                Broken::TimedOut => "CALL_BUDGET_ATTEMPT_TIMEOUT",
            },
            CallError::Token { .. } => "CALL_BUDGET_NO_TOKEN",
        }
    }

    /// The earliest that trying again can help, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            CallError::CircuitOpen { retry_after, .. } | CallError::Held { retry_after, .. } => Some(*retry_after),
            CallError::Budget(error) => error.retry_after(),
            CallError::Token { source, .. } => source.retry_after(),
            CallError::UnknownSurface(_) | CallError::Failed { .. } => None,
        }
    }

    /// Whether the request may have been carried out although no answer came.
    pub fn may_have_been_sent(&self) -> bool {
        match self {
            CallError::Failed { source: Failed::Broken { how, .. }, finding, .. } => {
                *how != Broken::NotConnected || finding.as_ref().is_some_and(|finding| finding.outcome_unknown)
            }
            _ => false,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code();
        match self {
            CallError::CircuitOpen { surface, reason, retry_after } => write!(
                f,
                "{code}: surface \"{surface}\": {}; nothing was sent; something can change in {}",
                Sentence(reason),
                Seconds(*retry_after)
            ),
            CallError::Held { surface, scope, why, retry_after } => write!(
                f,
                "{code}: surface \"{surface}\": {scope} is held: {why}; nothing was sent; it ends in {}",
                Seconds(*retry_after)
            ),
            CallError::Budget(error) => error.fmt(f),
            CallError::UnknownSurface(surface) => write!(
                f,
                "{code}: the settings have no surface \"{surface}\": add [surface.\"{surface}\"], or call one that they have"
            ),
            CallError::Failed { surface, finding, attempts, source } => {
                write!(f, "{code}: surface \"{surface}\": {}", how_it_failed(source))?;
                if let Some(Finding { meaning, .. }) = finding
                    && !meaning.is_empty()
                {
                    write!(f, ": {meaning}")?;
                }
                let sent = if self.may_have_been_sent() { "it may have been carried out" } else { "nothing was sent" };
                write!(f, "; {sent}; attempts: {attempts}")
            }
            CallError::Token { surface, source } => {
                write!(f, "{code}: surface \"{surface}\": no token could be had, nothing was sent: {source}")
            }
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CallError::Budget(error) => Some(error),
            CallError::Token { source, .. } => Some(&**source),
            CallError::Failed { source: Failed::Broken { source, .. } | Failed::NotSent(source), .. } => {
                Some(&**source)
            }
            CallError::CircuitOpen { .. } | CallError::Held { .. } | CallError::UnknownSurface(_) => None,
        }
    }
}

/// What the client said of it stays in the source: it may hold an address or a key.
fn how_it_failed(failed: &Failed) -> &'static str {
    match failed {
        Failed::NotSent(_) => "the request could not be written, which says nothing of the vendor",
        Failed::Broken { how, .. } => match how {
            Broken::NotConnected => "no connection to the vendor",
            Broken::Interrupted => "the vendor ended the connection before its answer was whole",
            Broken::TimedOut => "no whole answer within attempt_timeout",
        },
    }
}

struct Sentence<'a>(&'a Reason);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reason::Open => {
                f.write_str("the breaker is open, since the vendor was failing, and waits before it probes")
            }
            Reason::Probing => f.write_str("the breaker is open, and as many probes are out as may be"),
            Reason::NoProbe => f.write_str("the breaker is open, and calls of this class are never its probe"),
            Reason::ClosedWindow => f.write_str("the calendar says that the vendor is closed"),
            Reason::ForcedOpen { who, why } => {
                write!(f, "{who} has forced the breaker open ({why}): its reset lets calls pass again")
            }
            Reason::Stale => f.write_str("the breaker has changed since the call was let through"),
        }
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::policy::verdict::{Action, Verdict};

    fn failed(how: Broken, outcome_unknown: bool) -> CallError {
        let finding = Finding {
            verdict: Verdict::Bad,
            action: Action::Nothing,
            code: None,
            throttled: false,
            outcome_unknown,
            never_again: false,
            no_data: false,
            meaning: "ask by hand whether it exists".into(),
        };
        let source = Failed::Broken { how, source: "GET https://vendor/?key=s3cret".into() };
        CallError::Failed { surface: "kis/real/order".into(), finding: Some(finding), attempts: 2, source }
    }

    #[test]
    fn a_message_names_surface_reason_and_way_out_and_never_what_the_client_said() {
        let open = CallError::CircuitOpen {
            surface: "kis/real/quote".into(),
            reason: Reason::ForcedOpen { who: "ops".into(), why: "maintenance".into() },
            retry_after: Duration::from_secs(1),
        };
        assert_eq!(
            open.to_string(),
            "CALL_BUDGET_CIRCUIT_OPEN: surface \"kis/real/quote\": ops has forced the breaker open (maintenance): its reset \
             lets calls pass again; nothing was sent; something can change in 1.000 s"
        );
        assert_eq!(
            failed(Broken::Interrupted, true).to_string(),
            "CALL_BUDGET_INTERRUPTED: surface \"kis/real/order\": the vendor ended the connection before its answer was \
             whole: ask by hand whether it exists; it may have been carried out; attempts: 2"
        );
        let budget = CallError::Budget(AcquireError::new(Code::Paused, "budget \"b\", class \"c\": paused"));
        assert_eq!(budget.to_string(), "CALL_BUDGET_PAUSED: budget \"b\", class \"c\": paused");
    }

    #[test]
    fn what_never_connected_was_not_carried_out_unless_an_earlier_attempt_may_have_been() {
        assert!(!failed(Broken::NotConnected, false).may_have_been_sent());
        assert!(failed(Broken::NotConnected, true).may_have_been_sent());
        assert!(failed(Broken::TimedOut, false).may_have_been_sent());
    }
}
