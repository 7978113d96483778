//! The pace of a process on its own, while the switch is off: at least `interval` between two starts.

use std::time::Duration;

use super::Instant;

/// One class's own pace. Nothing is saved up while it rests.
#[derive(Clone, Copy, Debug)]
pub struct Polite {
    interval: Duration,
    last: Option<Instant>,
}

impl Polite {
    /// A pace of one start per `interval`.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, last: None }
    }

    /// The moment at which the next start may happen.
    pub fn next_start(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| now.max(last + self.interval))
    }

    /// Takes the next start.
    pub fn take(&mut self, now: Instant) -> Instant {
        let start = self.next_start(now);
        self.last = Some(start);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_an_interval_apart_and_rest_saves_nothing_up() {
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        let mut pace = Polite::new(Duration::from_millis(100));
        assert_eq!(pace.take(at(0)), at(0));
        assert_eq!(pace.take(at(10)), at(100));
        assert_eq!(pace.take(at(5000)), at(5000));
        assert_eq!(pace.take(at(5001)), at(5100));
    }
}
