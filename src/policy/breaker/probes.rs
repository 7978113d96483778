//! One round of probes: who is out, and what came back.

use std::time::Duration;

use super::rules::Probes;
use crate::policy::Instant;

/// So many probes without evidence end a round.
const WITHOUT_EVIDENCE: u32 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    out: Vec<Out>,
    good: u32,
    bad: u32,
    silent: u32,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    id: u64,
    /// Since when it is waited for: its admission, then the beginning of its attempt.
    since: Instant,
    /// Its attempt has begun: the vendor was asked.
    began: bool,
}

/// One that is out for too long.
pub(super) struct Lost {
    pub(super) at: Instant,
    /// Only then it is one without evidence: what was never sent asked nothing.
    pub(super) was_sent: bool,
}

/// What a round has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Nothing,
    Recovery,
    Failure,
    NoEvidence,
}

impl Round {
    /// Whether one more may go. No more go out than can still decide.
    pub(super) fn has_place(&self, probes: &Probes) -> bool {
        let out = self.out();
        out < probes.parallel && out + self.good + self.bad < probes.needed + probes.allowed_bad
    }

    pub(super) fn enter(&mut self, id: u64, now: Instant) {
        self.out.push(Out { id, since: now, began: false });
    }

    pub(super) fn holds(&self, id: u64) -> bool {
        self.out.iter().any(|probe| probe.id == id)
    }

    /// Its attempt begins: from here on it is waited for.
    pub(super) fn begins(&mut self, id: u64, now: Instant) {
        if let Some(probe) = self.out.iter_mut().find(|probe| probe.id == id) {
            (probe.since, probe.began) = (now, true);
        }
    }

    /// Takes it back. False where it was replaced.
    pub(super) fn leave(&mut self, id: u64) -> bool {
        let before = self.out.len();
        self.out.retain(|probe| probe.id != id);
        self.out.len() < before
    }

    pub(super) fn good(&mut self) {
        self.good += 1;
    }

    pub(super) fn bad(&mut self) {
        self.bad += 1;
    }

    pub(super) fn silent(&mut self) {
        self.silent += 1;
    }

    pub(super) fn shows(&self, probes: &Probes) -> Shows {
        if self.bad > probes.allowed_bad {
            Shows::Failure
        } else if self.good >= probes.needed {
            Shows::Recovery
        } else if self.silent >= WITHOUT_EVIDENCE {
            Shows::NoEvidence
        } else {
            Shows::Nothing
        }
    }

    /// When the next of those out is lost, if no answer comes.
    pub(super) fn next_lost(&self, timeout: Duration) -> Option<Instant> {
        self.out.iter().map(|probe| probe.since + timeout).min()
    }

    /// Gives up the oldest one if it is lost by now.
    pub(super) fn lose(&mut self, now: Instant, timeout: Duration) -> Option<Lost> {
        let at = self.next_lost(timeout).filter(|lost_at| *lost_at <= now)?;
        let oldest = self.out.iter().position(|probe| probe.since + timeout == at)?;
        let was_sent = self.out.remove(oldest).began;
        if was_sent {
            self.silent();
        }
        Some(Lost { at, was_sent })
    }

    pub(super) fn out(&self) -> u32 {
        u32::try_from(self.out.len()).unwrap_or(u32::MAX)
    }

    pub(super) const fn bad_count(&self) -> u32 {
        self.bad
    }
}
