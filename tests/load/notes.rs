//! What callers write down. Moments are microseconds of the machine's clock, the same for all its processes.

use call_budget::clock::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

/// A permit in hand: the call that left, at the moment of the last check of its window, or would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u64, i64, u64)", into = "(u32, u64, i64, u64)")]
pub struct Send {
    pub caller: u32,
    pub at_us: u64,
    /// How much of its send window was over. Less than nothing: the store's clock was read late in a long round trip.
    pub gone_us: i64,
    /// From asking to having it.
    pub waited_us: u64,
}

/// A no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub caller: u32,
    pub at_us: u64,
    pub code: String,
    pub max_wait_us: u64,
    pub waited_us: u64,
    pub retry_after_us: Option<u64>,
}

/// A moment of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub caller: u32,
    pub at_us: u64,
}

/// All that the callers of one process have seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    pub sends: Vec<Send>,
    /// Answers that were read after their window had closed: nothing was sent.
    pub late: Vec<Send>,
    pub refusals: Vec<Refusal>,
    /// Connections that ended while an answer was due.
    pub broken: Vec<Mark>,
    /// What an acquire took where there was always a slot.
    pub free_us: Vec<u64>,
    /// How late a plain timer was.
    pub timer_late_us: Vec<u64>,
}

impl Notes {
    pub fn add(&mut self, other: Self) {
        self.sends.extend(other.sends);
        self.late.extend(other.late);
        self.refusals.extend(other.refusals);
        self.broken.extend(other.broken);
        self.free_us.extend(other.free_us);
        self.timer_late_us.extend(other.timer_late_us);
    }
}

pub fn now_us() -> u64 {
    u64::try_from(SystemClock.now().since_boot().as_micros()).unwrap_or(u64::MAX)
}

impl From<(u32, u64, i64, u64)> for Send {
    fn from((caller, at_us, gone_us, waited_us): (u32, u64, i64, u64)) -> Self {
        Self { caller, at_us, gone_us, waited_us }
    }
}

impl From<Send> for (u32, u64, i64, u64) {
    fn from(Send { caller, at_us, gone_us, waited_us }: Send) -> Self {
        (caller, at_us, gone_us, waited_us)
    }
}
