use std::time::Duration;

use super::world::{World, secs};
use crate::policy::breaker::event::Cause;
use crate::policy::breaker::rules::Probes;
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

#[test]
fn neither_parallel_nor_decisive_probes_are_exceeded_by_one() {
    for (needed, allowed_bad, parallel) in [(3, 2, 2), (2, 1, 100), (1, 0, 2), (4, 0, 3)] {
        let probes = Probes { needed, allowed_bad, parallel, timeout: secs(60) };
        let mut world = due(Rules { probes, ..Rules::escalating() });
        let passed: Vec<_> = (0..100).filter_map(|_| world.admit().ok()).collect();
        assert_eq!(passed.len(), parallel.min(needed + allowed_bad) as usize);
        for probe in passed {
            world.settle(probe, Good);
        }
        while world.shown() != Shown::Closed {
            world.good(1);
        }
        assert_eq!(
            world.view().episode.expect("not over").probe_count,
            (needed).max(parallel.min(needed + allowed_bad))
        );
    }
}

#[test]
fn a_dropped_probe_frees_its_place_every_time_it_was_not_sent() {
    let mut world = due(Rules::escalating());
    for _ in 0..100 {
        let probe = world.queue().expect("a probe is due");
        assert_eq!(world.shown(), Shown::Probing);
        world.abandon(probe, false);
        assert_eq!(world.shown(), Shown::ProbeDue, "nothing was asked of the vendor");
    }
    assert_eq!(world.view().episode.expect("not over").probe_count, 0);
}

#[test]
fn a_cancelled_probe_neither_closes_nor_sticks_it() {
    let mut world = due(Rules::escalating());
    for _ in 0..2 {
        let probe = world.probe();
        world.abandon(probe, false);
        assert_eq!(world.shown(), Shown::ProbeDue);
    }
    let probe = world.probe();
    world.abandon(probe, false);
    let view = world.view();
    assert_eq!((view.shown, view.rung), (Shown::Open, 0), "the third that was sent and brought nothing");
    world.until_due();
    world.good(1);
    assert_eq!(world.shown(), Shown::Closed);
}

#[test]
fn a_hung_probe_is_lost_after_its_timeout_and_replaced() {
    let mut world = due(Rules::escalating());
    let hung = world.probe();
    assert_eq!(world.refused_for(), secs(1));
    world.pass_time(secs(59) + Duration::from_millis(500));
    assert_eq!(world.refused_for(), Duration::from_millis(500), "when it is lost");
    world.pass_time(Duration::from_millis(500));
    assert_eq!(world.shown(), Shown::ProbeDue);
    let replacement = world.probe();
    let mut before = world.view();
    assert_eq!(world.settle(hung, Good), Counted::Stale);
    before.stale += 1;
    assert_eq!(world.view(), before);
    world.settle(replacement, Good);
    assert_eq!(world.shown(), Shown::Closed);
}

#[test]
fn a_late_verdict_of_a_replaced_probe_changes_nothing() {
    for verdict in [Good, Bad, Nothing] {
        let mut world = due(Rules::escalating());
        let hung = world.probe();
        world.wait(60);
        let _replacement = world.probe();
        let mut before = world.view();
        assert_eq!(world.settle(hung, verdict), Counted::Stale);
        before.stale += 1;
        assert_eq!(world.view(), before);
    }
}

#[test]
fn a_late_verdict_is_stale_even_before_anybody_replaced_the_probe() {
    let mut world = due(Rules::escalating());
    let hung = world.probe();
    world.wait(60);
    assert_eq!(world.settle(hung, Good), Counted::Stale);
    assert_eq!(world.shown(), Shown::ProbeDue);
}

#[test]
fn three_lost_probes_reopen_at_the_instant_of_the_third_loss() {
    let mut world = due(Rules::rate_kis());
    let lost = [world.probe(), world.probe(), world.probe()];
    world.wait(65);
    assert_eq!(world.shown(), Shown::Open);
    assert_eq!(world.refused_for(), secs(25), "since 5 s ago");
    let expected = Event::Reopened { cause: Cause::NoEvidence, reopen_count: 1, open_for: secs(30), rung: 0 };
    assert_eq!(world.events(), [expected]);
    for probe in lost {
        assert_eq!(world.settle(probe, Good), Counted::Stale);
    }
    world.until_due();
}

