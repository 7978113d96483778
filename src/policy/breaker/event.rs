use std::sync::Arc;
use std::time::Duration;

use crate::policy::Wall;

/// What happened, for logs and counters.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A bad verdict. In CLOSED: bad ones in a row, with a `threshold` where a streak can trip it. Of a probe: bad ones of
    /// this round, and how many open it again.
    Failure {
        fail_count: u32,
        threshold: Option<u32>,
    },
    /// A trip. `reopen_count` is 0 at the first of an episode, as in its summary.
    Opened {
        cause: Cause,
        fail_count: u32,
        reopen_count: u32,
        open_for: Duration,
        rung: usize,
    },
    /// A round of probes failed, or brought no evidence three times. `reopen_count` is 0 without an episode: after a closed
    /// window.
    Reopened {
        cause: Cause,
        reopen_count: u32,
        open_for: Duration,
        rung: usize,
    },
    Closed {
        probe_count: u32,
    },
    /// Once an episode.
    EpisodeSummary(Summary),
    /// Somebody gave an order, or one ran out.
    ByHand {
        what: &'static str,
        who: Arc<str>,
        why: Arc<str>,
        /// How long the order is in force from now on; none where nothing but another order ends it, and where none is.
        in_force_for: Option<Duration>,
    },
}

/// Why it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    Streak,
    Rate,
    Slow,
    /// A probe failed.
    Probe,
    /// Probes were lost or said nothing, three times.
    NoEvidence,
}

impl Cause {
    /// For people, in a few words.
    pub const fn as_words(self) -> &'static str {
        match self {
            Cause::Streak => "bad ones in a row",
            Cause::Rate => "the rate of bad ones",
            Cause::Slow => "the rate of slow ones",
            Cause::Probe => "a probe failed",
            Cause::NoEvidence => "probes without evidence",
        }
    }
}

/// One episode, from the first trip to proven recovery.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub started_at: Wall,
    pub duration: Duration,
    /// Blocked time: never more than `duration`.
    pub total_open: Duration,
    pub reopen_count: u32,
    pub probe_count: u32,
    pub lost_probes: u32,
    pub rejected: u64,
    pub cause: Cause,
}
