//! State x event, as the page shows it.

use std::time::Duration;

use super::world::{World, secs};
use crate::policy::breaker::calendar::{Calendar, Mode, Window};
use crate::policy::breaker::{Breaker, Counted, Pass, Refusal, Rules, Shown};
use crate::policy::verdict::Verdict::{Bad, Good, None as Nothing};

const PAGE: &str = include_str!("../../../../docs/breaker.md");
const TESTS: [&str; 10] = [
    include_str!("by_hand.rs"),
    include_str!("episode.rs"),
    include_str!("faults.rs"),
    include_str!("presets.rs"),
    include_str!("probes.rs"),
    include_str!("random.rs"),
    include_str!("schedule.rs"),
    include_str!("trip.rs"),
    include_str!("windows.rs"),
    include_str!("../../../../tests/calls/breaker.rs"),
];

const STATES: [Shown; 8] = [
    Shown::Closed,
    Shown::Open,
    Shown::ProbeDue,
    Shown::Probing,
    Shown::Held,
    Shown::ForcedOpen,
    Shown::Bypass,
    Shown::Observe,
];

type Happens = fn(&mut World, Passes) -> String;
const EVENTS: [(&str, Happens); 13] = [
    ("a call asks", |world, _| asks(world.admit())),
    ("an order asks", |world, _| asks(world.order())),
    ("good", |world, passes| reports(world, passes.current, Good)),
    ("bad", |world, passes| reports(world, passes.current, Bad)),
    ("none", |world, passes| reports(world, passes.current, Nothing)),
    ("given up", |world, passes| {
        let Some(pass) = passes.current else { return "-".to_owned() };
        world.abandon(pass, false);
        String::new()
    }),
    ("late good", |world, passes| reports(world, Some(passes.late), Good)),
    ("late bad", |world, passes| reports(world, Some(passes.late), Bad)),
    ("time", |world, _| {
        let wait = world.view().retry_at.map_or(Duration::ZERO, |retry_at| retry_at.saturating_since(world.now));
        world.pass_time(wait.max(secs(60)));
        String::new()
    }),
    ("force_open", |world, _| order(world, Breaker::force_open)),
    ("bypass", |world, _| order(world, Breaker::bypass)),
    ("observe", |world, _| order(world, Breaker::observe)),
    ("reset", |world, _| order(world, Breaker::reset)),
];

struct Passes {
    /// Handed out in this state, where one can be.
    current: Option<Pass>,
    /// Handed out in an epoch before.
    late: Pass,
}

/// A breaker of the preset `escalating` in this state. Closed is one bad call before its trip; an order in force runs out.
fn in_state(shown: Shown) -> (World, Passes) {
    let utc = |hour| jiff::civil::time(hour, 0, 0, 0);
    let maintenance = Window {
        tz: jiff::tz::TimeZone::UTC,
        days: [true; 7],
        holidays: Default::default(),
        from: utc(1),
        to: utc(2),
        mode: Mode::Closed,
    };
    let mut world = World::new(Rules { calendar: Calendar { windows: vec![maintenance] }, ..Rules::escalating() });
    let late = world.pass();
    let (at, reset) = (world.at(), world.by_hand(None));
    world.breaker.reset(at, reset);
    let give = |world: &mut World, order: fn(&mut Breaker, _, _)| {
        let (at, until) = (world.at(), world.by_hand(Some(60)));
        order(&mut world.breaker, at, until);
    };
    match shown {
        Shown::Closed => world.bad(4),
        Shown::Open => world.bad(5),
        Shown::ProbeDue | Shown::Probing => {
            world.bad(5);
            world.wait(30);
        }
        Shown::Held => world.wait(3600),
        Shown::ForcedOpen => give(&mut world, Breaker::force_open),
        Shown::Bypass => give(&mut world, Breaker::bypass),
        Shown::Observe => give(&mut world, Breaker::observe),
    }
    let hands_out = matches!(shown, Shown::Closed | Shown::Probing | Shown::Bypass | Shown::Observe);
    let current = hands_out.then(|| world.pass());
    assert_eq!(world.shown(), shown);
    (world, Passes { current, late })
}

fn asks(answer: Result<Pass, Refusal>) -> String {
    match answer {
        Ok(pass) if pass.probe => "probe".to_owned(),
        Ok(_) => "pass".to_owned(),
        Err(_) => "refused".to_owned(),
    }
}

fn reports(world: &mut World, pass: Option<Pass>, verdict: crate::policy::verdict::Verdict) -> String {
    let Some(pass) = pass else { return "-".to_owned() };
    let before = world.view();
    match world.settle(pass, verdict) {
        Counted::Stale => "stale".to_owned(),
        Counted::Yes if world.view() == before => "nothing".to_owned(),
        Counted::Yes => "counts".to_owned(),
    }
}

fn order(
    world: &mut World,
    give: fn(&mut Breaker, crate::policy::breaker::Moment, crate::policy::breaker::Order),
) -> String {
    let (at, order) = (world.at(), world.by_hand(Some(60)));
    give(&mut world.breaker, at, order);
    String::new()
}

fn cell(state: Shown, happens: Happens) -> String {
    let (mut world, passes) = in_state(state);
    let answer = happens(&mut world, passes);
    let after = world.shown();
    let moves = if after == state { String::new() } else { format!("> {}", after.as_str()) };
    let cell = [answer, moves].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    if cell.is_empty() { "stays".to_owned() } else { cell }
}

/// A row for each event, a column for each state.
fn table() -> String {
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(STATES.iter().map(|state| state.as_str().to_owned()));
    for (name, happens) in EVENTS {
        let mut row = vec![name.to_owned()];
        row.extend(STATES.iter().map(|state| cell(*state, happens)));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let widths: Vec<_> = (0..=STATES.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[test]
fn the_page_shows_what_each_event_does_in_each_state() {
    let shown = PAGE.split_once("```state-x-event\n").and_then(|(_, rest)| rest.split_once("```"));
    let shown = shown.map(|(shown, _)| shown);
    assert!(shown == Some(&table()), "docs/breaker.md, the block state-x-event, should be:\n{}", table());
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let (_, faults) = PAGE.split_once("| fault | test |").expect("the page has the table of faults");
    let named: Vec<_> = faults.split('`').skip(1).step_by(2).collect();
    assert!(named.len() >= 16, "{named:?}");
    for name in named {
        let there = TESTS.iter().any(|tests| tests.contains(&format!("\nfn {name}()")));
        assert!(there, "docs/breaker.md names the test {name}, and there is none");
    }
}
