//! Whether the store's clock has stepped, seen from here.
//!
//! Why: slots are dates of the store's clock. When that clock steps forward, slots that were promised before the step lie
//! in its past, and it promises the same stretch of true time again: a burst of at most floor(lookahead / interval) + 1
//! calls that the store itself cannot see. Two clocks side by side can.
//!
//! Rule: the store read its clock between the caller's `asked` and `answered`, so every answer brackets (store clock -
//! caller's clock). A bracket of earlier is compared while it is younger than 60 s, widened by 1 ms + 0.1 % of its age,
//! since clocks drift and are slewed. What still does not overlap is a step. A step larger than the two brackets and that
//! widening is found whatever its direction. From then on the new bracket is the truth and the old ones are forgotten, so
//! that one step is found once; an answer that was asked for before that moment is not compared with either.
//!
//! A caller that was suspended has no young bracket, and finds nothing. A promotion is no step: it is another server with
//! another clock, so brackets belong to one timeline. (Its first call for each budget fences by itself, by the marker.)

use std::time::Duration;

use super::Instant;

/// Brackets older than this are not compared: over a longer time, clocks may differ by more than a step that matters.
pub const MEMORY: Duration = Duration::from_secs(60);
/// What a bracket is widened by at any age: rounding, and a clock that is corrected in small jumps.
const SLACK_US: i128 = 1000;
/// Clocks drift by up to 500 ppm and are slewed by as much: a bracket is widened by this part of its age.
const DRIFT_DIVISOR: i128 = 1000;
/// As many brackets as are kept. The youngest matter most: the older a bracket is, the less it says.
const KEPT: usize = 8;

/// One reading of the store's clock, by the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// Before the request left.
    pub asked: Instant,
    /// After the answer came.
    pub answered: Instant,
    /// The store's clock somewhere in between, in microseconds.
    pub store_us: i64,
}

/// The store's clock stepped, or is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Steps are numbered from 1.
    pub number: u64,
    /// When the first answer after it had come.
    pub found: Instant,
    /// About how far, in microseconds: forward is positive.
    pub by_us: i64,
}

/// What one process knows of the store's clock.
#[derive(Clone, Debug, Default)]
pub struct StoreClock {
    timeline: Option<i64>,
    brackets: Vec<Bracket>,
    /// Where the present truth begins: answers that were asked for earlier may tell of another.
    since: Instant,
    steps: u64,
    /// Found by a probe, which cannot tell whether it was answered by another server: when, and how far.
    suspected: Option<(Instant, i64)>,
    latest: Option<Step>,
}

impl StoreClock {
    /// Notes an answer that tells its server's timeline. The step, if it is the first to show one.
    pub fn answered(&mut self, bracket: Bracket, timeline: i64) -> Option<Step> {
        let is_older = bracket.asked < self.since;
        // Older than a step that a probe has found, it may have been answered on either side of it.
        if is_older && self.suspected.is_none() {
            return None;
        }
        if self.timeline.replace(timeline).is_some_and(|before| before != timeline) {
            self.brackets.clear();
            (self.suspected, self.latest) = (None, None);
            self.since = bracket.answered;
        }
        let found = if is_older { None } else { self.note(bracket).map(|by_us| (bracket.answered, by_us)) };
        let (found, by_us) = self.suspected.take().or(found)?;
        self.steps += 1;
        self.latest = Some(Step { number: self.steps, found, by_us });
        self.latest
    }

    /// Notes an answer that does not tell its server's timeline. What it finds is a step if the next answer that tells is
    /// of the same timeline as before.
    pub fn probed(&mut self, bracket: Bracket) {
        if bracket.asked >= self.since
            && let Some(by_us) = self.note(bracket)
        {
            self.suspected = Some((bracket.answered, by_us));
        }
    }

    /// The latest step on this timeline.
    pub fn latest(&self) -> Option<Step> {
        self.latest
    }

