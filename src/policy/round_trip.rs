//! When the way to the store is too slow to take slots over it.
//!
//! A slot that took too long to arrive is dropped. Whoever then simply asked again would take and drop for ever, and the
//! others would get what is left: so the lane probes, taking nothing, until a round trip is short enough.

use std::time::Duration;

const FIRST_PROBE: Duration = Duration::from_millis(20);
const LAST_PROBE: Duration = Duration::from_secs(1);

/// What one lane knows of its way to the store.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    max: Duration,
    pause: Option<Duration>,
    probed: bool,
}

impl RoundTrip {
    /// A way that may take `max` there and back, and is trusted until it was seen to take longer.
    pub const fn new(max: Duration) -> Self {
        Self { max, pause: None, probed: false }
    }

    /// Notes how long an answer with slots took, whose calls may leave for `send_window` after their slots; false if that
    /// was too long for them to be used.
    pub fn observe(&mut self, took: Duration, send_window: Duration) -> bool {
        let short = took <= self.max.min(send_window);
        if short {
            self.pause = None
        } else {
            self.lengthen()
        }
        short
    }

    /// Notes how long a probe took. A short one allows one more question, no more: it does not commit, and so does not
    /// measure what may have been slow.
    pub fn observe_probe(&mut self, took: Duration) {
        self.probed = took <= self.max;
        if !self.probed {
            self.lengthen();
        }
    }

    /// How long to pause before a probe, or `None` where slots may be asked for.
    pub fn probe_after(&self) -> Option<Duration> {
        self.pause.filter(|_| !self.probed)
    }

    fn lengthen(&mut self) {
        self.probed = false;
        self.pause = Some(self.pause.map_or(FIRST_PROBE, |pause| (pause * 2).min(LAST_PROBE)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn after_a_long_round_trip_nothing_is_asked_for_until_a_probe_was_short() {
        let mut way = RoundTrip::new(MS(25));
        assert!(way.observe(MS(25), MS(50)));
        assert_eq!(way.probe_after(), None);
        assert!(!way.observe(MS(26), MS(50)));
        assert_eq!(way.probe_after(), Some(MS(20)));
        way.observe_probe(MS(90));
        assert_eq!(way.probe_after(), Some(MS(40)));
        for _ in 0..20 {
            way.observe_probe(MS(90));
        }
        assert_eq!(way.probe_after(), Some(LAST_PROBE));
        way.observe_probe(MS(3));
        assert_eq!(way.probe_after(), None);
    }

    #[test]
    fn short_probes_between_long_answers_do_not_bring_the_pause_back() {
        let mut way = RoundTrip::new(MS(25));
        for pause in [20, 40, 80] {
            assert!(!way.observe(MS(30), MS(50)));
            assert_eq!(way.probe_after(), Some(MS(pause)));
            way.observe_probe(MS(1));
            assert_eq!(way.probe_after(), None);
        }
        assert!(way.observe(MS(3), MS(50)));
        assert!(!way.observe(MS(30), MS(50)));
        assert_eq!(way.probe_after(), Some(MS(20)), "a short answer was trusted again");
    }

    #[test]
    fn a_round_trip_longer_than_the_send_window_is_long() {
        let mut way = RoundTrip::new(MS(25));
        assert!(!way.observe(MS(15), MS(10)));
        assert!(way.probe_after().is_some());
    }
}
