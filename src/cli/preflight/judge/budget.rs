//! The budget itself: that its settings are safe, that they go together, and that it grants now.

use std::time::Duration;

use super::{Line, in_ms, in_words};
use crate::cli::bound;
use crate::cli::describe;
use crate::store::report::View;

/// `budget`: that it is there.
pub fn budget(name: &str, found: Result<&View, String>) -> Line {
    let line = Line::new("budget", "to be there").figure("name", name);
    match found {
        Ok(view) => line
            .figure("version", view.budget.version)
            .shown(format!("version {}", view.budget.version))
            .pass("it is there"),
        Err(why) => line.shown("not to be had").fail(why),
    }
}

/// `interval`: that no window of the vendor can hold more than the limit.
pub fn interval(view: &View) -> Line {
    let settings = &view.budget.settings;
    let safe = bound::safe_interval_us(settings);
    let present = micros(settings.interval_us);
    let worst = bound::limit(settings).worst_window(present);
    let line = Line::new("interval", "no window with more than the limit")
        .figure("interval_us", settings.interval_us)
        .figure("safe_from_us", safe)
        .figure("worst_window", worst)
        .figure("limit", settings.limit)
        .shown(format!("{}, worst window {worst} of {}", in_words(present), settings.limit));
    if bound::is_safe(settings) {
        line.pass("every closed window stays within the limit")
    } else {
        line.fail(format!(
            "a window can hold more than the limit: run \"call-budget budget set {}\" again",
            view.budget.name
        ))
    }
}

/// `classes`: that there are some, and that none can be starved by the others.
pub fn classes(view: &View) -> Line {
    let classes: Vec<_> = view.classes.iter().map(|view| &view.class).collect();
    let sum: i64 = classes.iter().map(|class| i64::from(class.floor_ppm)).sum();
    let share = sum as f64 / 1e6;
    let line = Line::new("classes", "some, with floors that leave room")
        .figure("classes", classes.len())
        .figure("floors", share)
        .shown(format!("{}, floors {}", classes.len(), super::percent(share)));
    let name = &view.budget.name;
    let without = classes.iter().find(|class| class.floor_ppm == 0).filter(|_| classes.len() > 1);
    if classes.is_empty() {
        line.fail(format!("nobody can acquire: run \"call-budget class set {name} CLASS --priority 0\""))
    } else if sum > 1_000_000 {
        line.fail("the floors promise more than there is: lower one (call-budget class set)")
    } else if let Some(class) = without {
        line.warn(format!(
            "class {:?} has no floor, and gets nothing while the others want everything: give it one (call-budget class \
             set {name} ... --floor), if it may not starve",
            class.name
        ))
    } else if sum == 1_000_000 && classes.len() > 1 {
        line.warn("the floors take everything, so priorities decide nothing while all are busy: lower one")
    } else {
        line.pass("every class gets its part, and the rest goes by priority")
    }
}

/// `budget_state`: that it grants now.
pub fn state(view: &View) -> Line {
    let budget = &view.budget;
    let state = describe::state(budget);
    let line = Line::new("budget_state", "granting")
        .figure("paused", budget.paused)
        .figure("blocked_ms", in_ms(micros(budget.blocked_for_us)))
        .figure("fenced_ms", in_ms(micros(budget.fenced_for_us)))
        .shown(state);
    if budget.paused {
        line.warn(format!("every call is refused until somebody runs \"call-budget budget resume {}\"", budget.name))
    } else if budget.blocked_for_us > 0 {
        line.warn("the vendor said too many: find out who else uses this limit before it is switched on")
    } else if budget.fenced_for_us > 0 {
        line.warn("a quiet moment after commits may have been forgotten: look again in a second")
    } else {
        line.pass("it grants")
    }
}

/// `send_window`: that a slot over the longest round trip that is allowed can still be used.
pub fn send_window(view: &View, rtt_max: Duration) -> Line {
    let window = micros(view.budget.settings.send_window_us);
    let line = Line::new("send_window", format!("more than rtt_max, {}", in_words(rtt_max)))
        .figure("send_window_ms", in_ms(window))
        .figure("rtt_max_ms", in_ms(rtt_max))
        .shown(in_words(window));
    if window > rtt_max {
        line.pass("what arrives within rtt_max can still leave in its window")
    } else {
        line.fail(format!(
            "a slot that comes just within rtt_max has no time left to be used: lower rtt_max, or run \"call-budget \
             budget set {} --send-window\" with more",
            view.budget.name
        ))
    }
}

