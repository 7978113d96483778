//! Slow calls: answered late, still running, or given up.

use std::time::Duration;

use super::world::{World, secs};
use crate::policy::breaker::event::Cause;
use crate::policy::breaker::{Counted, Event, Outcome, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good, None as Nothing};

const ALMOST: Duration = Duration::from_millis(2999);

/// Four fifths of at least 10 of the last 20 from 3 s on, and no other rule.
fn world() -> World {
    World::new(Rules { rate: None, ..Rules::rate_kis() })
}

#[test]
fn slow_means_from_the_limit_on_and_to_the_last_byte() {
    let mut world = world();
    for _ in 0..20 {
        world.lasting(ALMOST, Good);
    }
    assert_eq!(world.view().slow_rate, Some(0.0));
    for _ in 0..15 {
        world.lasting(secs(3), Good);
    }
    assert_eq!((world.view().slow_rate, world.shown()), (Some(0.75), Shown::Closed));
    world.lasting(secs(3), Good);
    assert_eq!(world.shown(), Shown::Open);
    assert!(matches!(world.events()[..], [Event::Opened { cause: Cause::Slow, .. }]));
}

#[test]
fn what_is_not_said_is_measured_from_the_beginning_of_the_attempt() {
    let mut world = world();
    for _ in 0..10 {
        let pass = world.pass();
        world.wait(3);
        world.settle(pass, Good);
    }
    assert_eq!(world.shown(), Shown::Open);
}

#[test]
fn waiting_for_a_slot_is_never_slow() {
    let mut world = world();
    for _ in 0..20 {
        let mut pass = world.queue().expect("closed");
        world.wait(100);
        let at = world.at();
        world.breaker.sending(at, &mut pass).expect("closed");
        world.pass_time(ALMOST);
        world.settle(pass, Good);
    }
    assert_eq!(world.view().slow_rate, Some(0.0));
}

#[test]
fn a_running_call_becomes_slow_once_when_it_is_overdue_and_not_again_when_it_ends() {
    let mut world = world();
    world.good(9);
    let running = world.pass();
    world.wait(3);
    world.tend();
    assert_eq!(world.view().slow_rate, Some(0.1), "overdue");
    world.wait(3);
    world.tend();
    assert_eq!(world.view().slow_rate, Some(0.1), "once");
    assert_eq!(world.settle(running, Good), Counted::Yes);
    assert_eq!((world.view().slow_rate, world.view().successes), (Some(0.1), 10));
}

#[test]
fn hanging_calls_open_it_before_any_of_them_has_ended() {
    let mut world = world();
    let running: Vec<_> = (0..10).map(|_| world.pass()).collect();
    world.pass_time(ALMOST);
    assert_eq!(world.shown(), Shown::Closed);
    world.pass_time(Duration::from_millis(1));
    assert!(world.admit().is_err(), "ten of ten are overdue");
    assert!(running.into_iter().all(|pass| world.settle(pass, Good) == Counted::Stale));
}

#[test]
fn one_hung_call_hides_none_behind_it() {
    let mut world = world();
    let hung = world.pass();
    for turn in 0..9 {
        let pass = world.pass();
        if turn % 2 == 0 {
            world.settle(pass, Good);
        } else {
            world.wait(4);
            world.tend();
            world.settle(pass, Nothing);
        }
    }
    // The hung one, four overdue ones that then said nothing, five good ones.
    assert_eq!(world.view().slow_rate, Some(0.5));
    world.abandon(hung, false);
    assert_eq!(world.view().slow_rate, Some(0.5), "not a second time");
}

#[test]
fn a_cancelled_call_without_a_byte_past_the_limit_is_slow() {
    let mut world = world();
    world.good(9);
    let pass = world.pass();
    world.wait(3);
    world.abandon(pass, false);
    assert_eq!(world.view().slow_rate, Some(0.1));
}

#[test]
fn a_cancelled_call_that_had_heard_something_or_was_not_late_says_nothing() {
    let mut world = world();
    world.good(10);
    let before = world.view();
    let heard = world.pass();
    world.wait(3);
    world.abandon(heard, true);
    let early = world.pass();
    world.pass_time(ALMOST);
    world.abandon(early, false);
    let never_sent = world.queue().expect("closed");
    world.wait(100);
    world.abandon(never_sent, false);
    assert_eq!(world.view(), before);
}

#[test]
fn a_slow_good_probe_counts_as_failed_where_slow_matters() {
    let due = |rules| {
        let mut world = World::new(rules);
        world.bad(10);
        world.until_due();
        world
    };
    let mut world = due(Rules::rate_kis());
    world.lasting(secs(3), Good);
    assert_eq!(world.view().failures, 1);
    world.lasting(secs(3), Good);
    assert_eq!(world.shown(), Shown::Open, "two slow ones, one is allowed");
    let mut world = due(Rules { slow: None, ..Rules::rate_kis() });
    world.lasting(secs(3), Good);
    world.lasting(secs(3), Good);
    assert_eq!(world.shown(), Shown::Closed, "without a rule nothing is slow");
}

#[test]
fn a_cancelled_probe_without_a_byte_past_the_limit_has_failed() {
    let rules = Rules { probes: Rules::escalating().probes, ..Rules::rate_kis() };
    let mut world = World::new(rules);
    world.bad(10);
    world.until_due();
    let probe = world.probe();
    world.wait(3);
    world.abandon(probe, true);
    assert_eq!(world.shown(), Shown::ProbeDue, "a byte had come");
    let probe = world.probe();
    world.wait(3);
    world.abandon(probe, false);
    assert_eq!(world.shown(), Shown::Open);
}

#[test]
fn a_slow_and_bad_one_enters_both_windows() {
    let mut world = World::new(Rules::rate_kis());
    world.good(9);
    let pass = world.pass();
    world.settle_with(pass, Outcome { verdict: Bad, elapsed: Some(secs(10)), retry_after: None });
    assert_eq!((world.view().failure_rate, world.view().slow_rate), (Some(0.1), Some(0.1)));
}
