//! How a vendor counts: the three kinds of window. Pure, `now` is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Instant;

/// The kind of the vendor's window. Nobody outside KIS knows which one KIS uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Windows end to end, the first one beginning where the clock begins
    Fixed,
    /// A window opens with the first call after the last one has ended
    FirstCall,
    /// The closed window that ends at each call: [t - window, t]
    Sliding,
}

/// How much may arrive in a window.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub units: u32,
    pub window: Duration,
    pub kind: Kind,
}

/// Counts what arrives, refused calls too: a call that was refused has arrived all the same.
#[derive(Debug, Default)]
pub struct Counter {
    recent: VecDeque<(Instant, u32)>,
    opened: Option<Instant>,
    latest: Instant,
}

impl Counter {
    /// Counts a call of `units` that arrived at `now`; false if it is over the limit.
    ///
    /// A call whose head took so long that later calls were counted first is counted as if it came with the latest.
    pub fn admits(&mut self, now: Instant, units: u32, limit: Limit) -> bool {
        let now = now.max(self.latest);
        self.latest = now;
        self.recent.push_back((now, units));
        let oldest = now - limit.window;
        while self.recent.front().is_some_and(|(at, _)| *at < oldest) {
            self.recent.pop_front();
        }
        let from = match limit.kind {
            Kind::Fixed => fixed_window_start(now, limit.window),
            Kind::FirstCall => self.first_call_window_start(now, limit.window),
            Kind::Sliding => oldest,
        };
        let counted: u64 = self.recent.iter().filter(|(at, _)| *at >= from).map(|(_, units)| u64::from(*units)).sum();
        counted <= u64::from(limit.units)
    }

    fn first_call_window_start(&mut self, now: Instant, window: Duration) -> Instant {
        match self.opened {
            Some(opened) if now < opened + window => opened,
            _ => {
                self.opened = Some(now);
                now
            }
        }
    }
}

fn fixed_window_start(now: Instant, window: Duration) -> Instant {
    let since_boot = now.since_boot();
    let into_window = since_boot.as_nanos() % window.as_nanos().max(1);
    now - Duration::from_nanos(u64::try_from(into_window).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(kind: Kind, units: u32, calls: &[(u64, u32)]) -> Vec<bool> {
        let limit = Limit { units, window: Duration::from_millis(1000), kind };
        let mut counter = Counter::default();
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        calls.iter().map(|(ms, cost)| counter.admits(at(*ms), *cost, limit)).collect()
    }

    #[test]
    fn a_sliding_window_is_closed_at_both_ends() {
        assert_eq!(verdicts(Kind::Sliding, 1, &[(5_000, 1), (6_000, 1)]), [true, false]);
        assert_eq!(verdicts(Kind::Sliding, 1, &[(5_000, 1), (6_001, 1)]), [true, true]);
    }

    #[test]
    fn a_fixed_window_forgets_at_its_boundary() {
        assert_eq!(verdicts(Kind::Fixed, 1, &[(5_999, 1), (6_000, 1), (6_999, 1)]), [true, true, false]);
    }

    #[test]
    fn a_first_call_window_opens_with_a_call_and_runs_its_length() {
        let calls = [(5_300, 1), (6_299, 1), (6_300, 1), (7_299, 1), (9_000, 1)];
        assert_eq!(verdicts(Kind::FirstCall, 1, &calls), [true, false, true, false, true]);
    }

    #[test]
    fn costs_are_counted_and_a_refused_call_has_arrived_all_the_same() {
        assert_eq!(verdicts(Kind::Sliding, 3, &[(0, 2), (10, 2), (1_005, 2)]), [true, false, false]);
        assert_eq!(verdicts(Kind::Sliding, 3, &[(0, 2), (10, 1), (1_005, 2)]), [true, true, true]);
    }

    #[test]
    fn a_call_that_is_counted_after_later_ones_is_still_counted() {
        assert_eq!(verdicts(Kind::Sliding, 1, &[(5_000, 1), (3_000, 1)]), [true, false]);
    }
}
