//! The last outcomes, and how many of them are marked: bad ones in one window, slow ones in another.

use std::collections::VecDeque;
use std::time::Duration;

use super::rules::Over;
use crate::policy::Instant;

/// Outcomes of a time window that came within this part of it are kept together, so that a window never holds more than so
/// many stretches however many calls there are. They leave together with their first.
const STRETCHES: u32 = 256;

#[derive(Clone, Debug)]
pub(super) struct Window {
    kept: Kept,
    marked: u32,
    total: u32,
}

#[derive(Clone, Debug)]
enum Kept {
    /// The mark of each of the last calls, a ring of bits.
    Calls {
        bits: Vec<u64>,
        size: u32,
        next: u32,
    },
    Time {
        length: Duration,
        stretches: VecDeque<Stretch>,
    },
}

#[derive(Clone, Debug)]
struct Stretch {
    first: Instant,
    marked: u32,
    total: u32,
}

impl Window {
    pub(super) fn new(over: Over) -> Self {
        let kept = match over {
            Over::Calls(size) => Kept::Calls { bits: vec![0; size.div_ceil(64) as usize], size, next: 0 },
            Over::Time(length) => Kept::Time { length, stretches: VecDeque::with_capacity(STRETCHES as usize + 1) },
        };
        Self { kept, marked: 0, total: 0 }
    }

    pub(super) fn push(&mut self, now: Instant, mark: bool) {
        self.slide(now);
        match &mut self.kept {
            Kept::Calls { bits, size, next } => {
                let (word, bit) = ((*next / 64) as usize, 1 << (*next % 64));
                if self.total == *size {
                    self.marked -= u32::from(bits[word] & bit != 0);
                } else {
                    self.total += 1;
                }
                if mark {
                    bits[word] |= bit;
                } else {
                    bits[word] &= !bit;
                }
                *next = if *next + 1 == *size { 0 } else { *next + 1 };
            }
            Kept::Time { length, stretches } => {
                self.total = self.total.saturating_add(1);
                match stretches.back_mut() {
                    Some(last) if now.saturating_since(last.first) < *length / STRETCHES => {
                        last.total = last.total.saturating_add(1);
                        last.marked += u32::from(mark);
                    }
                    _ => stretches.push_back(Stretch { first: now, marked: u32::from(mark), total: 1 }),
                }
            }
        }
        self.marked += u32::from(mark);
    }

    /// The marked share, from `min` outcomes on.
    pub(super) fn share(&mut self, now: Instant, min: u32) -> Option<f64> {
        self.slide(now);
        (self.total >= min).then(|| f64::from(self.marked) / f64::from(self.total))
    }

    pub(super) fn clear(&mut self) {
        (self.marked, self.total) = (0, 0);
        match &mut self.kept {
            Kept::Calls { next, .. } => *next = 0,
            Kept::Time { stretches, .. } => stretches.clear(),
        }
    }

    /// Forgets what is too old.
    fn slide(&mut self, now: Instant) {
        if let Kept::Time { length, stretches } = &mut self.kept {
            while let Some(first) = stretches.front().filter(|first| now.saturating_since(first.first) >= *length) {
                self.total = self.total.saturating_sub(first.total);
                self.marked = self.marked.saturating_sub(first.marked);
                stretches.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn a_window_of_calls_holds_the_last_ones_and_no_other() {
        let mut window = Window::new(Over::Calls(70));
        for turn in 0..1000 {
            window.push(at(turn), turn % 10 == 0);
        }
        assert_eq!(window.share(at(0), 70), Some(0.1));
        for _ in 0..70 {
            window.push(at(0), true);
        }
        assert_eq!(window.share(at(0), 1), Some(1.0));
        window.clear();
        assert_eq!(window.share(at(0), 1), None);
    }

    #[test]
    fn a_window_of_time_forgets_each_sparse_outcome_at_its_own_instant() {
        let mut window = Window::new(Over::Time(Duration::from_secs(10)));
        window.push(at(0), true);
        window.push(at(1000), false);
        assert_eq!(window.share(at(9999), 2), Some(0.5));
        assert_eq!(window.share(at(10_000), 2), None);
        assert_eq!(window.share(at(10_999), 1), Some(0.0));
        assert_eq!(window.share(at(11_000), 1), None);
    }

    #[test]
    fn a_window_of_time_stays_small_however_many_outcomes_come() {
        let mut window = Window::new(Over::Time(Duration::from_secs(10)));
        for ms in 0..100_000 {
            window.push(at(ms), ms % 4 == 0);
        }
        let Kept::Time { stretches, .. } = &window.kept else { panic!("a window of time") };
        assert!(stretches.len() <= STRETCHES as usize + 1, "{}", stretches.len());
        let held = window.total;
        assert!((9900..=10_000).contains(&held), "{held}: the last 10 s, or up to 1/256 less");
    }
}
