//! How long a failing store is tried before it is judged to be out.
//!
//! Counted from the first failure that was observed, never from the last: a store that fails every second would otherwise
//! be tried for ever. After the judgement each newcomer makes one attempt and fails fast, until one succeeds.

use std::time::Duration;

use super::Instant;

/// Pause between two attempts, before a quarter of it up or down at random, so that a fleet does not come back in step.
const RETRY: Duration = Duration::from_millis(200);

/// The outage clock of one lane.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    max: Duration,
    attempt: Duration,
    first_failure: Option<Instant>,
    last_failure: Option<Instant>,
    judged: bool,
}

/// What a failure means for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not yet an outage: try again at this moment.
    RetryAt(Instant),
    /// The store is out, for this long already: nobody waits any longer.
    Out(Duration),
}

impl Outage {
    /// A store that is well, and is judged to be out when it has failed for `max`. One attempt takes at most `attempt`: a
    /// longer silence between two failures means that nobody tried, not that the store was out.
    pub const fn new(max: Duration, attempt: Duration) -> Self {
        Self { max, attempt, first_failure: None, last_failure: None, judged: false }
    }

    /// A store call failed. `spread` in [0, 1) spreads the retries of a fleet.
    pub fn failed(&mut self, now: Instant, spread: f64) -> Verdict {
        let silence = self.last_failure.map_or(Duration::ZERO, |last| now.saturating_since(last));
        if !self.judged && silence > self.attempt + 2 * RETRY {
            self.first_failure = None;
        }
        self.last_failure = Some(now);
        let since = now.saturating_since(*self.first_failure.get_or_insert(now));
        self.judged |= since >= self.max;
        if self.judged { Verdict::Out(since) } else { Verdict::RetryAt(now + RETRY.mul_f64(0.75 + 0.5 * spread)) }
    }

    /// A store call succeeded.
    pub const fn over(&mut self) {
        *self = Self::new(self.max, self.attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn an_outage_is_judged_from_its_first_failure_not_from_its_last() {
        let mut outage = Outage::new(Duration::from_secs(2), Duration::from_secs(1));
        for ms in (1000..3000).step_by(200) {
            assert!(matches!(outage.failed(at(ms), 0.5), Verdict::RetryAt(_)), "{ms}");
        }
        assert_eq!(outage.failed(at(3000), 0.5), Verdict::Out(Duration::from_secs(2)));
    }

    #[test]
    fn after_the_judgement_one_failure_is_enough_until_one_success() {
        let mut outage = Outage::new(Duration::from_secs(2), Duration::from_secs(1));
        for ms in [0, 1000, 2000, 60_000] {
            let out = matches!(outage.failed(at(ms), 0.0), Verdict::Out(_));
            assert_eq!(out, ms >= 2000, "{ms}");
        }
        outage.over();
        assert!(matches!(outage.failed(at(61_000), 0.0), Verdict::RetryAt(_)));
    }

    #[test]
    fn a_failure_long_after_another_begins_anew_since_nobody_tried_in_between() {
        let mut outage = Outage::new(Duration::from_secs(2), Duration::from_secs(1));
        outage.failed(at(0), 0.0);
        assert!(matches!(outage.failed(at(3_600_000), 0.0), Verdict::RetryAt(_)));
    }

    #[test]
    fn retries_are_spread_over_a_quarter_up_and_down() {
        let mut outage = Outage::new(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(outage.failed(at(0), 0.0), Verdict::RetryAt(at(150)));
        assert_eq!(outage.failed(at(0), 0.5), Verdict::RetryAt(at(200)));
    }
}
