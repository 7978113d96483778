//! The counts of a breaker.

use crate::counters::Count;
use crate::policy::breaker::{Event, Shown};

const STATES: [Shown; 8] = [
    Shown::Closed,
    Shown::Open,
    Shown::ProbeDue,
    Shown::Probing,
    Shown::Held,
    Shown::ForcedOpen,
    Shown::Bypass,
    Shown::Observe,
];

#[derive(Debug, Default)]
pub(crate) struct BreakerBook {
    /// By the state that it came to.
    transitions: [Count; STATES.len()],
    episodes: Count,
}

impl BreakerBook {
    /// Something happened; `now` is the state that there is to see after it.
    pub fn happened(&self, event: &Event, now: impl FnOnce() -> Shown) {
        let into = match event {
            Event::Failure { .. } => return,
            Event::EpisodeSummary(_) => return self.episodes.add(1),
            Event::Opened { .. } | Event::Reopened { .. } => Shown::Open,
            Event::Closed { .. } => Shown::Closed,
            // Below an order it stays what it was.
            Event::ByHand { .. } => now(),
        };
        let count = STATES.iter().zip(&self.transitions).find(|(state, _)| **state == into);
        if let Some((_, count)) = count {
            count.add(1);
        }
    }

    pub fn transitions(&self) -> Vec<(Shown, u64)> {
        STATES.iter().zip(&self.transitions).map(|(state, count)| (*state, count.get())).collect()
    }

    pub fn episodes(&self) -> u64 {
        self.episodes.get()
    }
}
