use std::time::Duration;

use super::event::Cause;
use crate::policy::{Instant, Wall};

/// What there is to see of a breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub shown: Shown,
    /// 0 to 1 over the window of the rate rule; none without that rule or below its minimum.
    pub failure_rate: Option<f64>,
    pub slow_rate: Option<f64>,
    /// Bad verdicts in a row.
    pub streak: u32,
    /// Outcomes since the epoch began: calls = successes + failures.
    pub calls: u64,
    pub successes: u64,
    pub failures: u64,
    /// Since it was made.
    pub rejected: u64,
    pub stale: u64,
    /// Why it is not simply closed, in a few words; empty where it is.
    pub why: String,
    pub retry_at: Option<Instant>,
    pub rung: usize,
    pub epoch: u64,
    pub episode: Option<EpisodeView>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpisodeView {
    pub started_at: Wall,
    pub total_open: Duration,
    pub reopen_count: u32,
    pub probe_count: u32,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    Closed,
    Open,
    ProbeDue,
    Probing,
    /// A closed window of the calendar; with the coordinator's holds also a held surface.
    Held,
    ForcedOpen,
    Bypass,
    Observe,
}

impl Shown {
    /// As logs, status and settings write it, such as `probe_due`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Shown::Closed => "closed",
            Shown::Open => "open",
            Shown::ProbeDue => "probe_due",
            Shown::Probing => "probing",
            Shown::Held => "held",
            Shown::ForcedOpen => "forced_open",
            Shown::Bypass => "bypass",
            Shown::Observe => "observe",
        }
    }
}
