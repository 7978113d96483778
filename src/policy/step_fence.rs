//! What a step of the store's clock means for one budget.
//!
//! Why a fence: it keeps everything until the last slot that can have been promised before the step is over, whoever holds
//! it. A step forward needs that. For a step back the schema shifts its dates by itself, and no slot comes early; it is
//! fenced all the same: a process sees only the sum of what happened between two of its answers, and further back than
//! forward looks like back. A quiet moment is cheap, a guess about the limit is not.
//!
//! Rule: from the first answer that shows the step, what was granted under the budget is dropped, until it is fenced. It is
//! when an answer's fence counter has grown since it was last read (somebody else saw the step, or the server forgot
//! something and fenced by itself; since that may have been over before the step, this process keeps quiet as long), or when the store has fenced for this process. A store that will not, since there was a
//! fence within 10 s, may have had it before the step: then this process keeps the quiet moment on its own, as each one
//! does that sees the step.

use std::time::Duration;

use super::Instant;
use super::store_clock::{MEMORY, Step};

/// One budget's fences, as its answers tell of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepFence {
    /// The highest fence counter, and when it was last read.
    seen: Option<(Instant, i64)>,
    /// The number of the last step that is dealt with.
    settled: u64,
    wanted: Option<Wanted>,
    /// An answer that was asked for before this moment counts only if its fence counter is at least `covering`.
    counts_from: Instant,
    covering: i64,
}

/// A fence that is still to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The step that it is for.
    pub step: u64,
    /// How long the quiet moment takes.
    pub quiet: Duration,
    /// Nothing that was promised before the step is out any longer.
    until: Instant,
}

impl StepFence {
    /// Whether what an answer granted may be used. `latest` is the latest step that this process knows of, `quiet` the
    /// budget's lookahead and largest cost: how long a step matters to it.
    pub fn counts(
        &mut self,
        latest: Option<Step>,
        asked: Instant,
        answered: Instant,
        fences: i64,
        quiet: Duration,
    ) -> bool {
        let before = self.seen.filter(|(read, _)| asked.saturating_since(*read) <= MEMORY).map(|(_, count)| count);
        let grew = before.is_some_and(|count| fences > count);
        self.seen = Some((answered, self.seen.map_or(fences, |(_, count)| count.max(fences))));
        self.wanted = None;
        if let Some(step) = latest.filter(|step| step.number > self.settled) {
            let until = step.found + quiet.max(MEMORY);
            if asked <= until && !grew {
                self.wanted = Some(Wanted { step: step.number, quiet, until });
                return false;
            }
            self.settled = step.number;
            if asked <= until {
                // That fence may have been over before the step.
                (self.counts_from, self.covering) = (answered + quiet, fences + 1);
                return false;
            }
        }
        asked >= self.counts_from || fences >= self.covering
    }

    /// The highest fence counter so far; none before the first answer.
    pub fn seen(&self) -> Option<i64> {
        self.seen.map(|(_, count)| count)
    }

    /// The fence that is to be asked for now.
    pub fn wanted(&self, now: Instant) -> Option<Wanted> {
        self.wanted.filter(|wanted| now <= wanted.until)
    }

    /// The store was asked for `wanted` and has answered: whether it fenced.
    pub fn settle(&mut self, wanted: Wanted, fenced: bool, answered: Instant) {
        self.settled = self.settled.max(wanted.step);
        self.wanted = self.wanted.filter(|still| still.step > wanted.step);
        self.counts_from = if fenced { answered } else { answered + wanted.quiet };
        self.covering = self.seen.map_or(0, |(_, count)| count) + 1;
    }

