//! Whose failure it was: what an answer says about the vendor, and who is to wait because of it.

use std::sync::Arc;
use std::time::Duration;

/// What one attempt says about the vendor's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It answered as it should: also with a no that concerns the request alone.
    Good,
    /// It failed.
    Bad,
    /// Nothing was learned: the failure belongs to a key, a budget, or to ourselves.
    None,
}

/// What was seen of one attempt, reduced to what a vendor table looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen<'a> {
    /// The whole answer came.
    Answer(Facts<'a>),
    /// No whole answer came.
    Broken(Broken),
}

/// A whole answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts<'a> {
    pub status: u16,
    /// The body is what this vendor's bodies are (JSON where the table says so).
    pub well_formed: bool,
    /// The vendor's own code from the body.
    pub code: Option<&'a str>,
    /// The vendor's own words from the body.
    pub text: Option<&'a str>,
    pub retry_after: Option<Duration>,
}

/// How an attempt ended that brought no whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// DNS, connect or TLS: the request never left, so it may be sent again whatever it is.
    NotConnected,
    /// Reset, closed early, truncated: the request may have been carried out.
    Interrupted,
    /// Our own attempt timeout: the request may have been carried out.
    TimedOut,
}

/// What a vendor table makes of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub verdict: Verdict,
    /// Who waits because of it, and for how long.
    pub action: Action,
    /// The vendor's code, where it gave one.
    pub code: Option<Arc<str>>,
    /// The vendor said "too many": counted by code.
    pub throttled: bool,
    /// The request may have been carried out although no answer says so: one that must not happen twice is never sent again.
    pub outcome_unknown: bool,
    /// The source answered that it has nothing: a fallback goes on to the next.
    pub no_data: bool,
    /// For the person who reads it: what it means and what to do.
    pub meaning: Arc<str>,
}

/// Who is to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// This credential, until it changes, else 60 s doubling to 1 h, one call let through after each.
    HoldCredentialUntilChanged,
    /// This credential, this long.
    HoldCredential(Duration),
    /// This surface, this long. With a verdict of bad: no open wait is shorter.
    HoldSurface(Duration),
    /// The surface that issues tokens, this long.
    HoldTokenSurface(Duration),
    /// Everybody who shares the budget.
    PushBack(Duration),
    /// Drop the token that failed, fetch a new one and try once more.
    RefreshToken,
}
