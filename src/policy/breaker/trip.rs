//! When it trips: bad ones in a row, the rate of bad ones, the rate of slow ones.

use std::collections::VecDeque;
use std::time::Duration;

use super::event::Cause;
use super::rules::{Rate, Rules, Slow};
use super::window::Window;
use crate::policy::Instant;

/// What is counted in one epoch.
#[derive(Clone, Debug)]
pub(super) struct Trip {
    pub(super) streak: Streak,
    rate: Option<(Rate, Window)>,
    slow: Option<(Slow, Window, Running)>,
}

impl Trip {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            streak: Streak::new(rules.streak),
            rate: rules.rate.map(|rate| (rate, Window::new(rate.over))),
            slow: rules.slow.map(|slow| (slow, Window::new(slow.over), Running::default())),
        }
    }

    pub(super) fn clear(&mut self) {
        self.streak.clear();
        if let Some((_, window)) = &mut self.rate {
            window.clear();
        }
        if let Some((_, window, running)) = &mut self.slow {
            window.clear();
            running.clear();
        }
    }

    /// An attempt begins. The answer is its place among the running ones, where slow ones matter.
    pub(super) fn begins(&mut self, now: Instant) -> Option<u64> {
        self.slow.as_mut().map(|(_, _, running)| running.push(now))
    }

    /// An attempt is over. Whether it counted as slow already, while it ran.
    pub(super) fn ends(&mut self, place: Option<u64>) -> bool {
        match (&mut self.slow, place) {
            (Some((_, _, running)), Some(place)) => !running.remove(place),
            _ => false,
        }
    }

    /// Whether so long is slow.
    pub(super) fn is_slow(&self, elapsed: Duration) -> bool {
        self.slow.as_ref().is_some_and(|(slow, _, _)| elapsed >= slow.limit)
    }

    /// A good or bad one enters the rate.
    pub(super) fn count(&mut self, now: Instant, bad: bool) {
        if let Some((_, window)) = &mut self.rate {
            window.push(now, bad);
        }
    }

    pub(super) fn count_slow(&mut self, now: Instant, is_slow: bool) {
        if let Some((_, window, _)) = &mut self.slow {
            window.push(now, is_slow);
        }
    }

    /// Counts each running call that has become overdue, once. Whether there was one.
    pub(super) fn see_overdue(&mut self, now: Instant) -> bool {
        let Some((slow, window, running)) = &mut self.slow else { return false };
        let mut any = false;
        while running.pop_overdue(now, slow.limit) {
            window.push(now, true);
            any = true;
        }
        any
    }

    /// Why it trips now, if it does.
    pub(super) fn due(&mut self, now: Instant) -> Option<Cause> {
        if self.streak.limit > 0 && self.streak.count >= self.streak.limit {
            return Some(Cause::Streak);
        }
        if let Some((rate, window)) = &mut self.rate
            && window.share(now, rate.min).is_some_and(|share| share >= rate.at_least)
        {
            return Some(Cause::Rate);
        }
        if let Some((slow, window, _)) = &mut self.slow
            && window.share(now, slow.min).is_some_and(|share| share >= slow.at_least)
        {
            return Some(Cause::Slow);
        }
        None
    }

    pub(super) fn failure_rate(&mut self, now: Instant) -> Option<f64> {
        self.rate.as_mut().and_then(|(rate, window)| window.share(now, rate.min))
    }

    pub(super) fn slow_rate(&mut self, now: Instant) -> Option<f64> {
        self.slow.as_mut().and_then(|(slow, window, _)| window.share(now, slow.min))
    }
}

/// Bad ones in a row, each logical call once.
#[derive(Clone, Debug)]
pub(super) struct Streak {
    /// Zero without a rule.
    limit: u32,
    count: u32,
    /// Who failed: as many as can matter.
    calls: Vec<u64>,
    /// The first pass that was handed out after the streak began: only such a one can end it.
    first_after: u64,
}

impl Streak {
    fn new(limit: Option<u32>) -> Self {
        let limit = limit.unwrap_or(0);
        Self { limit, count: 0, calls: Vec::with_capacity(limit as usize), first_after: 0 }
    }

    pub(super) fn bad(&mut self, call: u64, next_pass: u64) {
        if self.count == 0 {
            self.first_after = next_pass;
        }
        if self.calls.contains(&call) {
            return;
        }
        if self.calls.len() < self.limit as usize {
            self.calls.push(call);
        }
        self.count = self.count.saturating_add(1);
    }

    pub(super) fn good(&mut self, pass: u64) {
        if self.count > 0 && pass >= self.first_after {
            self.clear();
        }
    }

    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    fn clear(&mut self) {
        self.count = 0;
        self.calls.clear();
    }
}

/// The attempts that are under way, in the order in which they began: the first is the first to be overdue.
#[derive(Clone, Debug, Default)]
struct Running {
    /// The place of the first in the line; places are numbered for good.
    first: u64,
    line: VecDeque<Attempt>,
}

#[derive(Clone, Debug)]
struct Attempt {
    began: Instant,
    over: bool,
}

impl Running {
    fn push(&mut self, now: Instant) -> u64 {
        self.line.push_back(Attempt { began: now, over: false });
        self.first + self.line.len() as u64 - 1
    }

    /// Whether it was still there.
    fn remove(&mut self, place: u64) -> bool {
        let Some(at) = place.checked_sub(self.first) else { return false };
        if let Some(attempt) = self.line.get_mut(at as usize) {
            attempt.over = true;
        }
        while self.line.front().is_some_and(|first| first.over) {
            self.pop();
        }
        true
    }

    fn pop_overdue(&mut self, now: Instant, limit: Duration) -> bool {
        while let Some(first) = self.line.front() {
            let overdue = now.saturating_since(first.began) >= limit;
            if first.over {
                self.pop();
            } else if overdue {
                self.pop();
                return true;
            } else {
                return false;
            }
        }
        false
    }

    fn clear(&mut self) {
        self.first += self.line.len() as u64;
        self.line.clear();
    }

    fn pop(&mut self) {
        self.line.pop_front();
        self.first += 1;
    }
}
