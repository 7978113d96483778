//! The probe against simulated vendors: every kind, any phase, jitter, wrong limits, random refusals, others who call.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::*;

const WINDOW_US: u64 = 1_000_000;

/// A vendor, the way to it, and what disturbs. Times are microseconds.
#[derive(Clone, Debug)]
struct World {
    kind: Option<Kind>,
    limit: u32,
    phase_us: u64,
    /// A sliding window counts what it refuses, too.
    counts_refused: bool,
    /// Each way takes up to this long.
    jitter_us: u64,
    /// At random, although within the limit.
    refused_at_random: f64,
    /// Calls a second that somebody else makes with the same key.
    others_per_s: f64,
    /// This part of the calls leaves a fifth of a window late, as on a machine that stalls.
    stalls: f64,
}

#[derive(Default)]
struct Counter {
    recent: VecDeque<u64>,
    opened_us: Option<u64>,
    full_until_us: f64,
}

impl World {
    fn of(kind: Kind, limit: u32, random: &mut fastrand::Rng) -> World {
        World {
            kind: Some(kind),
            limit,
            phase_us: random.u64(0..WINDOW_US),
            counts_refused: random.bool(),
            jitter_us: random.u64(0..25_000),
            refused_at_random: 0.0,
            others_per_s: 0.0,
            stalls: 0.0,
        }
    }

    fn admits(&self, counter: &mut Counter, now_us: u64, random: &mut fastrand::Rng) -> bool {
        let limit = self.limit as usize;
        while counter.recent.front().is_some_and(|at| at + WINDOW_US < now_us) {
            counter.recent.pop_front();
        }
        let from_us = match self.kind {
            Some(Kind::Sliding) => 0,
            Some(Kind::Fixed) => ((now_us + self.phase_us) / WINDOW_US * WINDOW_US).saturating_sub(self.phase_us),
            Some(Kind::FirstCall) => match counter.opened_us {
                Some(opened) if now_us < opened + WINDOW_US => opened,
                _ => *counter.opened_us.insert(now_us),
            },
            // Refills bit by bit.
            None => {
                let each = WINDOW_US as f64 / limit as f64;
                let full = counter.full_until_us.max(now_us as f64) + each;
                let admitted = full - now_us as f64 <= WINDOW_US as f64;
                counter.full_until_us = if admitted { full } else { counter.full_until_us };
                return admitted;
            }
        };
        let within = counter.recent.iter().filter(|at| **at >= from_us).count() < limit;
        if within || self.counts_refused {
            counter.recent.push_back(now_us);
        }
        within && random.f64() >= self.refused_at_random
    }

    fn run(&self, believed: u32, random: &mut fastrand::Rng) -> (Verdict, Counts) {
        let (verdict, probe) = self.probe(believed, random);
        (verdict, probe.counts())
    }

    fn probe(&self, believed: u32, random: &mut fastrand::Rng) -> (Verdict, WindowProbe) {
        // Arrivals and answers by time: an answer carries its verdict.
        let mut events: BinaryHeap<Reverse<(u64, usize, Option<bool>)>> = BinaryHeap::new();
        let mut ids = BTreeMap::new();
        let mut counter = Counter::default();
        let at = |us: u64| Instant::from_boot(Duration::from_micros(us));
        let begin_us = 5_000_000 + random.u64(0..WINDOW_US);
        let mut now_us = begin_us;
        let mut probe =
            WindowProbe::new(Belief { limit: believed, window: Duration::from_micros(WINDOW_US) }, at(now_us));
        let gap = |random: &mut fastrand::Rng| (-(1.0 - random.f64()).ln() * 1e6 / self.others_per_s) as u64;
        let mut other_us = if self.others_per_s > 0.0 { gap(random) } else { u64::MAX };
        let mut calls = 0;
        loop {
            let leaves_us = match probe.next(at(now_us)) {
                Step::Done(verdict) => return (verdict, probe),
                Step::Await => u64::MAX,
                Step::Send(moment) => now_us.max(moment.since_boot().as_micros() as u64),
            };
            let event_us = events.peek().map_or(u64::MAX, |Reverse((us, ..))| *us);
            if other_us <= event_us.min(leaves_us) {
                self.admits(&mut counter, other_us, random);
                other_us += gap(random);
            } else if event_us <= leaves_us {
                let Reverse((us, call, answer)) = events.pop().unwrap();
                now_us = us;
                match answer {
                    Some(admitted) => probe.answered(ids[&call], at(now_us), !admitted),
                    None => {
                        let admitted = self.admits(&mut counter, us, random);
                        events.push(Reverse((us + random.u64(0..=self.jitter_us), call, Some(admitted))));
                    }
                }
            } else {
                let late_us = if random.f64() < self.stalls { WINDOW_US / 5 } else { random.u64(0..2_000) };
                // Nothing else happens to the probe in between: it sleeps.
                now_us = leaves_us + if event_us > leaves_us + late_us { late_us } else { 0 };
                ids.insert(calls, probe.sent(at(now_us)));
                events.push(Reverse((now_us + random.u64(0..=self.jitter_us), calls, None)));
                calls += 1;
            }
        }
    }
}

fn never_wrong(world: &World, verdict: Verdict) {
    if let Verdict::Decided(kind) = verdict {
        assert_eq!(Some(kind), world.kind, "{world:?}");
    }
}

