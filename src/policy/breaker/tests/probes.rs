use super::world::{World, secs};
use crate::policy::breaker::event::Cause;
use crate::policy::breaker::{Counted, Event, Reason, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good, None as Nothing};

/// OPEN since now, by the preset's own trip.
fn opened(rules: Rules) -> World {
    let mut world = World::new(rules);
    for _ in 0..20 {
        if world.shown() == Shown::Closed {
            world.bad(1);
        }
    }
    assert_eq!(world.shown(), Shown::Open);
    world.events();
    world
}

fn due(rules: Rules) -> World {
    let mut world = opened(rules);
    world.until_due();
    world
}

#[test]
fn exactly_as_many_probes_as_permitted_are_out_however_many_callers_come() {
    for (rules, permitted) in [(Rules::escalating(), 1), (Rules::rate_kis(), 3), (Rules::rate_yahoo(), 5)] {
        let mut world = due(rules);
        let passed: Vec<_> = (0..1000).filter_map(|_| world.admit().ok()).collect();
        assert_eq!(passed.len(), permitted);
        assert!(passed.iter().all(|pass| pass.probe));
        assert_eq!(world.admit().expect_err("no more").reason, Reason::Probing);
    }
}

#[test]
fn one_good_probe_closes_where_one_is_needed() {
    let mut world = due(Rules::escalating());
    world.call(Good);
    assert_eq!(world.shown(), Shown::Closed);
    assert_eq!(world.events(), [Event::Closed { probe_count: 1 }]);
}

#[test]
fn one_bad_probe_reopens_a_rung_higher_where_none_may_be() {
    let mut world = due(Rules::escalating());
    world.call(Bad);
    let expected = Event::Reopened { cause: Cause::Probe, reopen_count: 1, open_for: secs(60), rung: 1 };
    assert_eq!(world.events(), [expected]);
    assert_eq!(world.refused_for(), secs(60));
}

#[test]
fn three_permitted_at_half_are_decided_early_either_way() {
    let mut world = due(Rules::rate_kis());
    let probes = [world.probe(), world.probe(), world.probe()];
    let [first, second, third] = probes;
    world.settle(first, Good);
    assert_eq!(world.shown(), Shown::Probing);
    world.settle(second, Good);
    assert_eq!(world.shown(), Shown::Closed, "two good ones, without the third");
    assert_eq!(world.settle(third, Bad), Counted::Stale);
    let mut world = due(Rules::rate_kis());
    let [first, second, _third] = [world.probe(), world.probe(), world.probe()];
    world.settle(first, Bad);
    assert_eq!(world.shown(), Shown::Probing, "one may be bad");
    world.settle(second, Bad);
    assert_eq!(world.shown(), Shown::Open);
}

#[test]
fn a_probe_that_is_dropped_frees_its_place_at_once() {
    let mut world = due(Rules::escalating());
    let probe = world.probe();
    world.abandon(probe, false);
    assert_eq!(world.shown(), Shown::ProbeDue);
    world.call(Good);
    assert_eq!(world.shown(), Shown::Closed);
}

#[test]
fn three_probes_without_evidence_reopen_on_the_same_rung() {
    let mut world = due(Rules::escalating());
    world.calls(2, Nothing);
    assert_eq!(world.shown(), Shown::ProbeDue);
    world.call(Nothing);
    let expected = Event::Reopened { cause: Cause::NoEvidence, reopen_count: 1, open_for: secs(30), rung: 0 };
    assert_eq!(world.events(), [expected]);
}
