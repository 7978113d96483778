//! The mock's own pulse. A vendor that did not run cannot say when a call arrived: what came meanwhile is all read when
//! it wakes, and looks like a burst. So it records its own stalls. Pure, `now` is an argument.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Instant;

/// How often the heart beats.
pub const BEAT: Duration = Duration::from_millis(10);

/// A time in which the mock did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// When the missed beat was due, in microseconds of the machine's clock.
    pub at_us: u64,
    /// How late it came, in microseconds.
    pub for_us: u64,
}

impl Stall {
    /// Whether any moment of the stall lies in the closed interval.
    pub fn overlaps(&self, from_us: u64, to_us: u64) -> bool {
        self.at_us <= to_us && self.at_us.saturating_add(self.for_us) >= from_us
    }
}

/// The beats so far.
#[derive(Debug, Default)]
pub struct Heartbeat {
    last: Option<Instant>,
    stalls: Vec<Stall>,
}

impl Heartbeat {
    /// A sign of life at `now`. It is a stall if it comes more than `jitter` after it was due.
    pub fn beat(&mut self, now: Instant, jitter: Duration) {
        if let Some(last) = self.last {
            let due = last + BEAT;
            let late = now.saturating_since(due);
            if late > jitter {
                self.stalls.push(Stall { at_us: micros(due.since_boot()), for_us: micros(late) });
            }
        }
        self.last = Some(now);
    }

    pub fn stalls(&self) -> &[Stall] {
        &self.stalls
    }

    pub fn forget_stalls(&mut self) {
        self.stalls.clear();
    }
}

pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_a_stall_only_when_it_is_late_by_more_than_the_jitter() {
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        let jitter = Duration::from_millis(50);
        let mut heartbeat = Heartbeat::default();
        for ms in [100, 110, 170, 241] {
            heartbeat.beat(at(ms), jitter);
        }
        assert_eq!(heartbeat.stalls(), [Stall { at_us: 180_000, for_us: 61_000 }]);
    }

    #[test]
    fn a_stall_overlaps_what_touches_it() {
        let stall = Stall { at_us: 100, for_us: 50 };
        assert!(stall.overlaps(150, 200) && stall.overlaps(0, 100) && stall.overlaps(120, 130));
        assert!(!stall.overlaps(151, 200) && !stall.overlaps(0, 99));
    }
}
