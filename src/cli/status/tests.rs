//! The picture and what was granted before, without a terminal and a database.

use std::time::Duration;

use super::past::Past;
use super::picture::*;
use crate::cli::output::width;
use crate::policy::{Instant, Wall};
use crate::store::admin::Settings;
use crate::store::report::{ClassView, Report, View};
use crate::store::status::{Breaker, Budget, Class, Hold, Process, Server};

fn class(name: &str, granted: i64) -> Class {
    Class {
        budget: String::new(),
        name: name.into(),
        priority: 0,
        floor_ppm: 250_000,
        granted,
        waiting_lanes: 0,
        waiting_units: 0,
        last_slot_age_us: Some(61_174),
    }
}

fn report(budgets: &[(&str, Vec<Class>)]) -> Report {
    let view = |(name, classes): &(&str, Vec<Class>)| View {
        budget: budget(name),
        classes: classes
            .iter()
            .map(|class| ClassView {
                class: Class { budget: (*name).into(), ..class.clone() },
                share: Some(1.0 / classes.len() as f64),
            })
            .collect(),
    };
    let server = Server {
        version: "17.2".into(),
        fsync: "on".into(),
        synchronous_commit: "on".into(),
        full_page_writes: "on".into(),
        processes: vec![Process { application_name: "collector".into(), sessions: 4 }],
        oldest_snapshot: None,
    };
    Report { budgets: budgets.iter().map(view).collect(), breakers: Vec::new(), breakers_unseen: None, server }
}

fn budget(name: &str) -> Budget {
    Budget {
        name: name.into(),
        settings: Settings {
            limit: 18,
            window_us: 1_000_000,
            send_window_us: 50_000,
            arrival_jitter_us: 50_000,
            max_cost: 1,
            interval_us: 61_174,
            lookahead_us: 60_000,
        },
        version: 1,
        fences: 0,
        paused: false,
        paused_reason: None,
        paused_by: None,
        blocked_for_us: 0,
        blocked_reason: None,
        blocked_by: None,
        fenced_for_us: 0,
        last_slot_age_us: Some(-12_000),
    }
}

fn breaker() -> Breaker {
    Breaker {
        breaker: "kis/real/quote".into(),
        surfaces: vec!["kis/real/quote".into()],
        process: "7fffffffffffffff".into(),
        application_name: "collector".into(),
        state: "open".into(),
        why: "\x1b[2Jbad ones in a row, which is a long story that does not fit on one line of a terminal".into(),
        retry_us: Some(300_000_000),
        rung: 2,
        failure_rate_ppm: None,
        slow_rate_ppm: None,
        calls: 12,
        successes: 7,
        failures: 5,
        rejected: 40,
        episode: None,
        holds: vec![Hold { scope: "surface kis/real/balance".into(), why: "EGW00215".into(), left_us: 4_000_000 }],
        age_us: 2_000_000,
        stale: false,
    }
}

fn past(readings: &[&Report]) -> Past {
    let mut past = Past::default();
    for (second, report) in readings.iter().enumerate() {
        past.add(Instant::from_boot(Duration::from_secs(100 + second as u64)), report);
    }
    past
}

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn a_budget_shows_its_state_its_last_minute_and_what_each_class_gets_now() {
    let before = report(&[("kis-real", vec![class("order", 100), class("eod", 900)])]);
    let mut now = report(&[("kis-real", vec![class("order", 102), class("eod", 914)])]);
    now.budgets[0].classes[1].class.waiting_lanes = 2;
    now.budgets[0].classes[1].class.waiting_units = 7;
    let lines = lines(&now, &past(&[&before, &now]), None, 80);
    let bar = format!("  {}█  16.0 of 16.35/s", " ".repeat(59));
    assert_eq!(
        texts(&lines),
        [
            "kis-real  granting  last slot in 12ms, fences 0",
            &bar,
            "  CLASS  NOW/S  GRANTED  SHARE  FLOOR  WAITING       LAST SLOT",
            "  order  2.0    102      50.0%  25%    -             61ms ago",
            "  eod    14.0   914      50.0%  25%    7 in 2 lanes  61ms ago",
            "",
            "breakers",
            "  nothing was told within the last hour: a process tells while one is not closed",
            "",
            "processes  4 collector",
        ]
    );
}

#[test]
fn what_holds_a_budget_is_said_with_who_and_why() {
    let mut report = report(&[("kis-real", vec![])]);
    let budget = &mut report.budgets[0].budget;
    (budget.paused, budget.paused_by, budget.paused_reason) = (true, Some("ops".into()), Some("점검".into()));
    budget.blocked_for_us = 3_020_000;
    let lines = lines(&report, &past(&[&report]), None, 80);
    assert_eq!(lines[0].text, "kis-real  paused, pushed back for 3s 20ms  last slot in 12ms, fences 0");
    assert_eq!((lines[1].text.as_str(), lines[1].tone), ("  paused by ops: \"점검\"", Tone::Held));
    assert_eq!(lines[0].tone, Tone::Held);
}

