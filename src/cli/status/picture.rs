//! What a watcher sees: the latest reading beside those before it, as lines that fit. Pure.

use std::time::Duration;

use super::past::Past;
use super::processes;
use crate::cli::duration::{friendly, rough};
use crate::cli::output::{cut, table, width, wrap};
use crate::cli::{breakers, describe};
use crate::policy::Wall;
use crate::store::report::{Report, View};
use crate::store::status::Breaker;

/// One line, no wider than asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub tone: Tone,
}

/// What a line is, for a terminal that has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Heading,
    /// Something waits because somebody or something said so.
    Held,
    Wrong,
}

/// Why there is no newer reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub since: Wall,
    pub lasted: Duration,
    pub why: String,
}

/// The whole picture in lines of at most `columns`.
pub fn lines(report: &Report, past: &Past, trouble: Option<&Trouble>, columns: usize) -> Vec<Line> {
    let mut picture = Picture { columns, lines: Vec::new() };
    if let Some(Trouble { since, lasted, why }) = trouble {
        let lasted = friendly(micros(Duration::from_secs(lasted.as_secs())));
        picture.sentence(Tone::Wrong, &format!("no reading since {} ({lasted}), trying again: {why}", clock(*since)));
        picture.sentence(Tone::Held, "below stands what was read last");
        picture.gap();
    }
    if report.budgets.is_empty() {
        picture
            .sentence(Tone::Plain, "no budget yet: \"call-budget budget set NAME --limit 18 --window 1s\" makes one");
        picture.gap();
    }
    for view in &report.budgets {
        picture.budget(view, past);
        picture.gap();
    }
    picture.breakers(report);
    picture.gap();
    picture.sentence(Tone::Plain, &format!("processes  {}", processes(&report.server.processes)));
    picture.lines
}

/// The first of the lines, as many as fit, and how many do not.
pub fn fitting(mut lines: Vec<Line>, rows: usize, columns: usize) -> Vec<Line> {
    if lines.len() > rows && rows > 0 {
        let left = lines.len() - (rows - 1);
        lines.truncate(rows - 1);
        let text = cut(&format!("... {left} more lines: make the window higher, or name one budget"), columns);
        lines.push(Line { text, tone: Tone::Held });
    }
    lines
}

/// Time of day, for people.
pub fn clock(wall: Wall) -> String {
    let time = jiff::Timestamp::from_microsecond(wall.unix_us()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%H:%M:%S UTC").to_string()
}

struct Picture {
    columns: usize,
    lines: Vec<Line>,
}

impl Picture {
    fn row(&mut self, tone: Tone, text: &str) {
        self.lines.push(Line { text: cut(&harmless(text), self.columns), tone });
    }

    fn sentence(&mut self, tone: Tone, text: &str) {
        let wrapped = wrap(&harmless(text), self.columns);
        self.lines.extend(wrapped.into_iter().map(|text| Line { text, tone }));
    }

    fn gap(&mut self) {
        self.row(Tone::Plain, "");
    }

    fn budget(&mut self, view: &View, past: &Past) {
        let budget = &view.budget;
        let granting = !budget.paused && budget.blocked_for_us <= 0 && budget.fenced_for_us <= 0;
        let tone = if granting { Tone::Heading } else { Tone::Held };
        self.sentence(
            tone,
            &format!(
                "{}  {}  last slot {}, fences {}",
                budget.name,
                describe::state(budget),
                describe::age(budget.last_slot_age_us),
                budget.fences
            ),
        );
        for (what, who) in describe::holds(budget) {
            if !who.is_empty() {
                self.sentence(tone, &format!("  {what}{who}"));
            }
        }
        let full = 1e6 / budget.settings.interval_us.max(1) as f64;
        let now = past.budget_now(&budget.name).map_or("-".to_owned(), |rate| format!("{rate:.1}"));
        let figures = format!("{now} of {}", describe::per_second(full));
        // With two columns in front and two between.
        let room = self.columns.saturating_sub(width(&figures) + 4).min(60);
        let bar: String = past.seconds(&budget.name, room).into_iter().map(|rate| step(rate, full)).collect();
        self.row(Tone::Plain, &format!("  {bar}  {figures}"));
        self.classes(view, past);
    }

    fn classes(&mut self, view: &View, past: &Past) {
        if view.classes.is_empty() {
            let name = &view.budget.name;
            let way_out = format!("  no class yet: \"call-budget class set {name} CLASS --priority 0\" makes one");
            return self.sentence(Tone::Plain, &way_out);
        }
        // Names give way before figures do.
        const SHORTEST: usize = 8;
        let mut longest = 24;
        let mut text = class_table(view, past, longest);
        let widest = text.lines().map(width).max().unwrap_or(0);
        if widest > self.columns {
            longest = longest.saturating_sub(widest - self.columns).max(SHORTEST);
            text = class_table(view, past, longest);
        }
        for line in text.lines() {
            self.row(Tone::Plain, line);
        }
    }

    fn breakers(&mut self, report: &Report) {
        self.row(Tone::Heading, "breakers");
        if let Some(why) = breakers::why_none(report) {
            return self.sentence(Tone::Plain, &format!("  {why}"));
        }
        for breaker in &report.breakers {
            self.sentence(if breaker.state == "closed" { Tone::Plain } else { Tone::Wrong }, &breakers::head(breaker));
            let Breaker { why, holds, .. } = breaker;
            if !why.is_empty() {
                self.sentence(Tone::Plain, &format!("    why: {why}"));
            }
            for hold in holds {
                self.sentence(Tone::Held, &format!("    {}", breakers::hold(hold)));
            }
        }
    }
}

fn class_table(view: &View, past: &Past, longest_name: usize) -> String {
    let head = ["  CLASS", "NOW/S", "GRANTED", "SHARE", "FLOOR", "WAITING", "LAST SLOT"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(view.classes.iter().map(|of| {
        let class = &of.class;
        vec![
            format!("  {}", cut(&harmless(&class.name), longest_name)),
            past.now(&class.budget, &class.name).map_or("-".to_owned(), |rate| format!("{rate:.1}")),
            class.granted.to_string(),
            of.share.map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0)),
            describe::floor(class.floor_ppm),
            match class.waiting_lanes {
                0 => "-".to_owned(),
                lanes => format!("{} in {lanes} lanes", class.waiting_units),
            },
            class.last_slot_age_us.map_or("never".to_owned(), |us| match us {
                ..0 => format!("in {}", rough(-us)),
                _ => format!("{} ago", rough(us)),
            }),
        ]
    }));
    table(&rows)
}

/// A second of the bar: a space where nobody looked, a dot where nothing was granted, else as high as its part of the most.
pub(super) fn step(rate: Option<f64>, full: f64) -> char {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match rate {
        None => ' ',
        Some(rate) if rate <= 0.0 => '.',
        Some(rate) => STEPS[((rate / full * 8.0).ceil() as usize).clamp(1, 8) - 1],
    }
}

/// Names and reasons are written by others: none of them moves the cursor.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
