use super::world::{World, secs};
use crate::policy::breaker::event::Cause;
use crate::policy::breaker::rules::{Over, Rate};
use crate::policy::breaker::{Counted, Event, Outcome, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good, None as Nothing};

fn by_rate(over: Over, min: u32, at_least: f64) -> Rules {
    Rules { streak: None, rate: Some(Rate { over, min, at_least }), ..Rules::escalating() }
}

#[test]
fn five_in_a_row_open_it_and_four_do_not() {
    let mut world = World::new(Rules::escalating());
    world.bad(4);
    assert_eq!(world.shown(), Shown::Closed);
    world.bad(1);
    assert_eq!(world.shown(), Shown::Open);
    let failure = |fail_count| Event::Failure { fail_count, threshold: Some(5) };
    let opened = Event::Opened { cause: Cause::Streak, fail_count: 5, open_for: secs(30), rung: 0 };
    assert_eq!(world.events(), [failure(1), failure(2), failure(3), failure(4), failure(5), opened]);
}

#[test]
fn sparse_failures_trip_too_since_a_streak_has_no_window() {
    let mut world = World::new(Rules::escalating());
    for _ in 0..5 {
        assert_eq!(world.shown(), Shown::Closed);
        world.bad(1);
        world.wait(19);
    }
    assert_eq!(world.shown(), Shown::Open);
}

#[test]
fn a_good_call_ends_a_streak_only_if_it_was_admitted_after_the_streak_began() {
    let mut world = World::new(Rules::escalating());
    let early = world.pass();
    world.bad(4);
    world.settle(early, Good);
    assert_eq!(world.view().streak, 4, "admitted before the first failure was known");
    let later = world.pass();
    world.settle(later, Good);
    assert_eq!(world.view().streak, 0);
    world.bad(4);
    assert_eq!(world.shown(), Shown::Closed);
}

#[test]
fn one_logical_call_adds_at_most_one_to_a_streak() {
    let mut world = World::new(Rules::escalating());
    for _ in 0..100 {
        let attempt = world.admit_as(7).expect("closed");
        world.settle(attempt, Bad);
    }
    assert_eq!((world.view().streak, world.shown()), (1, Shown::Closed));
    world.bad(3);
    let attempt = world.admit_as(7).expect("closed");
    world.settle(attempt, Bad);
    assert_eq!((world.view().streak, world.shown()), (4, Shown::Closed));
    world.bad(1);
    assert_eq!(world.shown(), Shown::Open);
}

#[test]
fn a_verdict_of_none_enters_no_streak_and_no_window_and_ends_no_streak() {
    for rules in [Rules::escalating(), Rules::rate_kis(), Rules::rate_yahoo()] {
        let mut world = World::new(rules);
        world.bad(4);
        let before = world.view();
        world.calls(1000, Nothing);
        assert_eq!(world.view(), before);
    }
}

#[test]
fn a_rate_says_nothing_below_its_minimum() {
    let mut world = World::new(by_rate(Over::Calls(20), 10, 0.5));
    world.bad(9);
    assert_eq!((world.shown(), world.view().failure_rate), (Shown::Closed, None));
    world.good(1);
    assert_eq!(world.shown(), Shown::Open, "the tenth makes the rate known, even though it is a good one");
}

#[test]
fn a_rate_opens_exactly_at_its_share() {
    let mut world = World::new(by_rate(Over::Calls(100), 100, 0.07));
    world.good(93);
    world.bad(6);
    world.good(1);
    assert_eq!(world.view().failure_rate, Some(0.06));
    world.bad(1);
    assert_eq!(world.shown(), Shown::Open, "7 of 100");
}

#[test]
fn a_window_of_calls_slides_so_that_a_long_good_past_hides_nothing() {
    let mut world = World::new(Rules::rate_kis());
    world.good(1000);
    world.bad(9);
    assert_eq!(world.view().failure_rate, Some(0.45));
    world.bad(1);
    assert_eq!(world.shown(), Shown::Open, "10 bad of the last 20");
}

#[test]
fn a_window_of_time_forgets_what_is_older() {
    let rules = by_rate(Over::Time(secs(10)), 3, 0.5);
    let mut world = World::new(rules.clone());
    world.bad(2);
    world.wait(10);
    world.bad(1);
    assert_eq!(world.shown(), Shown::Closed, "the first two are 10 s old");
    let mut world = World::new(rules);
    world.bad(2);
    world.pass_time(secs(10) - std::time::Duration::from_nanos(1));
    world.bad(1);
    assert_eq!(world.shown(), Shown::Open, "the first two are not yet 10 s old");
}

#[test]
fn rejections_dilute_no_rate_and_are_counted_apart() {
    let mut world = World::new(Rules::rate_kis());
    world.bad(10);
    for _ in 0..1000 {
        assert!(world.admit().is_err());
    }
    world.until_due();
    let view = world.view();
    assert_eq!((view.rejected, view.calls, view.failure_rate), (1001, 0, None));
    world.good(2);
    world.bad(4);
    world.good(5);
    assert_eq!(world.shown(), Shown::Closed);
    world.bad(1);
    assert_eq!(world.shown(), Shown::Open, "5 of 10 after it closed");
}

#[test]
fn a_report_of_an_older_epoch_is_counted_as_stale_and_changes_nothing_else() {
    for verdict in [Good, Bad, Nothing] {
        let mut world = World::new(Rules::escalating());
        let [early, another, third] = [world.pass(), world.pass(), world.pass()];
        world.bad(5);
        for (shown, late) in [(Shown::Open, early), (Shown::ProbeDue, another)] {
            assert_eq!(world.shown(), shown);
            let mut before = world.view();
            let late_outcome = Outcome { verdict, elapsed: Some(secs(100)), retry_after: Some(secs(1000)) };
            assert_eq!(world.settle_with(late, late_outcome), Counted::Stale);
            before.stale += 1;
            assert_eq!(world.view(), before);
            if shown == Shown::Open {
                world.until_due();
            }
        }
        world.good(1);
        let mut before = world.view();
        assert_eq!(world.settle(third, verdict), Counted::Stale);
        before.stale += 1;
        assert_eq!((world.view(), world.shown()), (before, Shown::Closed));
    }
}

#[test]
fn what_was_counted_is_forgotten_with_each_transition() {
    let mut world = World::new(Rules::rate_kis());
    world.good(9);
    world.bad(9);
    assert_eq!(world.shown(), Shown::Open);
    world.until_due();
    world.good(2);
    let view = world.view();
    assert_eq!((view.shown, view.calls, view.failure_rate, view.streak), (Shown::Closed, 0, None, 0));
    world.bad(9);
    assert_eq!(world.shown(), Shown::Closed, "nine outcomes, the minimum is ten");
}

#[test]
fn the_view_counts_successes_and_failures_of_this_epoch() {
    let mut world = World::new(Rules::rate_yahoo());
    world.good(10);
    world.bad(4);
    world.calls(3, Nothing);
    let view = world.view();
    assert_eq!((view.calls, view.successes, view.failures), (14, 10, 4));
    assert_eq!((view.streak, view.failure_rate), (4, Some(4.0 / 14.0)));
}
