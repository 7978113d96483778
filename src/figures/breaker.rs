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
    /// What happened in one step of the machine; `now` is the state that there is to see after it.
    pub fn happened(&self, events: &[Event], now: impl FnOnce() -> Shown) {
        let (mut latest, mut by_hand) = (None, false);
        for event in events {
            match event {
                Event::Failure { .. } => {}
                Event::EpisodeSummary(_) => self.episodes.add(1),
                Event::Opened { .. } | Event::Reopened { .. } => latest = Some(self.came_to(Shown::Open)),
                Event::Closed { .. } => latest = Some(self.came_to(Shown::Closed)),
                Event::ByHand { .. } => by_hand = true,
            }
        }
        // A reset is told, and so is that it has closed: one change.
        if by_hand {
            let now = now();
            if latest != Some(now) {
                self.came_to(now);
            }
        }
    }

    fn came_to(&self, into: Shown) -> Shown {
        if let Some((_, count)) = STATES.iter().zip(&self.transitions).find(|(state, _)| **state == into) {
            count.add(1);
        }
        into
    }

    pub fn transitions(&self) -> Vec<(Shown, u64)> {
        STATES.iter().zip(&self.transitions).map(|(state, count)| (*state, count.get())).collect()
    }

    pub fn episodes(&self) -> u64 {
        self.episodes.get()
    }
}
