//! How long things took, in fixed steps: two atomics for each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// From what a store call takes at its best to what nobody waits for. 25 ms is the longest round trip whose slots are used,
/// where nothing else is set.
const STEPS: [Duration; 15] = [
    ms(1),
    Duration::from_micros(2_500),
    ms(5),
    ms(10),
    ms(25),
    ms(50),
    ms(100),
    ms(250),
    ms(500),
    ms(1_000),
    ms(2_500),
    ms(5_000),
    ms(10_000),
    ms(30_000),
    ms(60_000),
];
/// One more, for what took longer than the last step.
const COUNTS: usize = STEPS.len() + 1;

/// How many took how long, from 1 ms to 60 s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; COUNTS],
    sum: Duration,
}

impl Histogram {
    /// Each step with how many took longer than the step before and at most as long as this one; the last, which has no
    /// bound, those of more than 60 s.
    pub fn steps(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        STEPS.iter().copied().map(Some).chain([None]).zip(self.counts)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all of them took together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    #[cfg(feature = "cli")]
    pub(crate) fn add(&mut self, took: Duration) {
        self.counts[step(took)] += 1;
        self.sum = self.sum.saturating_add(took);
    }
}

/// Counts into a histogram.
#[derive(Debug, Default)]
pub(super) struct Steps {
    counts: [AtomicU64; COUNTS],
    sum_ns: AtomicU64,
}

impl Steps {
    pub fn add(&self, took: Duration) {
        self.counts[step(took)].fetch_add(1, Ordering::Relaxed);
        // Half a thousand years of waiting.
        self.sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn add_all(&self, others: &Steps) {
        for (count, more) in self.counts.iter().zip(&others.counts) {
            count.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(others.sum_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub fn read(&self) -> Histogram {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        Histogram { counts, sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)) }
    }
}

fn step(took: Duration) -> usize {
    STEPS.iter().position(|step| took <= *step).unwrap_or(STEPS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_falls_into_the_first_step_that_is_not_shorter() {
        let steps = Steps::default();
        for took in [ms(0), ms(1), Duration::from_micros(1_001), ms(25), ms(60_000), ms(60_001)] {
            steps.add(took);
        }
        let read = steps.read();
        let filled: Vec<_> = read.steps().filter(|(_, count)| *count > 0).collect();
        let (short, long) = ((Some(ms(1)), 2), (Some(ms(60_000)), 1));
        assert_eq!(filled, [short, (Some(STEPS[1]), 1), (Some(ms(25)), 1), long, (None, 1)]);
        assert_eq!((read.count(), read.sum()), (6, Duration::from_micros(120_028_001)));
        assert!(STEPS.is_sorted() && STEPS[0] == ms(1) && STEPS[14] == ms(60_000));
    }
}