#[test]
fn every_kind_is_told_at_every_limit_and_phase_with_few_refusals() {
    for kind in Kind::ALL {
        let (mut refused, mut most) = (0, 0);
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let limit = random.u32(2..=20);
            let world = World::of(kind, limit, &mut random);
            let (verdict, counts) = world.run(limit, &mut random);
            assert_eq!(verdict, Verdict::Decided(kind), "seed {seed}: {world:?} {counts:?}");
            let belief = Belief { limit, window: Duration::from_secs(1) };
            assert!(counts.calls <= belief.most_calls() && counts.refused <= REFUSALS, "{counts:?}");
            (refused, most) = (refused + counts.refused, most.max(counts.refused));
        }
        assert!(most <= 8 && refused <= 200 * 6, "{kind}: {most} at most, {refused} in 200 probes");
    }
}

#[test]
fn with_a_wrong_limit_nothing_wrong_is_told_and_the_other_limit_is_named() {
    let mut named = 0;
    for seed in 0..1000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let kind = Kind::ALL[random.usize(0..3)];
        let believed = random.u32(3..=20);
        let limit = if random.bool() { random.u32(1..believed) } else { believed + random.u32(1..=2 * believed) };
        let world = World::of(kind, limit, &mut random);
        let (verdict, counts) = world.run(believed, &mut random);
        never_wrong(&world, verdict);
        assert!(matches!(verdict, Verdict::Undecided(_)), "believed {believed}: {world:?} {counts:?}");
        let belief = Belief { limit: believed, window: Duration::from_secs(1) };
        assert!(counts.calls <= belief.most_calls() && counts.refused <= REFUSALS, "{counts:?} {world:?}");
        if let Verdict::Undecided(Reason::OtherLimit { at_least, at_most }) = verdict {
            assert!(at_least <= limit && at_most.is_none_or(|most| limit <= most), "{verdict:?} {world:?}");
            named += 1;
        }
    }
    assert!(named > 970, "{named}");
}

#[test]
fn random_refusals_others_who_call_and_a_machine_that_stalls_bring_no_wrong_verdict() {
    let mut decided = 0;
    for seed in 0..3_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let kind = Kind::ALL[random.usize(0..3)];
        let believed = random.u32(3..=20);
        let mut world = World::of(kind, believed, &mut random);
        if random.u32(0..4) == 0 {
            world.limit = (believed + random.u32(0..4)).saturating_sub(2).max(1);
        }
        let jitter_us = [30_000, 30_000, 200_000][random.usize(0..3)];
        world.jitter_us = random.u64(0..jitter_us);
        world.refused_at_random = [0.0, 0.002, 0.01, 0.05, 0.2, 0.4][random.usize(0..6)];
        world.others_per_s = [0.0, 0.0, 0.02, 0.2, 1.0, 5.0][random.usize(0..6)];
        world.stalls = [0.0, 0.02, 0.2][random.usize(0..3)];
        let (verdict, counts) = world.run(believed, &mut random);
        never_wrong(&world, verdict);
        let belief = Belief { limit: believed, window: Duration::from_secs(1) };
        assert!(counts.calls <= belief.most_calls() && counts.refused <= REFUSALS, "{counts:?} {world:?}");
        decided += u32::from(matches!(verdict, Verdict::Decided(_)));
    }
    assert!(decided > 300, "a probe that never decides is never wrong either: {decided}");
}

#[test]
fn the_vendors_own_kind_explains_every_answer_however_long_the_ways_are() {
    for seed in 0..1_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let kind = Kind::ALL[random.usize(0..3)];
        let limit = random.u32(2..=20);
        let mut world = World::of(kind, limit, &mut random);
        world.jitter_us = [100_000, 300_000, 1_500_000][random.usize(0..3)];
        world.stalls = 0.1;
        let (_, probe) = world.probe(limit, &mut random);
        assert_eq!(probe.unexplained(kind), Some(0), "seed {seed}: {world:?}");
    }
}

#[test]
fn somebody_else_who_opens_the_windows_makes_no_fixed_ones_of_them() {
    for seed in 0..3_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = random.u32(8..=14);
        let mut world = World::of(Kind::FirstCall, limit, &mut random);
        world.others_per_s = 1.0;
        let (verdict, _) = world.run(limit, &mut random);
        never_wrong(&world, verdict);
    }
}

#[test]
fn a_vendor_that_refills_bit_by_bit_is_none_of_the_three() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = random.u32(3..=20);
        let world = World { kind: None, ..World::of(Kind::Fixed, limit, &mut random) };
        let (verdict, _) = world.run(limit, &mut random);
        assert!(matches!(verdict, Verdict::Undecided(_)), "seed {seed}: {verdict:?}");
    }
}

#[test]
fn whoever_is_refused_after_a_quiet_time_stops_after_one_call() {
    let mut random = fastrand::Rng::with_seed(1);
    let world = World { refused_at_random: 1.0, ..World::of(Kind::Sliding, 18, &mut random) };
    let (verdict, counts) = world.run(18, &mut random);
    assert_eq!(verdict, Verdict::Undecided(Reason::RefusedAfterQuiet));
    assert_eq!((counts.calls, counts.refused), (1, 1));
}

#[test]
fn answers_that_take_half_a_window_are_too_slow_to_tell() {
    let mut random = fastrand::Rng::with_seed(1);
    for kind in Kind::ALL {
        let mut world = World::of(kind, 18, &mut random);
        world.jitter_us = 700_000;
        let (verdict, _) = world.run(18, &mut random);
        assert!(matches!(verdict, Verdict::Undecided(_)), "{kind}: {verdict:?}");
    }
}

#[test]
fn trials_begin_at_phases_that_lie_far_apart_each_second_one_opposite_the_one_before() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(halves), [0.0, 0.5, 0.25, 0.75, 0.125, 0.625]);
}
