//! Each preset as a vector.

use super::world::{World, secs};
use crate::policy::breaker::event::Cause;
use crate::policy::breaker::rules::{Over, Probes, Rate, Slow};
use crate::policy::breaker::{Event, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good};

fn probes(needed: u32, allowed_bad: u32, parallel: u32) -> Probes {
    Probes { needed, allowed_bad, parallel, timeout: secs(60) }
}

fn opened(world: &mut World) -> Vec<(Cause, u64)> {
    let opened = |event| match event {
        Event::Opened { cause, open_for, .. } => Some((cause, open_for.as_secs())),
        _ => None,
    };
    world.events().into_iter().filter_map(opened).collect()
}

#[test]
fn presets_are_found_by_name_and_make_sense() {
    for name in ["escalating", "per-provider", "rate-kis", "rate-yahoo"] {
        let rules = Rules::preset(name).expect(name);
        assert_eq!(rules.check(), Ok(()), "{name}");
        assert_eq!((rules.jitter, rules.episode_good, rules.episode_quiet), (0.1, 3, secs(300)), "{name}");
        assert!(rules.calendar.windows.is_empty());
    }
    assert_eq!(Rules::preset("Escalating"), None);
}

#[test]
fn escalating_opens_after_five_in_a_row_for_30_60_120_300_seconds_with_one_probe() {
    let rules = Rules::preset("escalating").expect("a preset");
    assert_eq!((rules.streak, rules.rate, rules.slow), (Some(5), None, None));
    assert_eq!((rules.probes, rules.schedule.clone()), (probes(1, 0, 1), [30, 60, 120, 300].map(secs).to_vec()));
    let mut world = World::new(rules);
    world.bad(4);
    world.good(1);
    world.bad(5);
    assert_eq!(opened(&mut world), [(Cause::Streak, 30)]);
}

#[test]
fn per_provider_opens_after_five_in_a_row_for_60_seconds_every_time() {
    let rules = Rules::preset("per-provider").expect("a preset");
    assert_eq!((rules.streak, rules.rate, rules.slow), (Some(5), None, None));
    assert_eq!((rules.probes, rules.schedule.clone()), (probes(1, 0, 1), vec![secs(60)]));
    let mut world = World::new(rules);
    world.bad(5);
    assert_eq!(opened(&mut world), [(Cause::Streak, 60)]);
    for _ in 0..5 {
        world.until_due();
        world.bad(1);
        assert_eq!(world.refused_for(), secs(60));
    }
    world.until_due();
    world.good(1);
    assert_eq!(world.shown(), Shown::Closed);
}

#[test]
fn rate_kis_opens_at_half_of_the_last_twenty_for_30_seconds_and_closes_after_two_of_three() {
    let rules = Rules::preset("rate-kis").expect("a preset");
    let over = Over::Calls(20);
    assert_eq!(rules.rate, Some(Rate { over, min: 10, at_least: 0.5 }));
    assert_eq!(rules.slow, Some(Slow { limit: secs(3), over, min: 10, at_least: 0.8 }));
    assert_eq!((rules.streak, rules.probes), (None, probes(2, 1, 3)));
    let mut world = World::new(rules.clone());
    world.bad(9);
    assert_eq!(world.shown(), Shown::Closed, "nine say nothing");
    world.bad(1);
    assert_eq!(opened(&mut world), [(Cause::Rate, 30)]);
    world.until_due();
    world.bad(1);
    world.good(2);
    assert_eq!(world.shown(), Shown::Closed);
    let mut world = World::new(rules);
    for _ in 0..8 {
        world.lasting(secs(3), Good);
    }
    world.good(1);
    assert_eq!(world.shown(), Shown::Closed);
    world.good(1);
    assert_eq!(opened(&mut world), [(Cause::Slow, 30)], "eight of ten");
}

#[test]
fn rate_yahoo_opens_at_three_fifths_or_when_all_are_slow_for_60_seconds_and_closes_after_three_of_five() {
    let rules = Rules::preset("rate-yahoo").expect("a preset");
    let over = Over::Calls(100);
    assert_eq!(rules.rate, Some(Rate { over, min: 5, at_least: 0.6 }));
    assert_eq!(rules.slow, Some(Slow { limit: secs(5), over, min: 5, at_least: 1.0 }));
    assert_eq!((rules.streak, rules.probes), (None, probes(3, 2, 5)));
    let mut world = World::new(rules.clone());
    world.good(2);
    world.bad(3);
    assert_eq!(opened(&mut world), [(Cause::Rate, 60)]);
    world.until_due();
    world.calls(2, Bad);
    world.calls(3, Good);
    assert_eq!(world.shown(), Shown::Closed);
    let mut world = World::new(rules.clone());
    for _ in 0..5 {
        world.lasting(secs(5), Good);
    }
    assert_eq!(opened(&mut world), [(Cause::Slow, 60)]);
    let mut world = World::new(rules);
    world.good(1);
    for _ in 0..98 {
        world.lasting(secs(5), Good);
    }
    assert_eq!(world.shown(), Shown::Closed, "one of them was quick");
}
