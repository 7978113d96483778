use jiff::civil::DateTime;

use super::*;

/// The lines of this event, with their time.
fn lines<'a>(shown: &'a str, event: &str) -> Vec<(DateTime, &'a str)> {
    let of_event = shown.lines().filter(|line| line.contains(event));
    of_event.map(|line| (line[..19].parse().unwrap_or_else(|error| panic!("{error}: {line}")), line)).collect()
}

fn at(time: &str) -> DateTime {
    format!("2026-07-08 {time}").parse().unwrap()
}

#[track_caller]
fn between(what: &(DateTime, &str), from: &str, to: &str) {
    assert!((at(from)..=at(to)).contains(&what.0), "not from {from} to {to}: {}", what.1);
}

/// Field `name=` of the one summary.
fn summary(shown: &str, name: &str) -> f64 {
    let summaries = lines(shown, "circuit_episode_summary");
    assert_eq!(summaries.len(), 1, "{shown}");
    number_after(summaries[0].1, &format!(" {name}="))
}

// On a busy machine each millisecond is 60 here: the margins are wide, and never so wide that the calendar could be dead.
#[tokio::test]
async fn the_black_hole_is_over_when_the_calendar_says_so_and_hardly_a_request_was_lost_in_it() {
    let shown = run("black_hole", &[]).await;
    let opened = lines(&shown, "circuit_breaker_opened");
    between(&opened[0], "09:00:02", "09:00:25");
    assert!(lines(&shown, "circuit_breaker_failure").len() >= 5, "{shown}");
    let reopened = lines(&shown, "circuit_breaker_reopened");
    assert!((2..=5).contains(&reopened.len()), "{shown}");
    // The first probe leaves 30 s after the trip, and fails 10 s later.
    assert!(reopened[0].0.duration_since(opened[0].0).as_secs() >= 39, "{shown}");
    between(lines(&shown, "circuit_breaker_closed").last().unwrap(), "09:04:59", "09:07:30");
    assert!(number_after(&shown, "KIS에 닿은 요청:") <= 20.0, "{shown}");
    let probes = shown.split_once("KIS에 닿은 탐침: ").and_then(|(_, rest)| rest.lines().next()).unwrap();
    let probes: Vec<DateTime> = probes.split(", ").map(at).collect();
    assert!((4..=7).contains(&probes.len()) && probes.is_sorted(), "{shown}");
    assert!((at("09:04:59")..=at("09:07:30")).contains(probes.last().unwrap()), "{shown}");
    assert!(number_after(&shown, "바로 거절:") >= 100.0, "{shown}");
    assert!(summary(&shown, "total_open_seconds") <= summary(&shown, "episode_seconds"), "{shown}");
    assert!(summary(&shown, "probe_count") >= 3.0 && summary(&shown, "reopen_count") >= 2.0, "{shown}");
    assert!(lines(&shown, "circuit_episode_summary")[0].1.contains("2026-07-08T09:00:"), "{shown}");
}

#[tokio::test]
async fn without_the_calendar_the_same_breaker_overshoots_by_minutes() {
    let shown = run("black_hole", &["--without-calendar"]).await;
    between(lines(&shown, "circuit_breaker_closed").last().unwrap(), "09:08:30", "09:12:00");
}
