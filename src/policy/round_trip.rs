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
    next_probe: Option<Duration>,
}

impl RoundTrip {
    /// A way that may take `max` there and back, and is trusted until it was seen to take longer.
    pub const fn new(max: Duration) -> Self {
        Self { max, next_probe: None }
    }

    /// Notes a round trip; false if it was too long for what it brought to be used.
    pub fn observe(&mut self, took: Duration) -> bool {
        let short = took <= self.max;
        self.next_probe = match self.next_probe {
            _ if short => None,
            None => Some(FIRST_PROBE),
            Some(pause) => Some((pause * 2).min(LAST_PROBE)),
        };
        short
    }

    /// How long to pause before a probe, or `None` where slots may be asked for.
    pub const fn probe_after(&self) -> Option<Duration> {
        self.next_probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_round_trip_nothing_is_asked_for_until_a_probe_was_short() {
        let ms = Duration::from_millis;
        let mut way = RoundTrip::new(ms(25));
        assert!(way.observe(ms(25)));
        assert_eq!(way.probe_after(), None);
        assert!(!way.observe(ms(26)));
        assert_eq!(way.probe_after(), Some(ms(20)));
        assert!(!way.observe(ms(90)));
        assert_eq!(way.probe_after(), Some(ms(40)));
        for _ in 0..20 {
            way.observe(ms(90));
        }
        assert_eq!(way.probe_after(), Some(LAST_PROBE));
        assert!(way.observe(ms(3)));
        assert_eq!(way.probe_after(), None);
    }
}
