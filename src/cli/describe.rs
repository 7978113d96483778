//! Budgets and classes in words: what `list`, `show`, `status` and every change print.

use super::duration::{friendly, rough};
use super::output::{percent, short, table};
use crate::store::report::{ClassView, View};
use crate::store::status::Budget;

/// The settings, one a line.
pub fn settings(view: &View) -> String {
    let settings = &view.budget.settings;
    let line = |name: &str, value: String| vec![format!("  {name}"), value];
    table(&[
        line("limit", format!("{} per {}", settings.limit, friendly(settings.window_us))),
        line("interval", format!("{} ({})", friendly(settings.interval_us), rate(settings.interval_us))),
        line("send window", friendly(settings.send_window_us)),
        line("arrival jitter", friendly(settings.arrival_jitter_us)),
        line("largest cost", settings.max_cost.to_string()),
        line("lookahead", friendly(settings.lookahead_us)),
        line("version", view.budget.version.to_string()),
    ])
}

/// What is going on: state, last slot, classes.
pub fn activity(view: &View) -> String {
    let Budget { fences, last_slot_age_us, .. } = view.budget;
    let mut lines: Vec<String> = holds(&view.budget).into_iter().map(|(what, who)| what + &who).collect();
    lines.push(format!("last slot {}, fences {fences}", age(last_slot_age_us)));
    lines.iter().map(|line| format!("  {line}\n")).collect::<String>() + &class_table(view)
}

fn class_table(view: &View) -> String {
    if view.classes.is_empty() {
        return format!("  no class yet: \"call-budget class set {} CLASS --priority 0\" makes one", view.budget.name);
    }
    let mut rows =
        vec![["  CLASS", "PRIORITY", "FLOOR", "GRANTED", "SHARE", "WAITING", "LAST SLOT"].map(str::to_owned).to_vec()];
    rows.extend(view.classes.iter().map(|ClassView { class, share }| {
        vec![
            format!("  {}", short(&class.name)),
            class.priority.to_string(),
            floor(class.floor_ppm),
            class.granted.to_string(),
            share.map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0)),
            match class.waiting_lanes {
                0 => "-".to_owned(),
                lanes => format!("{lanes} lanes, {} units", class.waiting_units),
            },
            age(class.last_slot_age_us),
        ]
    }));
    table(&rows)
}

/// Slots a second.
pub fn rate(interval_us: i64) -> String {
    per_second(1_000_000.0 / interval_us as f64)
}

/// Calls a second: two places behind the point, more where it is less than one.
pub fn per_second(calls: f64) -> String {
    let digits = if calls >= 1.0 { 2 } else { 4 };
    format!("{}/s", format!("{calls:.digits$}").trim_end_matches('0').trim_end_matches('.'))
}

/// A floor as a share, or none.
pub fn floor(ppm: i32) -> String {
    if ppm == 0 { "none".to_owned() } else { percent(f64::from(ppm)) }
}

/// What keeps the budget from granting, in a word or two.
pub fn state(budget: &Budget) -> String {
    holds(budget).into_iter().map(|(what, _)| what).collect::<Vec<_>>().join(", ")
}

/// What keeps the budget from granting (or that nothing does), each with who said so and why.
pub fn holds(budget: &Budget) -> Vec<(String, String)> {
    let who = |by: &Option<String>, reason: &Option<String>| {
        let by = by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        by + &reason.as_ref().map_or(String::new(), |reason| format!(": {reason:?}"))
    };
    let mut holds = Vec::new();
    if budget.paused {
        holds.push(("paused".to_owned(), who(&budget.paused_by, &budget.paused_reason)));
    }
    if budget.blocked_for_us > 0 {
        let left = rough(budget.blocked_for_us);
        holds.push((format!("pushed back for {left}"), who(&budget.blocked_by, &budget.blocked_reason)));
    }
    if budget.fenced_for_us > 0 {
        holds.push((format!("fenced for {}", rough(budget.fenced_for_us)), String::new()));
    }
    if holds.is_empty() {
        holds.push(("granting".to_owned(), String::new()));
    }
    holds
}

/// How long ago, or how far ahead.
pub fn age(us: Option<i64>) -> String {
    match us {
        None => "never".to_owned(),
        Some(us) if us < 0 => format!("in {}", rough(-us)),
        Some(us) => format!("{} ago", rough(us)),
    }
}
