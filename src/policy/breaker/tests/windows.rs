//! The machine with a calendar: to the second.

use std::collections::BTreeSet;

use jiff::civil::date;
use jiff::tz::TimeZone;

use super::world::{World, secs};
use crate::policy::Wall;
use crate::policy::breaker::calendar::{Calendar, Mode, Window};
use crate::policy::breaker::{Breaker, Counted, Outcome, Reason, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good};

/// Mondays to Fridays from `from` to `to` in Seoul.
fn window(mode: Mode, from: (i8, i8), to: (i8, i8)) -> Window {
    let time = |(hour, minute)| jiff::civil::time(hour, minute, 0, 0);
    Window {
        tz: TimeZone::get("Asia/Seoul").expect("the time zone is known"),
        days: [true, true, true, true, true, false, false],
        holidays: BTreeSet::new(),
        from: time(from),
        to: time(to),
        mode,
    }
}

fn with(windows: &[Window]) -> Rules {
    Rules { calendar: Calendar { windows: windows.to_vec() }, ..Rules::escalating() }
}

/// On Wednesday, 2026-07-08, at this time in Seoul.
fn seoul(hour: i8, minute: i8, second: i8) -> Wall {
    let zoned = date(2026, 7, 8).at(hour, minute, second, 0).in_tz("Asia/Seoul").expect("a time");
    Wall::from_unix_us(zoned.timestamp().as_microsecond())
}

fn at(rules: Rules, wall: Wall) -> World {
    let mut world = World::new(rules);
    world.wall = wall;
    world
}

fn set_to(world: &mut World, wall: Wall) {
    world.pass_time(wall.saturating_since(world.wall));
}

/// Tripped at 09:00:07; when each of four probes goes out, if each fails after 10 s.
fn probes_of_the_morning(rules: Rules) -> Vec<Wall> {
    let mut world = at(rules, seoul(9, 0, 7));
    world.bad(5);
    let mut probes = Vec::new();
    for _ in 0..4 {
        world.until_due();
        probes.push(world.wall);
        let probe = world.probe();
        world.wait(10);
        world.settle(probe, Bad);
    }
    probes
}

#[test]
fn in_the_black_hole_of_the_morning_probes_go_out_at_00_37_01_47_03_57_and_05_00() {
    let expect = [window(Mode::Expect, (9, 0), (9, 5))];
    let expected = [seoul(9, 0, 37), seoul(9, 1, 47), seoul(9, 3, 57), seoul(9, 5, 0)];
    assert_eq!(probes_of_the_morning(with(&expect)), expected);
}

#[test]
fn without_the_window_the_last_probe_of_the_morning_would_go_out_at_09_07() {
    let expected = [seoul(9, 0, 37), seoul(9, 1, 47), seoul(9, 3, 57), seoul(9, 9, 7)];
    assert_eq!(probes_of_the_morning(with(&[])), expected);
}

#[test]
fn the_summary_of_the_morning_has_no_more_blocked_time_than_it_lasted() {
    let mut world = at(with(&[window(Mode::Expect, (9, 0), (9, 5))]), seoul(9, 0, 7));
    world.bad(5);
    for _ in 0..3 {
        world.until_due();
        let probe = world.probe();
        world.wait(10);
        world.settle(probe, Bad);
    }
    world.until_due();
    assert_eq!(world.wall, seoul(9, 5, 0));
    world.good(1);
    for _ in 0..3 {
        world.wait(4);
        world.good(1);
    }
    let [summary] = &world.summaries()[..] else { panic!("one episode") };
    assert_eq!((summary.started_at, summary.duration), (seoul(9, 0, 7), secs(305)));
    assert_eq!((summary.total_open, summary.reopen_count, summary.probe_count), (secs(293), 3, 4));
}

#[test]
fn where_a_wait_was_cut_the_schedule_begins_anew() {
    let mut world = at(with(&[window(Mode::Expect, (9, 0), (9, 5))]), seoul(9, 0, 7));
    world.bad(5);
    for _ in 0..3 {
        world.until_due();
        let probe = world.probe();
        world.wait(10);
        world.settle(probe, Bad);
    }
    assert_eq!(world.view().rung, 0);
    world.until_due();
    world.bad(1);
    assert_eq!((world.view().rung, world.refused_for()), (1, secs(60)));
}

#[test]
fn an_expected_window_blocks_nothing() {
    let mut world = at(with(&[window(Mode::Expect, (9, 0), (9, 5))]), seoul(8, 59, 59));
    for _ in 0..302 {
        world.good(1);
        assert_eq!(world.shown(), Shown::Closed);
        world.wait(1);
    }
}

#[test]
fn what_the_vendor_asked_for_beats_the_cut() {
    let mut world = at(with(&[window(Mode::Expect, (9, 0), (9, 5))]), seoul(9, 4, 50));
    world.bad(4);
    let pass = world.pass();
    world.settle_with(pass, Outcome { verdict: Bad, elapsed: None, retry_after: Some(secs(20)) });
    assert_eq!(world.refused_for(), secs(20), "not 10 s, the end of the window, and not 30 s, the rung");
}

