//! One episode: from the first trip to proven recovery.

use std::time::Duration;

use super::Moment;
use super::event::{Cause, Summary};
use super::view::EpisodeView;
use crate::policy::{Instant, Wall};

#[derive(Clone, Debug)]
pub(super) struct Episode {
    started: Instant,
    started_at: Wall,
    cause: Cause,
    /// Blocked time up to `counted_to`.
    total_open: Duration,
    counted_to: Instant,
    pub(super) reopen_count: u32,
    pub(super) probe_count: u32,
    pub(super) lost_probes: u32,
    pub(super) rejected: u64,
    /// Good ones in a row in CLOSED.
    pub(super) good_in_row: u32,
    /// Since when it is CLOSED without a bad one.
    pub(super) quiet_since: Instant,
}

impl Episode {
    pub(super) fn new(at: Moment, cause: Cause) -> Self {
        Self {
            started: at.now,
            started_at: at.wall,
            cause,
            total_open: Duration::ZERO,
            counted_to: at.now,
            reopen_count: 0,
            probe_count: 0,
            lost_probes: 0,
            rejected: 0,
            good_in_row: 0,
            quiet_since: at.now,
        }
    }

    /// Counts the time since the last count, which was `blocked` or not.
    pub(super) fn count_time(&mut self, now: Instant, blocked: bool) {
        if blocked {
            self.total_open += now.saturating_since(self.counted_to);
        }
        self.counted_to = self.counted_to.max(now);
    }

    pub(super) fn quiet_from(&mut self, now: Instant) {
        self.quiet_since = now;
        self.good_in_row = 0;
    }

    pub(super) fn summary(&self, ended: Instant) -> Summary {
        Summary {
            started_at: self.started_at,
            duration: ended.saturating_since(self.started),
            total_open: self.total_open,
            reopen_count: self.reopen_count,
            probe_count: self.probe_count,
            lost_probes: self.lost_probes,
            rejected: self.rejected,
            cause: self.cause,
        }
    }

    pub(super) const fn view(&self) -> EpisodeView {
        EpisodeView {
            started_at: self.started_at,
            total_open: self.total_open,
            reopen_count: self.reopen_count,
            probe_count: self.probe_count,
            cause: self.cause,
        }
    }
}