    /// Asking for slots before this moment brings none that count.
    pub fn counts_from(&self) -> Instant {
        self.counts_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_millis(120);

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    fn step(number: u64, found_ms: u64) -> Option<Step> {
        Some(Step { number, found: at(found_ms), by_us: 1_000_000 })
    }

    /// A budget whose counter was 3 at 1 s.
    fn before() -> StepFence {
        let mut budget = StepFence::default();
        assert!(budget.counts(None, at(999), at(1000), 3, QUIET));
        budget
    }

    #[test]
    fn after_a_step_nothing_counts_until_the_store_has_fenced() {
        let mut budget = before();
        assert!(!budget.counts(step(1, 2000), at(1999), at(2000), 3, QUIET));
        let wanted = budget.wanted(at(2000)).unwrap();
        assert!(!budget.counts(step(1, 2000), at(2000), at(2001), 3, QUIET), "another lane's answer");
        budget.settle(wanted, true, at(2005));
        assert_eq!(budget.wanted(at(2005)), None);
        assert!(!budget.counts(step(1, 2000), at(2004), at(2006), 3, QUIET), "granted before the fence");
        assert!(budget.counts(step(1, 2000), at(2004), at(2006), 4, QUIET), "granted after it");
        assert!(budget.counts(step(1, 2000), at(2005), at(2006), 4, QUIET));
    }

    #[test]
    fn a_counter_that_grew_is_somebody_elses_fence() {
        let mut budget = before();
        assert!(!budget.counts(step(1, 2000), at(1999), at(2000), 4, QUIET), "the answer that shows it is dropped");
        assert_eq!(budget.wanted(at(2000)), None);
        assert!(!budget.counts(step(1, 2000), at(1998), at(2001), 3, QUIET), "granted before that fence");
        assert!(!budget.counts(step(1, 2000), at(2119), at(2121), 4, QUIET), "it may have been over before the step");
        assert!(budget.counts(step(1, 2000), at(2120), at(2121), 4, QUIET));
    }

    #[test]
    fn a_counter_that_was_read_long_ago_proves_nothing() {
        let mut budget = before();
        assert!(!budget.counts(step(1, 90_000), at(89_999), at(90_000), 4, QUIET));
        assert!(budget.wanted(at(90_000)).is_some());
    }

    #[test]
    fn where_the_store_will_not_fence_the_process_keeps_quiet_by_itself() {
        let mut budget = before();
        budget.counts(step(1, 2000), at(1999), at(2000), 3, QUIET);
        budget.settle(budget.wanted(at(2000)).unwrap(), false, at(2005));
        assert_eq!(budget.counts_from(), at(2125));
        assert!(!budget.counts(step(1, 2000), at(2124), at(2126), 3, QUIET));
        assert!(budget.counts(step(1, 2000), at(2125), at(2126), 3, QUIET));
    }

    #[test]
    fn a_budget_first_asked_after_the_step_is_fenced_while_that_matters() {
        let mut soon = StepFence::default();
        assert!(!soon.counts(step(1, 2000), at(2100), at(2101), 9, QUIET));
        let mut late = StepFence::default();
        assert!(late.counts(step(1, 2000), at(62_001), at(62_002), 9, QUIET));
        let mut slow = StepFence::default();
        let hour = Duration::from_secs(3600);
        assert!(!slow.counts(step(1, 2000), at(62_001), at(62_002), 9, hour), "its slots are an hour apart");
        assert!(slow.wanted(at(3_602_001)).is_none(), "and no longer");
    }

    #[test]
    fn a_step_found_while_a_fence_was_asked_for_wants_another() {
        let mut budget = before();
        budget.counts(step(1, 2000), at(1999), at(2000), 3, QUIET);
        let first = budget.wanted(at(2000)).unwrap();
        budget.counts(step(2, 2003), at(2002), at(2003), 3, QUIET);
        budget.settle(first, true, at(2005));
        assert_eq!(budget.wanted(at(2005)).unwrap().step, 2);
    }

    #[test]
    fn a_promotion_ends_what_was_wanted() {
        let mut budget = before();
        budget.counts(step(1, 2000), at(1999), at(2000), 3, QUIET);
        assert!(budget.counts(None, at(2100), at(2101), 4, QUIET));
        assert_eq!(budget.wanted(at(2101)), None);
    }
}
