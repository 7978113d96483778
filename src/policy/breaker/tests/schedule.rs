use std::time::Duration;

use super::world::{World, secs};
use crate::policy::breaker::rules::Probes;
use crate::policy::breaker::{Outcome, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good, None as Nothing};

/// The waits that follow when each probe fails.
fn waits(world: &mut World, count: usize) -> Vec<Duration> {
    let mut waits = Vec::new();
    while waits.len() < count {
        match world.admit() {
            Ok(pass) => drop(world.settle(pass, Bad)),
            Err(refusal) => {
                waits.push(refusal.retry_at.saturating_since(world.now));
                world.now = refusal.retry_at;
            }
        }
    }
    waits
}

#[test]
fn each_failed_probe_is_a_rung_higher_and_the_last_repeats() {
    let mut world = World::new(Rules::escalating());
    assert_eq!(waits(&mut world, 6), [30, 60, 120, 300, 300, 300].map(secs));
}

#[test]
fn a_new_trip_inside_the_episode_is_a_rung_higher() {
    let mut world = World::new(Rules::escalating());
    world.bad(5);
    world.until_due();
    world.good(3); // the probe, and two of the three that would end the episode
    world.bad(5);
    let view = world.view();
    assert_eq!((view.shown, view.rung), (Shown::Open, 1));
    assert_eq!(world.refused_for(), secs(60));
}

#[test]
fn the_rung_is_back_at_the_start_when_the_episode_has_ended() {
    let mut world = World::new(Rules::escalating());
    assert_eq!(waits(&mut world, 3), [30, 60, 120].map(secs));
    world.good(1 + 3);
    assert_eq!((world.view().episode, world.view().rung), (None, 0));
    assert_eq!(waits(&mut world, 1), [secs(30)]);
}

#[test]
fn no_evidence_leaves_the_rung_where_it_is() {
    let mut world = World::new(Rules::escalating());
    waits(&mut world, 2);
    world.calls(3, Nothing);
    assert_eq!((world.view().rung, world.refused_for()), (1, secs(60)));
}

#[test]
fn jitter_is_upwards_only_at_most_a_tenth_and_from_the_seed() {
    let one_wait = |seed| waits(&mut World::seeded(Rules::escalating(), seed), 4);
    let mut least = f64::MAX;
    let mut most = 0.0_f64;
    for seed in 0..1000 {
        for (wait, rung) in one_wait(seed).into_iter().zip([30.0, 60.0, 120.0, 300.0]) {
            let share = wait.as_secs_f64() / rung;
            (least, most) = (least.min(share), most.max(share));
        }
    }
    assert!((1.0..1.001).contains(&least) && (1.099..=1.1).contains(&most), "{least} to {most}");
    assert_eq!(one_wait(7), one_wait(7));
    assert_ne!(one_wait(7), one_wait(8));
}

#[test]
fn jitter_is_drawn_once_for_a_wait() {
    let mut world = World::seeded(Rules::escalating(), 3);
    world.bad(5);
    let until = world.admit().expect_err("open").retry_at;
    for _ in 0..20 {
        world.wait(1);
        assert_eq!(world.admit().expect_err("open").retry_at, until);
        assert_eq!(world.view().retry_at, Some(until));
    }
}

#[test]
fn no_open_wait_is_shorter_than_the_vendor_asked_for() {
    let asked = |seconds| Outcome { verdict: Bad, elapsed: None, retry_after: Some(secs(seconds)) };
    for (seconds, wait) in [(10, 30), (100, 100), (100_000, 100_000)] {
        let mut world = World::new(Rules::escalating());
        world.bad(4);
        let pass = world.pass();
        world.settle_with(pass, asked(seconds));
        assert_eq!(world.refused_for(), secs(wait), "at a trip");
        world.wait(wait);
        let probe = world.probe();
        world.settle_with(probe, asked(seconds));
        assert_eq!(world.refused_for(), secs(wait.max(60)), "at a failed probe");
    }
    let mut world = World::new(Rules::escalating());
    let pass = world.pass();
    world.settle_with(pass, asked(100));
    world.wait(10);
    world.bad(4);
    assert_eq!(world.refused_for(), secs(90), "also where an earlier one of the streak asked for it");
}

#[test]
fn what_the_vendor_asked_for_holds_for_one_epoch_only() {
    let mut world = World::new(Rules::escalating());
    let pass = world.pass();
    world.settle_with(pass, Outcome { verdict: Bad, elapsed: None, retry_after: Some(secs(40)) });
    let order = world.by_hand(None);
    let at = world.at();
    world.breaker.reset(at, order);
    world.bad(5);
    assert_eq!(world.refused_for(), secs(30));
}

#[test]
fn a_step_of_the_wall_clock_makes_no_wait_longer_or_shorter() {
    for step in [-1_000_000_i64, -3600, 3600, 1_000_000] {
        let mut world = World::new(Rules::escalating());
        world.bad(5);
        let until = world.admit().expect_err("open").retry_at;
        world.wall = crate::policy::Wall::from_unix_us(world.wall.unix_us() + step * 1_000_000);
        assert_eq!(world.admit().expect_err("open").retry_at, until);
        world.now = until;
        world.good(4);
        let [summary] = &world.summaries()[..] else { panic!("one episode") };
        assert_eq!((summary.duration, summary.total_open), (secs(30), secs(30)));
    }
}

#[test]
fn a_monotonic_clock_that_goes_backwards_stands_still() {
    let mut world = World::new(Rules::escalating());
    world.bad(5);
    let until = world.admit().expect_err("open").retry_at;
    world.now = world.now - secs(500);
    assert_eq!(world.admit().expect_err("open").retry_at, until);
    world.now = until;
    world.good(1);
}

#[test]
fn a_round_that_was_not_decided_goes_on_after_any_pause() {
    let probes = Probes { needed: 2, allowed_bad: 0, parallel: 1, timeout: secs(60) };
    let mut world = World::new(Rules { probes, ..Rules::escalating() });
    world.bad(5);
    world.until_due();
    world.call(Good);
    world.wait(1_000_000);
    assert_eq!(world.shown(), Shown::ProbeDue);
    world.call(Good);
    assert_eq!(world.shown(), Shown::Closed);
}
