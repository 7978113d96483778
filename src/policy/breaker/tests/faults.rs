//! Known holes of other breakers that are nobody else's page here. The list with all of them is in docs/breaker.md.

use super::world::{World, secs};
use crate::policy::breaker::{Counted, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good};

#[test]
fn a_success_admitted_before_the_trip_does_not_close_it() {
    let mut world = World::new(Rules::escalating());
    let [first, second] = [world.pass(), world.pass()];
    world.bad(5);
    assert_eq!(world.settle(first, Good), Counted::Stale);
    assert_eq!(world.shown(), Shown::Open);
    world.until_due();
    assert_eq!(world.settle(second, Good), Counted::Stale);
    assert_eq!(world.shown(), Shown::ProbeDue);
}

#[test]
fn refusals_of_a_local_pool_or_budget_trip_nothing() {
    for rules in [Rules::escalating(), Rules::rate_kis(), Rules::rate_yahoo()] {
        let mut world = World::new(rules);
        let before = world.view();
        for _ in 0..1000 {
            let pass = world.queue().expect("closed");
            world.wait(30);
            world.abandon(pass, false);
        }
        assert_eq!(world.view(), before);
        assert_eq!(world.events(), []);
    }
}

#[test]
fn reading_it_makes_no_transition() {
    let mut world = World::new(Rules::rate_kis());
    world.bad(10);
    let untouched = format!("{:?}", world.breaker);
    for seconds in [0, 29, 30, 31, 1_000_000] {
        let at = crate::policy::breaker::Moment { now: world.now + secs(seconds), wall: world.wall + secs(seconds) };
        world.breaker.view(at);
    }
    assert_eq!(format!("{:?}", world.breaker), untouched);
    assert_eq!(world.shown(), Shown::Open);
}

#[test]
fn nobody_waits_in_half_open_for_a_call_that_never_comes() {
    let mut world = World::new(Rules::escalating());
    world.bad(5);
    for _ in 0..10 {
        world.wait(1_000_000);
        assert!(world.order().is_err());
        assert_eq!(world.shown(), Shown::ProbeDue);
    }
    world.good(1);
    assert_eq!(world.shown(), Shown::Closed);
}

#[test]
fn a_burst_of_failures_in_half_open_reopens_once() {
    let mut world = World::new(Rules::rate_kis());
    world.bad(10);
    world.until_due();
    let probes = [world.probe(), world.probe(), world.probe()];
    for probe in probes {
        world.settle(probe, Bad);
    }
    let view = world.view();
    assert_eq!((view.episode.expect("not over").reopen_count, view.stale), (1, 1));
}