#[test]
fn a_probe_is_waited_for_from_the_beginning_of_its_attempt() {
    let mut world = due(Rules::escalating());
    let mut probe = world.queue().expect("a probe is due");
    world.wait(59);
    let at = world.at();
    world.breaker.sending(at, &mut probe).expect("not lost yet");
    world.wait(59);
    assert_eq!(world.settle(probe, Good), Counted::Yes);
    assert_eq!(world.shown(), Shown::Closed);
}

#[test]
fn a_replaced_probe_may_not_be_sent() {
    let mut world = due(Rules::escalating());
    let mut slow = world.queue().expect("a probe is due");
    world.wait(60);
    let _replacement = world.probe();
    let at = world.at();
    let refusal = world.breaker.sending(at, &mut slow).expect_err("it was replaced");
    assert_eq!(refusal.reason, Reason::Stale);
    assert!(refusal.retry_at > world.now);
    world.abandon(slow, false);
    assert_eq!(world.shown(), Shown::Probing);
}

#[test]
fn a_pass_of_an_older_epoch_may_not_be_sent() {
    let mut world = World::new(Rules::escalating());
    let mut waiting = world.queue().expect("closed");
    world.bad(5);
    let at = world.at();
    let refusal = world.breaker.sending(at, &mut waiting).expect_err("it opened meanwhile");
    assert_eq!((refusal.reason, refusal.retry_at), (Reason::Stale, world.now + secs(30)));
}

#[test]
fn who_may_not_probe_is_refused_until_another_one_has_proven_recovery() {
    let mut world = due(Rules::escalating());
    for _ in 0..10 {
        let refusal = world.order().expect_err("orders never probe");
        assert_eq!((refusal.reason, refusal.retry_at), (Reason::NoProbe, world.now + secs(1)));
    }
    let probe = world.probe();
    assert_eq!(world.order().expect_err("orders never probe").reason, Reason::Probing);
    world.settle(probe, Good);
    let order = world.order().expect("closed");
    assert!(!order.probe);
}

#[test]
fn the_call_that_failed_the_last_probe_lets_others_go_first_for_a_second() {
    let mut world = due(Rules::escalating());
    let probe = world.admit_as(7).expect("a probe is due");
    world.settle(probe, Bad);
    world.until_due(); // asks once, as another call
    let refusal = world.admit_as(7).expect_err("others wait");
    assert_eq!((refusal.reason, refusal.retry_at), (Reason::NoProbe, world.now + secs(1)));
    world.wait(1);
    let probe = world.admit_as(7).expect("nobody else came");
    assert!(probe.probe);
}

#[test]
fn the_call_that_failed_the_last_probe_may_be_the_next_where_nobody_else_waits() {
    let mut world = due(Rules::escalating());
    let probe = world.admit_as(7).expect("a probe is due");
    world.settle(probe, Bad);
    world.admit_as(7).expect_err("open");
    world.order().expect_err("open, and an order is no other probe");
    world.wait(60);
    assert!(world.admit_as(7).expect("a probe is due").probe);
}

#[test]
fn an_excluded_error_as_the_probe_closes_nothing() {
    let mut world = due(Rules::escalating());
    world.call(Nothing);
    assert_eq!(world.shown(), Shown::ProbeDue);
}

#[test]
fn minimum_calls_never_apply_to_probes() {
    let mut world = due(Rules::rate_yahoo());
    world.bad(3);
    assert_eq!(world.shown(), Shown::Open, "three bad probes of five, below the minimum of nothing");
}

#[test]
fn a_failure_admitted_before_the_trip_neither_escalates_nor_is_a_probe() {
    let mut world = World::new(Rules::escalating());
    let before: Vec<_> = (0..10).map(|_| world.pass()).collect();
    world.bad(5);
    world.until_due();
    let probe = world.probe();
    for pass in before {
        assert_eq!(world.settle(pass, Bad), Counted::Stale);
    }
    assert_eq!((world.shown(), world.view().rung), (Shown::Probing, 0));
    world.settle(probe, Good);
    assert_eq!(world.shown(), Shown::Closed);
}
