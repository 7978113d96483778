//! Holds: "this scope is refused until ..., because ...". No breaker state: who is held says nothing of the vendor.

use std::sync::Arc;

use super::Instant;
use super::verdict::Finding;

/// Who makes a call, as holds see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Provider and environment, such as `kis/real`: a credential is known there, whatever the surface.
    pub account: Arc<str>,
    pub surface: Arc<str>,
    /// The surface that issues the tokens of this one, where there is one.
    pub token_surface: Option<Arc<str>>,
    /// The opaque label, never the secret.
    pub credential: Arc<str>,
    /// Changes when what stands behind the label changes: that ends a hold "until it changes".
    pub revision: u64,
}

/// Why a call is refused although the breaker lets it pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What is held, such as `credential "alice" at kis/real` or `surface kis/real/balance`.
    pub scope: String,
    pub until: Instant,
    pub why: Arc<str>,
}

/// The one call that is let through after a hold, where it is one.
#[must_use = "settle it, or the hold waits for an answer that never comes"]
#[derive(Debug)]
pub struct Trial(Option<u64>);

#[derive(Debug, Default)]
pub struct Holds {}

impl Holds {
    /// Whether this call may go now.
    pub fn admit(&mut self, now: Instant, who: &Holder) -> Result<Trial, Held> {
        let _ = (now, who);
        todo!()
    }

    /// The call ended as `finding` says, or (`None`) without anything learned.
    pub fn settle(&mut self, now: Instant, who: &Holder, trial: Trial, finding: Option<&Finding>) {
        let _ = (now, who, trial, finding);
        todo!()
    }

    /// What is held now on this surface, for people.
    pub fn of_surface(&self, now: Instant, surface: &str, account: &str) -> Vec<Held> {
        let _ = (now, surface, account);
        todo!()
    }
}