#[test]
fn without_a_reading_it_says_since_when_and_why_and_keeps_the_figures() {
    let report = report(&[("kis-real", vec![class("order", 100)])]);
    let why = "127.0.0.1:5432 refuses connections".to_owned();
    let trouble = Trouble { since: Wall::from_unix_us(3_723_000_000), lasted: Duration::from_millis(72_400), why };
    let lines = lines(&report, &past(&[&report]), Some(&trouble), 80);
    assert_eq!(lines[0].text, "no reading since 01:02:03 UTC (1m 12s), trying again: 127.0.0.1:5432 refuses");
    assert_eq!(lines[0].tone, Tone::Wrong);
    assert!(lines.iter().any(|line| line.text.contains("order  -      100")), "{lines:#?}");
}

#[test]
fn no_line_is_wider_than_the_terminal_whatever_the_names_and_figures_are() {
    let long = "주문".repeat(40);
    let mut class = class(&long, 9_999_999_999);
    (class.waiting_lanes, class.waiting_units, class.last_slot_age_us) = (9_999, 999_999, Some(359_999_000_000));
    let mut report = report(&[(&long, vec![class.clone(), class]), ("kis-real", vec![])]);
    report.breakers = vec![breaker()];
    report.breakers[0].breaker = "시세".repeat(30);
    report.server.processes =
        (0..40).map(|n| Process { application_name: format!("수집기 {n}"), sessions: n }).collect();
    report.budgets[0].budget.paused = true;
    report.budgets[0].budget.paused_reason = Some("점검 ".repeat(50));
    for columns in [1, 2, 10, 20, 40, 79, 80, 81, 120, 300] {
        for line in lines(&report, &past(&[&report, &report]), None, columns) {
            assert!(width(&line.text) <= columns, "{columns}: {:?}", line.text);
            assert!(!line.text.contains(char::is_control), "{:?}", line.text);
        }
    }
    let at_80 = lines(&report, &past(&[&report, &report]), None, 80);
    assert!(at_80.iter().any(|line| line.text.contains("9999999999") && line.text.contains("999999 in 9999 lanes")));
}

#[test]
fn what_does_not_fit_into_the_height_is_counted_on_the_last_line() {
    let report = report(&[("kis-real", (0..50).map(|n| class(&format!("class-{n}"), n)).collect())]);
    let all = lines(&report, &past(&[&report]), None, 80);
    let count = all.len();
    assert_eq!(fitting(all.clone(), count, 80).len(), count);
    let cut = fitting(all, 24, 80);
    assert_eq!(cut.len(), 24);
    assert!(cut[23].text.starts_with(&format!("... {} more lines", count - 23)), "{:?}", cut[23]);
}

#[test]
fn the_bar_tells_nothing_seen_from_nothing_granted() {
    let steps = [None, Some(0.0), Some(0.1), Some(8.0), Some(16.0), Some(17.2)];
    assert_eq!(steps.map(|rate| step(rate, 16.0)), [' ', '.', '▁', '▄', '█', '█']);
}

fn at(ms: u64) -> Instant {
    Instant::from_boot(Duration::from_millis(1_000_000 + ms))
}

fn counted(readings: &[(u64, i64)]) -> Past {
    let mut past = Past::default();
    for (ms, granted) in readings {
        past.add(at(*ms), &report(&[("b", vec![class("c", *granted)])]));
    }
    past
}

#[test]
fn the_rate_is_the_difference_over_the_time_between_the_readings() {
    assert_eq!(counted(&[]).now("b", "c"), None);
    assert_eq!(counted(&[(0, 5)]).now("b", "c"), None);
    let two = counted(&[(0, 5), (2_000, 37)]);
    assert_eq!((two.now("b", "c"), two.budget_now("b")), (Some(16.0), Some(16.0)));
    assert_eq!((two.now("b", "other"), two.budget_now("other")), (None, None));
}

#[test]
fn a_class_that_was_made_anew_has_no_rate_yet() {
    assert_eq!(counted(&[(0, 500), (1_000, 3)]).now("b", "c"), None);
}

#[test]
fn each_second_has_its_own_rate_and_those_before_the_first_reading_have_none() {
    let past = counted(&[(0, 0), (1_000, 10), (2_000, 10), (3_000, 14)]);
    assert_eq!(past.seconds("b", 5), [None, None, Some(10.0), Some(0.0), Some(4.0)]);
}

#[test]
fn a_reading_every_ten_seconds_gives_their_mean_and_many_a_second_their_sum() {
    let slow = counted(&[(0, 0), (10_000, 50)]);
    assert_eq!(slow.seconds("b", 10), vec![Some(5.0); 10]);
    let fast = counted(&(0..=20).map(|n| (n * 100, n as i64)).collect::<Vec<_>>());
    for rate in fast.seconds("b", 2) {
        assert!((rate.unwrap() - 10.0).abs() < 1e-6, "{rate:?}");
    }
}

#[test]
fn an_hour_of_watching_keeps_a_minute() {
    let past = counted(&(0..3600).map(|n| (n * 1_000, n as i64)).collect::<Vec<_>>());
    assert!((61..=64).contains(&past.0.len()), "{}", past.0.len());
    assert!(past.seconds("b", 60).iter().all(Option::is_some));
}