/// `lookahead`: over twice the round trip, or slots go by before anybody has them.
pub fn lookahead(view: &View, round_trip: Duration) -> Line {
    let lookahead = micros(view.budget.settings.lookahead_us);
    let line = Line::new("lookahead", format!("over twice the round trip's p99, {}", in_words(round_trip)))
        .figure("lookahead_ms", in_ms(lookahead))
        .figure("round_trip_p99_ms", in_ms(round_trip))
        .shown(in_words(lookahead));
    if lookahead > round_trip * 2 {
        line.pass("slots are promised early enough to be used")
    } else {
        line.warn(format!(
            "slots go idle while the answer is under way: run \"call-budget budget set {} --lookahead {}ms\"",
            view.budget.name,
            (round_trip * 2).as_millis() + 10
        ))
    }
}

fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Fail, Pass, Warn};
    use super::super::tests::{MS, says};
    use super::*;
    use crate::store::admin::Settings;
    use crate::store::report::ClassView;
    use crate::store::status::{Budget, Class};

    fn view(floors: &[i32]) -> View {
        let settings = Settings {
            limit: 18,
            window_us: 1_000_000,
            send_window_us: 50_000,
            arrival_jitter_us: 50_000,
            max_cost: 1,
            interval_us: 61_174,
            lookahead_us: 60_000,
        };
        let budget = Budget {
            name: "kis-real".into(),
            settings,
            version: 1,
            fences: 0,
            paused: false,
            paused_reason: None,
            paused_by: None,
            blocked_for_us: 0,
            blocked_reason: None,
            blocked_by: None,
            fenced_for_us: 0,
            last_slot_age_us: None,
        };
        let class = |(index, floor_ppm): (usize, &i32)| Class {
            budget: "kis-real".into(),
            name: format!("class {index}"),
            priority: 0,
            floor_ppm: *floor_ppm,
            granted: 0,
            waiting_lanes: 0,
            waiting_units: 0,
            last_slot_age_us: None,
        };
        let classes = floors.iter().enumerate().map(class).map(|class| ClassView { class, share: None }).collect();
        View { budget, classes }
    }

    #[test]
    fn a_budget_that_is_not_there_is_told() {
        says(&budget("kis-real", Ok(&view(&[]))), Pass, "there");
        says(&budget("kis-rael", Err("did you mean \"kis-real\"?".into())), Fail, "did you mean");
    }

    #[test]
    fn an_interval_that_is_too_short_is_told() {
        says(&interval(&view(&[])), Pass, "within the limit");
        let mut short = view(&[]);
        short.budget.settings.interval_us = 55_556;
        says(&interval(&short), Fail, "more than the limit");
    }

    #[test]
    fn classes_are_to_be_there_and_none_is_to_starve() {
        says(&classes(&view(&[100_000, 400_000])), Pass, "by priority");
        says(&classes(&view(&[0])), Pass, "by priority");
        says(&classes(&view(&[])), Fail, "nobody can acquire");
        says(&classes(&view(&[600_000, 500_000])), Fail, "more than there is");
        says(&classes(&view(&[100_000, 0])), Warn, "\"class 1\" has no floor");
        says(&classes(&view(&[600_000, 400_000])), Warn, "decide nothing");
    }

    #[test]
    fn a_budget_that_grants_nothing_now_is_told_why() {
        let with = |change: fn(&mut Budget)| {
            let mut view = view(&[]);
            change(&mut view.budget);
            state(&view)
        };
        says(&with(|_| ()), Pass, "grants");
        says(&with(|budget| budget.paused = true), Warn, "budget resume kis-real");
        says(&with(|budget| budget.blocked_for_us = 1), Warn, "the vendor said");
        says(&with(|budget| budget.fenced_for_us = 1), Warn, "quiet moment");
    }

    #[test]
    fn send_window_and_lookahead_must_leave_room_for_the_round_trip() {
        says(&send_window(&view(&[]), MS(25)), Pass, "can still leave");
        says(&send_window(&view(&[]), MS(50)), Fail, "lower rtt_max");
        says(&lookahead(&view(&[]), MS(29)), Pass, "early enough");
        says(&lookahead(&view(&[]), MS(40)), Warn, "--lookahead 90ms");
    }
}
