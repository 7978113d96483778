//! One state machine in front of a vendor.
//!
//! Stored are CLOSED or OPEN(until); half-open is computed: OPEN and due. There is no timer and no transition made by a
//! reader, so nothing can get stuck.

pub mod calendar;
pub mod event;
pub mod rules;
pub mod view;

use std::sync::Arc;
use std::time::Duration;

use super::verdict::Verdict;
use super::{Instant, Wall};

pub use event::Event;
pub use rules::Rules;
pub use view::{Shown, View};

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
    /// Whether the attempt begins with the admission. Else it begins with [`Breaker::sending`].
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
    /// The vendor's Retry-After with a bad verdict: no open wait that follows is shorter.
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

#[derive(Debug)]
pub struct Breaker {}

impl Breaker {
    /// A closed breaker. `seed` draws the jitter of its waits.
    ///
    /// # Errors
    /// Rules that make no sense, in a sentence.
    pub fn new(rules: Rules, seed: u64) -> Result<Self, String> {
        let _ = (rules, seed);
        todo!()
    }

    /// Leave for one attempt, or why not.
    pub fn admit(&mut self, at: Moment, caller: Caller) -> Result<Pass, Refusal> {
        let _ = (at, caller);
        todo!()
    }

    /// The attempt begins now. Refused where the pass no longer counts: then nothing may be sent, and the pass is over.
    pub fn sending(&mut self, at: Moment, pass: &mut Pass) -> Result<(), Refusal> {
        let _ = (at, pass);
        todo!()
    }

    pub fn settle(&mut self, at: Moment, pass: Pass, outcome: Outcome) -> Counted {
        let _ = (at, pass, outcome);
        todo!()
    }

    /// The caller gave up. `heard`: at least one byte of an answer had come; without one, an attempt that had already taken
    /// longer than the slow limit counts as slow, or as a failed probe.
    pub fn abandon(&mut self, at: Moment, pass: Pass, heard: bool) {
        let _ = (at, pass, heard);
        todo!()
    }

    /// Does what time alone has made due (a quiet episode ends, probes are lost, running calls are overdue), so that it is
    /// told even while nobody calls.
    pub fn tend(&mut self, at: Moment) {
        let _ = at;
        todo!()
    }

    /// What there is to see. Changes nothing.
    pub fn view(&self, at: Moment) -> View {
        let _ = at;
        todo!()
    }

    /// What happened since it was last asked, in order. Does not allocate while nothing happens.
    pub fn take_events(&mut self) -> Vec<Event> {
        todo!()
    }

    /// The count of state changes; each change makes older passes stale.
    pub fn epoch(&self) -> u64 {
        todo!()
    }

    pub fn force_open(&mut self, at: Moment, order: Order) {
        let _ = (at, order);
        todo!()
    }

    /// Lets everybody pass and counts nothing.
    pub fn bypass(&mut self, at: Moment, order: Order) {
        let _ = (at, order);
        todo!()
    }

    /// Counts and never trips.
    pub fn observe(&mut self, at: Moment, order: Order) {
        let _ = (at, order);
        todo!()
    }

    /// Closed, with nothing counted and no order in force.
    pub fn reset(&mut self, at: Moment, order: Order) {
        let _ = (at, order);
        todo!()
    }
}