    /// Adds a bracket. About how far the clock has stepped, if one of earlier does not overlap with it.
    fn note(&mut self, bracket: Bracket) -> Option<i64> {
        self.brackets.retain(|earlier| earlier.span_to(&bracket) <= MEMORY);
        let stepped = self.brackets.iter().rev().find(|earlier| !earlier.overlaps(&bracket));
        let by_us = stepped.map(|earlier| bracket.middle_us() - earlier.middle_us());
        if by_us.is_some() {
            self.brackets.clear();
            self.since = bracket.answered;
        }
        // What holds a younger one in itself will say nothing that the younger does not say.
        self.brackets.retain(|earlier| !earlier.holds(&bracket));
        if self.brackets.len() == KEPT {
            self.brackets.remove(0);
        }
        self.brackets.push(bracket);
        by_us.map(|by_us| i64::try_from(by_us).unwrap_or(if by_us < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl Bracket {
    /// The least and the most that (store clock - caller's clock) can have been.
    fn offsets_us(&self) -> (i128, i128) {
        let micros = |moment: Instant| i128::try_from(moment.since_boot().as_micros()).unwrap_or(i128::MAX / 2);
        let store_us = i128::from(self.store_us);
        (store_us - micros(self.answered), store_us - micros(self.asked))
    }

    fn middle_us(&self) -> i128 {
        let (least, most) = self.offsets_us();
        i128::midpoint(least, most)
    }

    /// The most that can have passed between the two readings of the store's clock.
    fn span_to(&self, other: &Bracket) -> Duration {
        other.answered.saturating_since(self.asked).max(self.answered.saturating_since(other.asked))
    }

    fn overlaps(&self, other: &Bracket) -> bool {
        let age_us = i128::try_from(self.span_to(other).as_micros()).unwrap_or(i128::MAX / 2);
        let widened_us = SLACK_US + age_us / DRIFT_DIVISOR;
        let (least, most) = self.offsets_us();
        let (its_least, its_most) = other.offsets_us();
        its_least <= most + widened_us && least - widened_us <= its_most
    }

    fn holds(&self, other: &Bracket) -> bool {
        let (least, most) = self.offsets_us();
        let (its_least, its_most) = other.offsets_us();
        least <= its_least && its_most <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMELINE: i64 = 1;
    /// The two clocks begin at different moments.
    const APART_US: i64 = 1_700_000_000_000_000;

    /// Two clocks: the store's runs faster by `ppm`, and steps when told to.
    struct World {
        now_us: u64,
        store_us: f64,
        ppm: f64,
        random: fastrand::Rng,
    }

    impl World {
        fn new(seed: u64) -> Self {
            Self { now_us: 5_000_000, store_us: 0.0, ppm: 0.0, random: fastrand::Rng::with_seed(seed) }
        }

        fn pass_us(&mut self, us: u64) {
            self.now_us += us;
            self.store_us += us as f64 * (1.0 + self.ppm / 1e6);
        }

        /// One answer: half a round trip there, half back, in any proportion.
        fn bracket(&mut self, round_trip_us: u64) -> Bracket {
            let there_us = self.random.u64(0..=round_trip_us);
            let asked = Instant::from_boot(Duration::from_micros(self.now_us));
            self.pass_us(there_us);
            let store_us = APART_US + self.store_us as i64;
            self.pass_us(round_trip_us - there_us);
            Bracket { asked, answered: Instant::from_boot(Duration::from_micros(self.now_us)), store_us }
        }

        fn any_bracket(&mut self) -> Bracket {
            let round_trip_us = self.random.u64(200..=25_000);
            self.bracket(round_trip_us)
        }
    }

    fn bracket(asked_ms: u64, answered_ms: u64, store_ms: i64) -> Bracket {
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        Bracket { asked: at(asked_ms), answered: at(answered_ms), store_us: store_ms * 1000 }
    }

    /// An hour of answers, every 10 s or at random, while the store's clock runs as `rate` says. Steps found.
    fn hour(seed: u64, mut rate: impl FnMut(&mut fastrand::Rng) -> f64) -> u64 {
        let mut world = World::new(seed);
        let mut clock = StoreClock::default();
        let regular = world.random.bool();
        let end_us = world.now_us + 3_600_000_000;
        while world.now_us < end_us {
            world.ppm = rate(&mut world.random);
            let longest_us = [10_000, 1_000_000, 30_000_000][world.random.usize(0..3)];
            let pause_us = if regular { 10_000_000 } else { world.random.u64(0..longest_us) };
            world.pass_us(pause_us);
            let bracket = world.any_bracket();
            if world.random.bool() {
                clock.probed(bracket);
            } else {
                clock.answered(bracket, TIMELINE);
            }
        }
        clock.answered(world.any_bracket(), TIMELINE);
        clock.steps
    }

    #[test]
    fn an_hour_of_drift_and_slewing_is_no_step() {
        for seed in 0..100 {
            let ppm = fastrand::Rng::with_seed(seed).f64() * 1000.0 - 500.0;
            assert_eq!(hour(seed, |_| ppm), 0, "seed {seed}: {ppm} ppm");
            assert_eq!(hour(seed, |_| 500.0), 0, "seed {seed}");
            assert_eq!(hour(seed, |_| -500.0), 0, "seed {seed}");
            // A clock that is slewed by 500 ppm one way or the other on top of its own drift.
            let slewed = |random: &mut fastrand::Rng| ppm + [-500.0, 0.0, 500.0][random.usize(0..3)];
            assert_eq!(hour(seed, slewed), 0, "seed {seed}: {ppm} ppm, slewed");
        }
    }

    #[test]
    fn an_answer_on_its_way_while_a_probe_finds_a_step_does_not_count() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.answered(bracket(1000, 1001, 1000), TIMELINE), None);
        clock.probed(bracket(2000, 2001, 5000));
        let step = clock.answered(bracket(1999, 2002, 5000), TIMELINE);
        assert!(step.is_some_and(|step| step.by_us > 2_000_000), "{step:?}");
        // On another timeline it is another server.
        clock.probed(bracket(3000, 3001, 9000));
        assert_eq!(clock.answered(bracket(2999, 3002, 9000), TIMELINE + 1), None);
    }

    #[test]
    fn a_step_larger_than_the_uncertainty_is_found_in_either_direction_and_once() {
        for seed in 0..2000 {
            let mut world = World::new(seed);
            world.ppm = world.random.f64() * 1000.0 - 500.0;
            let mut clock = StoreClock::default();
            let mut last = world.any_bracket();
            for _ in 0..world.random.usize(1..30) {
                assert_eq!(clock.answered(last, TIMELINE), None);
                let pause_us = world.random.u64(0..10_000_000);
                world.pass_us(pause_us);
                last = world.any_bracket();
            }
            assert_eq!(clock.answered(last, TIMELINE), None);
            let pause_us = world.random.u64(0..55_000_000);
            world.pass_us(pause_us);
            let after_us = world.random.u64(200..=25_000);
            let last_us = last.answered.saturating_since(last.asked).as_micros() as u64;
            let age_us = pause_us + after_us + last_us;
            // Both brackets, the widening, and the drift itself.
            let uncertain_us = last_us + after_us + 1000 + age_us / 1000 + age_us / 2000 + 5;
            let by_us = (uncertain_us + world.random.u64(0..10_000_000)) as f64;
            let sign = if world.random.bool() { 1.0 } else { -1.0 };
            world.store_us += sign * by_us;
            let bracket = world.bracket(after_us);
            let step = clock.answered(bracket, TIMELINE).unwrap_or_else(|| panic!("seed {seed}: {by_us} us not found"));
            assert!((step.by_us as f64 - sign * by_us).abs() < uncertain_us as f64, "seed {seed}: {step:?}, {by_us}");
            for _ in 0..20 {
                world.pass_us(1_000_000);
                assert_eq!(clock.answered(world.any_bracket(), TIMELINE), None, "seed {seed}: it is judged once");
            }
        }
    }

    #[test]
    fn the_narrowest_of_the_young_brackets_decides() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.answered(bracket(0, 1, 0), TIMELINE), None);
        assert_eq!(clock.answered(bracket(100, 900, 500), TIMELINE), None, "a long way says little");
        let step = clock.answered(bracket(1000, 1001, 1020), TIMELINE).unwrap();
        assert!((19_000..=21_000).contains(&step.by_us), "{step:?}");
    }

    #[test]
    fn a_caller_that_was_away_for_longer_than_a_minute_finds_nothing() {
        let mut clock = StoreClock::default();
        clock.answered(bracket(0, 1, 0), TIMELINE);
        assert_eq!(clock.answered(bracket(60_001, 60_002, 900_000), TIMELINE), None);
        // Stopped while an answer was under way: the store may have read its clock at any time in between.
        assert_eq!(clock.answered(bracket(60_100, 600_000, 900_100), TIMELINE), None);
        assert!(clock.answered(bracket(600_001, 600_002, 900_000), TIMELINE).is_none());
    }

    #[test]
    fn a_promotion_is_another_clock_and_no_step() {
        let mut clock = StoreClock::default();
        clock.answered(bracket(0, 1, 0), 1);
        assert_eq!(clock.answered(bracket(1000, 1001, 99_000), 2), None);
        assert!(clock.answered(bracket(2000, 2001, 1000), 2).is_some(), "its own clock can step");
    }

    #[test]
    fn what_a_probe_finds_is_judged_by_the_next_answer_that_tells_its_timeline() {
        let mut clock = StoreClock::default();
        clock.answered(bracket(0, 1, 0), 1);
        clock.probed(bracket(1000, 1001, 99_000));
        assert_eq!(clock.latest(), None);
        let mut promoted = clock.clone();
        let step = clock.answered(bracket(2000, 2001, 100_000), 1).unwrap();
        assert_eq!((step.number, step.found), (1, Instant::from_boot(Duration::from_millis(1001))));
        assert_eq!(promoted.answered(bracket(2000, 2001, 100_000), 2), None);
    }

    #[test]
    fn an_answer_from_before_the_step_that_comes_after_it_is_no_step_back() {
        let mut clock = StoreClock::default();
        clock.answered(bracket(0, 1, 0), TIMELINE);
        assert!(clock.answered(bracket(1000, 1001, 99_000), TIMELINE).is_some());
        assert_eq!(clock.answered(bracket(998, 1100, 998), TIMELINE), None);
        assert_eq!(clock.answered(bracket(1200, 1201, 99_200), TIMELINE), None);
    }

    #[test]
    fn the_widest_numbers_there_are_overflow_nothing() {
        let mut clock = StoreClock::default();
        for store_us in [i64::MIN, i64::MAX, 0, i64::MIN] {
            let (asked, answered) = (Instant::default(), Instant::from_boot(Duration::MAX));
            clock.answered(Bracket { asked, answered, store_us }, TIMELINE);
            clock.probed(Bracket { asked: answered, answered, store_us });
        }
    }
}
