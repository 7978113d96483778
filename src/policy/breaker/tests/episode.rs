use super::world::{World, secs};
use crate::policy::breaker::event::{Cause, Summary};
use crate::policy::breaker::{Event, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good};

/// Opened, and closed by a good probe 30 s later.
fn recovered() -> World {
    let mut world = World::new(Rules::escalating());
    world.bad(5);
    world.until_due();
    world.good(1);
    assert_eq!(world.summaries(), []);
    world
}

#[test]
fn an_episode_ends_after_three_good_calls_in_a_row_and_is_told_once() {
    let mut world = recovered();
    let started_at = world.view().episode.expect("not over").started_at;
    world.good(2);
    world.wait(1);
    world.bad(1);
    world.good(2);
    assert_eq!(world.summaries(), [], "a bad one among them");
    world.good(1);
    let expected = Summary {
        started_at,
        duration: secs(31),
        total_open: secs(30),
        reopen_count: 0,
        probe_count: 1,
        lost_probes: 0,
        rejected: 1,
        cause: Cause::Streak,
    };
    assert_eq!(world.summaries(), [expected]);
    world.good(100);
    world.wait(1000);
    world.tend();
    assert_eq!(world.summaries(), []);
}

#[test]
fn an_episode_ends_after_300_quiet_seconds_counted_only_in_closed() {
    let mut world = World::new(Rules::escalating());
    world.bad(5);
    world.wait(1000);
    world.tend();
    assert_eq!(world.summaries(), [], "it was open, and nobody probed");
    world.good(1);
    world.wait(299);
    world.tend();
    assert_eq!(world.summaries(), []);
    world.wait(1);
    world.tend();
    let [summary] = &world.summaries()[..] else { panic!("one episode") };
    assert_eq!((summary.duration, summary.total_open), (secs(1300), secs(1000)));
}

#[test]
fn a_bad_call_in_closed_puts_the_quiet_end_off() {
    let mut world = recovered();
    world.wait(299);
    world.bad(1);
    world.wait(299);
    world.tend();
    assert_eq!(world.summaries(), []);
    world.wait(1);
    world.tend();
    assert_eq!(world.summaries()[0].duration, secs(30 + 299 + 300));
}

#[test]
fn a_quiet_end_that_nobody_saw_counts_to_its_own_instant() {
    let touches: [fn(&mut World); 4] =
        [|world| world.tend(), |world| world.bad(1), |world| world.good(1), |world| drop(world.order())];
    for touch in touches {
        let mut world = recovered();
        world.wait(100_000);
        assert_eq!(world.view().episode, None, "a reader sees it too");
        touch(&mut world);
        let [summary] = &world.summaries()[..] else { panic!("one episode") };
        assert_eq!((summary.duration, summary.total_open), (secs(330), secs(30)));
    }
    let mut world = recovered();
    world.wait(100_000);
    world.bad(5);
    assert_eq!((world.shown(), world.view().rung), (Shown::Open, 0), "an episode of its own");
}

#[test]
fn a_reset_ends_an_episode_and_tells_it() {
    let mut world = World::new(Rules::escalating());
    world.bad(5);
    world.wait(12);
    let (at, order) = (world.at(), world.by_hand(None));
    world.breaker.reset(at, order.clone());
    let [summary] = &world.summaries()[..] else { panic!("one episode") };
    assert_eq!((summary.duration, summary.total_open), (secs(12), secs(12)));
    world.breaker.reset(at, order);
    assert_eq!(world.summaries(), []);
}

#[test]
fn the_summary_of_a_long_episode_adds_up() {
    let mut world = World::new(Rules::escalating());
    world.bad(5);
    world.until_due(); // 30 s, one rejected
    let probe = world.probe();
    world.wait(10);
    world.settle(probe, Bad);
    world.until_due(); // 60 s, one rejected
    let lost = world.probe();
    world.wait(60);
    world.call(Good); // closed after 160 s
    drop(lost);
    world.wait(7);
    world.bad(5); // opens on rung 2
    world.until_due(); // 120 s, one rejected
    world.good(4);
    let [summary] = &world.summaries()[..] else { panic!("one episode") };
    assert_eq!((summary.duration, summary.total_open), (secs(287), secs(280)));
    assert_eq!((summary.reopen_count, summary.probe_count, summary.lost_probes), (2, 4, 1));
    assert_eq!((summary.rejected, summary.cause), (3, Cause::Streak));
}

#[test]
fn blocked_time_is_never_more_than_the_duration_whatever_the_schedule_promised() {
    let mut world = World::new(Rules { schedule: vec![secs(300)], ..Rules::escalating() });
    world.bad(5);
    world.wait(5);
    let (at, order) = (world.at(), world.by_hand(None));
    world.breaker.reset(at, order);
    let summary = &world.summaries()[0];
    assert_eq!((summary.total_open, summary.duration), (secs(5), secs(5)), "of 300 s that were planned");
}

#[test]
fn the_events_of_an_episode_come_in_order() {
    let mut world = World::new(Rules { streak: Some(1), ..Rules::escalating() });
    world.bad(1);
    world.wait(30);
    world.bad(1);
    world.wait(60);
    world.good(4);
    let names: Vec<_> = world.events().iter().map(name).collect();
    assert_eq!(names, ["failure", "opened", "reopened", "closed", "summary"]);
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Failure { .. } => "failure",
        Event::Opened { .. } => "opened",
        Event::Reopened { .. } => "reopened",
        Event::Closed { .. } => "closed",
        Event::EpisodeSummary(_) => "summary",
        Event::ByHand { .. } => "by hand",
    }
}
