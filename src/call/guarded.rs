//! A call that somebody else makes, in another process or another language, behind this process's breakers and holds.

use std::time::Duration;

use super::run::{Call, Underway};
use crate::clock::Clock;
use crate::policy::Instant;
use crate::policy::verdict::{Broken, Finding};
use crate::store::Store;
use crate::vendor::Ended;

/// Leave for one attempt, until it is settled. Dropping it says nothing of the vendor; the slot is spent.
#[must_use = "settle it with what came of the call"]
pub struct Guarded<C: Clock, S: Store> {
    call: Call<C, S>,
    underway: Underway<C>,
}

/// What whoever made the attempt tells of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told<'a> {
    /// The whole answer came. `code` and `text` are what the vendor's table looks for in bodies.
    Answer { status: u16, code: Option<&'a str>, text: Option<&'a str>, retry_after: Option<Duration> },
    /// No whole answer came.
    Broken(Broken),
}

impl<C: Clock, S: Store> Guarded<C, S> {
    pub(super) fn new(call: Call<C, S>, underway: Underway<C>) -> Self {
        Self { call, underway }
    }

    /// Whether the shared budget stands behind it; false while the switch is off.
    pub fn governed(&self) -> bool {
        self.nonce().is_some()
    }

    /// A number that no other slot of the fleet has; `None` while the switch is off.
    pub fn nonce(&self) -> Option<u64> {
        self.underway.attempt().nonce
    }

    /// The last moment at which the attempt may leave; `None` while the switch is off.
    pub fn closes_at(&self) -> Option<Instant> {
        self.underway.attempt().closes_at
    }

    /// How long the whole answer may take, as the surface says. Whoever makes the attempt keeps it.
    pub fn attempt_timeout(&self) -> Duration {
        self.call.surface.attempt_timeout
    }

    /// Settles it: what the vendor's table makes of it counts for breaker, holds and budget. `elapsed` is what the attempt
    /// took by the clock of whoever made it; where not said, the time since it could leave.
    pub fn settle(self, told: Told<'_>, elapsed: Option<Duration>) -> Finding {
        let ended = match told {
            Told::Answer { status, code, text, retry_after } => Ended::Told { status, code, text, retry_after },
            Told::Broken(how) => Ended::Broken(how),
        };
        self.call.told(self.underway, &ended, elapsed)
    }

    /// Gives it up: it was never sent.
    pub fn not_sent(self) {
        // The time that it took says nothing of the vendor.
        self.underway.attempt().heard();
    }
}
