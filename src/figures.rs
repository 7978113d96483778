//! What one process has done, by name: for dashboards, and for programs that export figures themselves.
//!
//! Counting takes atomics of whoever counts: no lock and no allocation for an acquire. The counts of a class live with its
//! lane. Names that the store does not know, that are too long or too many keep none of their own: what they came to is
//! counted under the empty name, so that the sum over all classes is what [`Counters`] says.

mod breaker;
mod class;
mod histogram;
mod store;
mod surface;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::counters::Counters;
use crate::error::Code;
use crate::policy::breaker::Shown;
use crate::policy::stage::Stage;

pub use histogram::Histogram;

pub(crate) use breaker::BreakerBook;
pub(crate) use class::{ClassBook, Ledger};
pub(crate) use store::StoreBook;
pub(crate) use surface::{SurfaceBook, SurfaceBooks};

/// A reading of everything since start. It is not taken in one moment: while calls are under way, figures that belong
/// together can differ by these.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Figures {
    /// By budget and class. The empty names stand for those that the store does not know, that are longer than 100
    /// characters, or that come after the first 1,000.
    pub classes: Vec<ClassFigures>,
    /// By name, those of the settings. The empty name stands for all others.
    pub surfaces: Vec<SurfaceFigures>,
    /// By name.
    pub breakers: Vec<BreakerFigures>,
    pub store: StoreFigures,
    /// The sums, and what belongs to no name.
    pub process: Counters,
}

/// What this process did under one budget and class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassFigures {
    pub budget: Arc<str>,
    pub class: Arc<str>,
    /// Slots that came with answers of the store: permits and dropped ones together.
    pub granted: u64,
    /// Permits handed out. Each is sent, has lapsed, or is in somebody's hand.
    pub permits: u64,
    /// Permits that were started, by surface; under the empty name those of a plain `acquire`.
    pub sends: BTreeMap<Arc<str>, u64>,
    /// Acquires that ended with an error, by its code: every code, also where there was none.
    pub refusals: Vec<(Code, u64)>,
    /// Slots that were not handed out.
    pub dropped: Dropped,
    /// At most this many slots were spent on calls whose answer never came.
    pub lost: u64,
    /// Permits that were never used.
    pub lapsed: u64,
    /// From the entry of `acquire` to its return, where it brought a permit.
    pub waits: Histogram,
}

/// Slots that came and were not handed out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// The answer took longer than `rtt_max`.
    pub round_trip: u64,
    /// The window had closed, or the caller's `max_wait` had passed.
    pub late: u64,
    /// Nobody waited any longer.
    pub unwanted: u64,
    /// The store's clock had stepped and the budget was not yet fenced.
    pub clock_step: u64,
}

/// What this process did on one surface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurfaceFigures {
    pub surface: Arc<str>,
    /// Calls, whatever became of them.
    pub calls: u64,
    /// Attempts that began.
    pub sends: u64,
    /// Attempts that a breaker or a hold refused before anything was spent.
    pub refused_by_breaker: u64,
    pub refused_by_hold: u64,
    /// Attempts by what they said of the vendor.
    pub verdicts_good: u64,
    pub verdicts_bad: u64,
    pub verdicts_none: u64,
    /// How often the vendor said "too many", by its own code; `other` where it gave none, and beyond the first 100.
    pub throttled: BTreeMap<Arc<str>, u64>,
}

/// One breaker of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerFigures {
    /// Its surface, or what the surfaces that share it call it.
    pub breaker: Arc<str>,
    pub surfaces: Vec<Arc<str>>,
    /// As it is now.
    pub state: Shown,
    /// How often it changed into a state, whether it did so itself or by hand; opening anew is a change. Not counted is
    /// what time alone changes: that a probe is due, and closed windows of the calendar. States that it never came to are
    /// there with 0.
    pub transitions: Vec<(Shown, u64)>,
    /// From a first trip to proven recovery: those that have ended.
    pub episodes: u64,
}

/// How the store was from here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreFigures {
    /// Store calls that ended: for slots, probes, fences and pushbacks. What this process shows of its breakers is not
    /// among them.
    pub calls: Vec<StoreCalls>,
    /// For how long it failed: from a first call that failed to the next one that was answered, also while that lasts.
    /// Where nobody asks any longer, nobody knows: a silence counts for a minute at most.
    pub outage: Duration,
    /// It fails now, as far as is known.
    pub failing: bool,
}

/// Store calls that ended alike.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCalls {
    /// Where they ended: [`Stage::Query`] where they were answered.
    pub stage: Stage,
    pub answered: bool,
    /// From the beginning of the call, with whatever connecting it took.
    pub took: Histogram,
}

impl ClassFigures {
    /// All permits that were started.
    pub fn sent(&self) -> u64 {
        self.sends.values().sum()
    }

    /// All acquires that ended with an error.
    pub fn refused(&self) -> u64 {
        self.refusals.iter().map(|(_, times)| times).sum()
    }
}

impl Dropped {
    /// For whatever reason.
    pub fn all(&self) -> u64 {
        self.round_trip + self.late + self.unwanted + self.clock_step
    }
}
