//! What callers hold: the moment, a pass, a refusal, an outcome, an order.

use std::sync::Arc;
use std::time::Duration;

use crate::policy::verdict::Verdict;
use crate::policy::{Instant, Wall};

/// Now, on both clocks: waits are measured on the first, calendars are read on the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub now: Instant,
    pub wall: Wall,
}

/// Who asks to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The logical call, the same for each of its attempts: it adds at most one to a streak.
    pub call: u64,
    /// Whether it may be a probe: orders never are.
    pub may_probe: bool,
    /// Whether the attempt begins with the admission. Else it begins with [`Breaker::sending`](super::Breaker::sending).
    pub starts_now: bool,
}

/// What the breaker hands out: leave for one attempt.
#[must_use = "settle it or abandon it"]
#[derive(Debug, PartialEq, Eq)]
pub struct Pass {
    pub(crate) id: u64,
    pub(crate) epoch: u64,
    pub(crate) call: u64,
    pub(crate) probe: bool,
    pub(crate) admitted: Instant,
    /// When the attempt began, once it has.
    pub(crate) began: Option<Instant>,
    /// Its place among the running ones, where slow ones matter.
    pub(crate) running: Option<u64>,
}

/// Why nobody passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    /// The next instant at which something can change, always later than now.
    pub retry_at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It waits before it probes.
    Open,
    /// As many probes are out as may be.
    Probing,
    /// A probe is due, and this caller may not be one.
    NoProbe,
    /// A calendar says that the vendor is closed.
    ClosedWindow,
    /// Somebody forced it open.
    ForcedOpen { who: Arc<str>, why: Arc<str> },
    /// The pass is of an older epoch, or a probe that was replaced: the attempt may not begin.
    Stale,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub verdict: Verdict,
    /// From the first byte sent to the last byte read; measured from the beginning of the attempt where not said.
    pub elapsed: Option<Duration>,
    /// The vendor's Retry-After with a bad verdict: no open wait that follows is shorter, until a good answer to a later
    /// attempt. More than a day counts as a day.
    pub retry_after: Option<Duration>,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Yes,
    /// Of an older epoch, or of a probe that was replaced: no effect.
    Stale,
}

/// Somebody's order: who, why, and until when (none: until it is taken back).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub who: Arc<str>,
    pub why: Arc<str>,
    pub until: Option<Instant>,
}
