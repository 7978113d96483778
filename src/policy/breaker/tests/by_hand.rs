use super::world::{World, secs};
use crate::policy::breaker::{Breaker, Counted, Event, Moment, Order, Reason, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good};

type Give = fn(&mut Breaker, Moment, Order);
const ORDERS: [(Shown, Give); 3] =
    [(Shown::ForcedOpen, Breaker::force_open), (Shown::Bypass, Breaker::bypass), (Shown::Observe, Breaker::observe)];

fn give(world: &mut World, give: Give, seconds: Option<u64>) {
    let (at, order) = (world.at(), world.by_hand(seconds));
    give(&mut world.breaker, at, order);
}

fn told(what: &'static str) -> Event {
    Event::ByHand { what, who: "ann".into(), why: "a drill".into() }
}

#[test]
fn forced_open_refuses_everybody_and_says_who_why_and_until_when() {
    let mut world = World::new(Rules::escalating());
    give(&mut world, Breaker::force_open, Some(90));
    let refusal = world.admit().expect_err("forced open");
    assert_eq!(refusal.reason, Reason::ForcedOpen { who: "ann".into(), why: "a drill".into() });
    assert_eq!(refusal.retry_at, world.now + secs(90));
    assert_eq!(world.view().why, "ann: a drill");
    give(&mut world, Breaker::force_open, None);
    assert_eq!(world.refused_for(), secs(1), "it can be taken back at any time");
}

#[test]
fn bypass_lets_everybody_pass_and_counts_nothing() {
    let mut world = World::new(Rules::rate_kis());
    world.bad(10);
    give(&mut world, Breaker::bypass, None);
    world.bad(100);
    let order = world.order().expect("bypass");
    world.settle(order, Bad);
    let view = world.view();
    assert_eq!((view.shown, view.calls, view.streak, view.failure_rate), (Shown::Bypass, 0, 0, None));
}

#[test]
fn observe_counts_and_never_trips() {
    for rules in [Rules::escalating(), Rules::rate_kis()] {
        let mut world = World::new(rules);
        give(&mut world, Breaker::observe, None);
        world.bad(30);
        for _ in 0..30 {
            world.lasting(secs(10), Bad);
        }
        let hung = world.pass();
        world.wait(100);
        world.tend();
        world.abandon(hung, false);
        let view = world.view();
        assert_eq!((view.shown, view.failures, view.episode), (Shown::Observe, 60, None));
    }
}

#[test]
fn an_order_that_runs_out_is_over_at_its_instant_and_told_once() {
    for ((shown, order), name) in ORDERS.into_iter().zip(["force_open", "bypass", "observe"]) {
        let mut world = World::new(Rules::escalating());
        give(&mut world, order, Some(90));
        assert_eq!((world.shown(), world.breaker.epoch()), (shown, 1));
        assert_eq!(world.events(), [told(name)]);
        world.pass_time(secs(90) - std::time::Duration::from_nanos(1));
        assert_eq!(world.shown(), shown);
        world.wait(1);
        assert_eq!(world.shown(), Shown::Closed);
        world.tend();
        world.good(1);
        assert_eq!(world.breaker.epoch(), 2);
        let [Event::ByHand { what, .. }] = world.events()[..] else { panic!("told once") };
        assert_eq!(what, format!("{name} ran out"));
    }
}

#[test]
fn each_order_given_replaced_taken_back_or_run_out_makes_older_passes_stale() {
    for (_, order) in ORDERS {
        let mut world = World::new(Rules::escalating());
        let before = world.pass();
        give(&mut world, order, None);
        assert_eq!(world.settle(before, Bad), Counted::Stale);
        give(&mut world, Breaker::bypass, None);
        let during = world.pass();
        give(&mut world, Breaker::observe, Some(10));
        assert_eq!(world.settle(during, Bad), Counted::Stale);
        let during = world.pass();
        world.wait(10);
        assert_eq!(world.settle(during, Bad), Counted::Stale);
        let during = world.pass();
        give(&mut world, Breaker::reset, None);
        assert_eq!(world.settle(during, Bad), Counted::Stale);
        assert_eq!(world.breaker.epoch(), 5);
    }
}

#[test]
fn below_an_order_the_breaker_stays_what_it_was_and_probes_afterwards() {
    for (shown, order) in ORDERS {
        let mut world = World::new(Rules::escalating());
        world.bad(5);
        give(&mut world, order, Some(100));
        assert_eq!(world.shown(), shown);
        world.wait(100);
        assert_eq!(world.shown(), Shown::ProbeDue);
        world.good(4);
        let [summary] = &world.summaries()[..] else { panic!("one episode") };
        let blocked = if shown == Shown::ForcedOpen { 100 } else { 0 };
        assert_eq!((summary.duration, summary.total_open), (secs(100), secs(blocked)), "{shown:?}");
    }
}

#[test]
fn time_below_an_order_is_no_quiet_time() {
    for (_, order) in ORDERS {
        let mut world = World::new(Rules::escalating());
        world.bad(5);
        world.until_due();
        world.good(1);
        world.wait(299);
        give(&mut world, order, Some(1000));
        world.wait(1000);
        world.tend();
        assert_eq!(world.summaries(), []);
        world.wait(299);
        world.tend();
        assert_eq!(world.summaries(), []);
        world.wait(1);
        world.tend();
        assert_eq!(world.summaries().len(), 1);
    }
}

#[test]
fn a_reset_closes_counts_nothing_and_takes_back_any_order() {
    for (_, order) in ORDERS {
        let mut world = World::new(Rules::escalating());
        world.bad(5);
        world.until_due();
        world.bad(1);
        give(&mut world, order, None);
        world.events();
        give(&mut world, Breaker::reset, None);
        let view = world.view();
        assert_eq!((view.shown, view.rung, view.streak, view.calls, view.episode), (Shown::Closed, 0, 0, 0, None));
        let events = world.events();
        assert_eq!(events[..2], [told("reset"), Event::Closed { probe_count: 1 }]);
        assert!(matches!(events[2..], [Event::EpisodeSummary(_)]));
        world.good(1);
    }
}

#[test]
fn a_probe_that_is_out_when_an_order_comes_has_no_say_afterwards() {
    let mut world = World::new(Rules::escalating());
    world.bad(5);
    world.until_due();
    let probe = world.probe();
    give(&mut world, Breaker::bypass, Some(1));
    world.wait(1);
    assert_eq!(world.shown(), Shown::ProbeDue);
    assert_eq!(world.settle(probe, Good), Counted::Stale);
    assert_eq!(world.shown(), Shown::ProbeDue);
}
