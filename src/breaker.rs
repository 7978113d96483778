//! The breaker as programs hold it: one lock, one clock, events told when the lock is free.

use std::sync::{Arc, Mutex};

use crate::clock::{Clock, SystemClock};
use crate::config::SettingsError;
use crate::policy::breaker::{self as machine, Caller, Outcome, Refusal, Rules, View};
use crate::policy::verdict::Verdict;

/// A circuit breaker, usable alone. Cheap to clone; clones share everything.
pub struct Breaker<C: Clock = SystemClock>(Arc<Inner<C>>);

struct Inner<C: Clock> {
    #[expect(dead_code, reason = "skeleton")]
    name: Arc<str>,
    #[expect(dead_code, reason = "skeleton")]
    clock: C,
    #[expect(dead_code, reason = "skeleton")]
    machine: Mutex<machine::Breaker>,
}

/// Leave for one attempt. Dropping it abandons it.
#[must_use = "settle it: a pass that is dropped says nothing of the vendor"]
pub struct Pass<C: Clock = SystemClock> {
    #[expect(dead_code, reason = "skeleton")]
    breaker: Breaker<C>,
}

impl Breaker {
    /// A closed breaker on the system's clock. `name` is what logs call it.
    ///
    /// # Errors
    /// Rules that make no sense.
    pub fn new(name: &str, rules: Rules) -> Result<Self, SettingsError> {
        Self::with_clock(name, rules, SystemClock)
    }
}

impl<C: Clock> Breaker<C> {
    /// A closed breaker on another clock.
    ///
    /// # Errors
    /// Rules that make no sense.
    pub fn with_clock(name: &str, rules: Rules, clock: C) -> Result<Self, SettingsError> {
        let _ = (name, rules, clock);
        todo!()
    }

    /// Leave for one attempt of a call of its own, which begins now and may be a probe.
    ///
    /// # Errors
    /// Why not, and when something can change.
    pub fn admit(&self) -> Result<Pass<C>, Refusal> {
        todo!()
    }

    /// As [`Breaker::admit`], for a caller who says more.
    ///
    /// # Errors
    /// As [`Breaker::admit`].
    pub fn admit_as(&self, caller: Caller) -> Result<Pass<C>, Refusal> {
        let _ = caller;
        todo!()
    }

    /// What there is to see. Changes nothing.
    pub fn view(&self) -> View {
        todo!()
    }
}

impl<C: Clock> Pass<C> {
    /// The attempt begins now.
    ///
    /// # Errors
    /// The pass no longer counts: nothing may be sent.
    pub fn sending(&mut self) -> Result<(), Refusal> {
        todo!()
    }

    /// The first byte of an answer has come.
    pub fn heard(&self) {
        todo!()
    }

    /// The attempt ended.
    pub fn settle(self, verdict: Verdict) {
        self.settle_with(Outcome { verdict, elapsed: None, retry_after: None });
    }

    /// As [`Pass::settle`], saying more.
    pub fn settle_with(self, outcome: Outcome) {
        let _ = outcome;
        todo!()
    }

    /// Nothing was learned. The same as dropping it.
    pub fn abandon(self) {
        drop(self);
    }
}

impl<C: Clock> Clone for Breaker<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