#[test]
fn in_a_closed_window_nobody_passes_until_its_end_and_then_a_probe_goes_first() {
    let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(5, 59, 59));
    world.good(1);
    world.wait(1);
    let refusal = world.admit().expect_err("closed");
    assert_eq!((refusal.reason, refusal.retry_at), (Reason::ClosedWindow, world.now + secs(1800)));
    assert_eq!((world.shown(), world.order().is_err()), (Shown::Held, true));
    set_to(&mut world, seoul(6, 29, 59));
    assert_eq!(world.refused_for(), secs(1));
    world.wait(1);
    assert_eq!((world.shown(), world.view().episode), (Shown::ProbeDue, None));
    assert_eq!(world.order().expect_err("a probe first").reason, Reason::NoProbe);
    world.good(1);
    assert_eq!(world.shown(), Shown::Closed);
    assert_eq!(world.summaries(), [], "no episode");
}

#[test]
fn a_closed_window_that_nobody_saw_is_followed_by_a_probe_too() {
    let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(5, 0, 0));
    let early = world.pass();
    set_to(&mut world, seoul(12, 0, 0));
    assert_eq!(world.shown(), Shown::ProbeDue);
    assert_eq!(world.settle(early, Good), Counted::Stale);
    world.good(1);
    world.wait(3600);
    assert_eq!(world.shown(), Shown::Closed, "once");
}

#[test]
fn a_breaker_made_after_a_closed_window_is_closed() {
    let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(6, 30, 0));
    assert_eq!(world.shown(), Shown::Closed);
    world.good(1);
}

#[test]
fn a_failed_probe_after_a_closed_window_begins_an_episode_on_the_first_rung() {
    let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(6, 0, 0));
    assert!(world.admit().is_err());
    set_to(&mut world, seoul(6, 30, 0));
    world.bad(1);
    let view = world.view();
    assert_eq!((view.shown, view.rung, view.episode.is_some()), (Shown::Open, 0, true));
    assert_eq!(world.refused_for(), secs(30));
    world.wait(30);
    world.good(4);
    assert_eq!(world.summaries()[0].total_open, secs(30));
}

#[test]
fn an_open_wait_that_ends_in_a_closed_window_is_told_with_the_end_of_the_window() {
    let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(5, 59, 50));
    world.bad(5);
    let refusal = world.admit().expect_err("open");
    assert_eq!((refusal.reason, refusal.retry_at), (Reason::Open, world.now + secs(1810)));
    world.wait(15);
    let refusal = world.admit().expect_err("closed");
    assert_eq!((refusal.reason, refusal.retry_at), (Reason::ClosedWindow, world.now + secs(1795)));
    set_to(&mut world, seoul(6, 30, 0));
    world.good(1);
    assert_eq!(world.shown(), Shown::Closed);
}

#[test]
fn an_open_wait_that_outlasts_a_closed_window_is_told_with_its_own_end() {
    let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(5, 59, 50));
    world.bad(4);
    let pass = world.pass();
    world.settle_with(pass, Outcome { verdict: Bad, elapsed: None, retry_after: Some(secs(7200)) });
    world.wait(60);
    assert_eq!((world.shown(), world.refused_for()), (Shown::Held, secs(7140)));
}

#[test]
fn a_pass_that_waits_for_its_slot_may_not_be_sent_in_a_closed_window() {
    let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(5, 59, 50));
    let mut waiting = world.queue().expect("closed breaker");
    world.wait(10);
    let moment = world.at();
    let refusal = world.breaker.sending(moment, &mut waiting).expect_err("the window has begun");
    assert_eq!((refusal.reason, refusal.retry_at), (Reason::ClosedWindow, world.now + secs(1800)));
    world.abandon(waiting, false);
}

#[test]
fn a_probe_answered_in_a_closed_window_closes_and_the_next_goes_after_it() {
    let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(5, 59, 25));
    world.bad(5);
    world.wait(30);
    let probe = world.probe();
    world.wait(10);
    world.settle(probe, Good);
    assert_eq!(world.shown(), Shown::Held);
    set_to(&mut world, seoul(6, 30, 0));
    assert_eq!(world.shown(), Shown::ProbeDue);
    world.good(1);
}

#[test]
fn orders_that_let_everybody_pass_beat_a_closed_window() {
    let give: [fn(&mut Breaker, _, _); 2] = [Breaker::bypass, Breaker::observe];
    for give in give {
        let mut world = at(with(&[window(Mode::Closed, (6, 0), (6, 30))]), seoul(6, 10, 0));
        assert!(world.admit().is_err());
        let (moment, order) = (world.at(), world.by_hand(None));
        give(&mut world.breaker, moment, order);
        let mut pass = world.queue().expect("ordered");
        let moment = world.at();
        assert_eq!(world.breaker.sending(moment, &mut pass), Ok(()));
        world.settle(pass, Good);
    }
}

#[test]
fn a_closed_window_beats_an_expected_one() {
    let windows = [window(Mode::Expect, (9, 0), (9, 5)), window(Mode::Closed, (9, 0), (9, 2))];
    let mut world = at(with(&windows), seoul(9, 0, 0));
    assert_eq!(world.refused_for(), secs(120));
    world.wait(120);
    assert_eq!(world.shown(), Shown::ProbeDue);
}

#[test]
fn a_step_of_the_wall_clock_in_a_window_makes_no_wait_longer_than_its_rung() {
    let mut world = at(with(&[window(Mode::Expect, (9, 0), (9, 5))]), seoul(9, 4, 50));
    world.bad(5);
    let until = world.admit().expect_err("open").retry_at;
    assert_eq!(until, world.now + secs(10));
    for wall in [seoul(1, 0, 0), seoul(9, 0, 0), seoul(23, 0, 0)] {
        world.wall = wall;
        assert_eq!(world.admit().expect_err("open").retry_at, until);
    }
}
