//! What a caller's commit waits for, and so how many grants the store may have forgotten after a crash or a promotion. Pure.

use std::time::Duration;

use call_budget::cli::demo::plan::{LIMIT, LOOKAHEAD};
use fastrand::Rng;

/// Drawn anew with each new primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    /// For nothing (`synchronous_commit = off`): a crash forgets the last ones.
    Forgetful,
    /// For the primary's disk: a promotion forgets what the standby had not heard of.
    Durable,
    /// For the standby's too.
    Replicated,
}

/// The server writes asynchronous commits within three of its `wal_writer_delay`s of 200 ms.
const WRITTEN_WITHIN: Duration = Duration::from_millis(800);
/// How far a standby that listens is behind, at most.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

impl Commits {
    pub fn draw(rng: &mut Rng, has_standby: bool) -> Self {
        let kinds = [Self::Forgetful, Self::Durable, Self::Replicated];
        kinds[rng.usize(..if has_standby { 3 } else { 2 })]
    }

    /// The callers' setting of that name.
    pub fn synchronous_commit(self) -> &'static str {
        if self == Self::Forgetful { "off" } else { "on" }
    }

    /// Grants that a crash of the primary may make it forget.
    pub fn forgotten_by_a_crash(self) -> u64 {
        if self == Self::Forgetful { slots_in(WRITTEN_WITHIN) } else { 0 }
    }

    /// Grants that a promotion may, where the standby heard nothing for so long.
    pub fn forgotten_by_a_promotion(self, unheard: Duration) -> u64 {
        match self {
            Self::Forgetful => slots_in(WRITTEN_WITHIN + HEARD_WITHIN + unheard),
            Self::Durable => slots_in(HEARD_WITHIN + unheard),
            Self::Replicated => 0,
        }
    }
}

/// As many as are granted in that time, at most.
fn slots_in(span: Duration) -> u64 {
    let interval = LIMIT.interval().expect("the demo's limit is safe at some interval");
    ((span + LOOKAHEAD).as_micros() / interval.as_micros()) as u64 + 1
}
