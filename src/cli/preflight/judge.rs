//! From figures to verdicts: pure, so that every bad case can be tried without making it. What is measured, and how, is
//! not known here.

pub mod budget;
pub mod load;
pub mod role;
pub mod server;
pub mod way;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

/// What a line comes to. The later is the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Pass,
    Warn,
    Fail,
    /// Counts as a failure, unless all it takes is an option.
    NotMeasured,
}

/// One figure against its bar.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: &'static str,
    pub verdict: Verdict,
    pub figures: Map<String, Value>,
    pub bar: String,
    /// Why it came to this, and the way out.
    pub reason: String,
    /// The figures as a person reads them.
    #[serde(skip)]
    pub shown: String,
    /// Not measured, since nobody asked for it.
    #[serde(skip)]
    optional: bool,
}

impl Line {
    /// A line that passes until something is said against it.
    pub fn new(name: &'static str, bar: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Pass,
            figures: Map::new(),
            bar: bar.into(),
            reason: String::new(),
            shown: String::new(),
            optional: false,
        }
    }

    /// A line that could not be measured.
    pub fn not_measured(name: &'static str, why: impl Into<String>) -> Self {
        let line = Self::new(name, "to be measured");
        Self { verdict: Verdict::NotMeasured, reason: why.into(), ..line }
    }

    /// A line that nobody asked for.
    pub fn not_asked_for(name: &'static str, how: impl Into<String>) -> Self {
        Self { optional: true, ..Self::not_measured(name, how) }
    }

    pub fn figure(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.figures.insert(name.to_owned(), value.into());
        self
    }

    pub fn shown(self, shown: impl Into<String>) -> Self {
        Self { shown: shown.into(), ..self }
    }

    pub fn pass(self, reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Pass, reason: reason.into(), ..self }
    }

    pub fn warn(self, reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, reason: reason.into(), ..self }
    }

    pub fn fail(self, reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, reason: reason.into(), ..self }
    }

    /// What it is worth for the whole.
    pub fn counts_as(&self) -> Verdict {
        match self.verdict {
            Verdict::NotMeasured if self.optional => Verdict::Warn,
            Verdict::NotMeasured => Verdict::Fail,
            verdict => verdict,
        }
    }
}

/// What all lines come to: as bad as the worst of them.
pub fn overall(lines: &[Line]) -> Verdict {
    lines.iter().map(Line::counts_as).max().unwrap_or(Verdict::Fail)
}

/// Times of the same thing, in order.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time that this part of them stay within, from 0 to 1; of too few to say, the longest.
    pub fn within(&self, part: f64) -> Duration {
        let rank = (part * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1).min(self.0.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    pub fn longest(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    /// Largest minus smallest.
    pub fn range(&self) -> Duration {
        self.longest().saturating_sub(self.0.first().copied().unwrap_or_default())
    }

    /// The part of them that took longer than `bar`: 0 to 1.
    pub fn share_over(&self, bar: Duration) -> f64 {
        self.0.iter().filter(|took| **took > bar).count() as f64 / self.0.len().max(1) as f64
    }
}

/// As a person reads it: `1.2 ms`, `12 ms`, `3.4 s`, `5 min`.
pub fn in_words(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    match ms {
        ..9.95 => format!("{ms:.1} ms"),
        ..999.5 => format!("{ms:.0} ms"),
        ..99_950.0 => format!("{:.1} s", ms / 1e3),
        _ => format!("{:.0} min", ms / 6e4),
    }
}

/// As a program reads it: milliseconds, to the microsecond.
pub fn in_ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// A share as a person reads it.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A name that somebody else chose, in one piece.
fn named(application_name: &str) -> String {
    if application_name.is_empty() { "a session without a name".to_owned() } else { format!("{application_name:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That the line has this verdict, and its reason these words.
    #[track_caller]
    pub fn says(line: &Line, verdict: Verdict, words: &str) {
        assert_eq!(line.verdict, verdict, "{line:?}");
        assert!(line.reason.contains(words), "{line:?} does not say {words:?}");
        assert!(!line.bar.is_empty(), "{line:?}");
    }

    pub const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_whole_is_as_bad_as_its_worst_line() {
        let line = || Line::new("a", "b");
        assert_eq!(overall(&[line().pass(""), line().pass("")]), Verdict::Pass);
        assert_eq!(overall(&[line().pass(""), line().warn("")]), Verdict::Warn);
        assert_eq!(overall(&[line().fail(""), line().warn("")]), Verdict::Fail);
        assert_eq!(overall(&[line().warn(""), Line::not_measured("a", "")]), Verdict::Fail);
        assert_eq!(overall(&[line().pass(""), Line::not_asked_for("a", "")]), Verdict::Warn);
        assert_eq!(overall(&[]), Verdict::Fail);
    }

    #[test]
    fn of_too_few_times_the_longest_stands_for_the_rare() {
        let times = Times::of((1..=100).rev().map(MS).collect());
        assert_eq!((times.within(0.5), times.within(0.99), times.within(0.999)), (MS(50), MS(99), MS(100)));
        assert_eq!((times.longest(), times.range()), (MS(100), MS(99)));
        assert!((times.share_over(MS(75)) - 0.25).abs() < 1e-9);
        assert_eq!(Times::default().within(0.5), Duration::ZERO);
    }

    #[test]
    fn times_are_read_at_a_glance() {
        assert_eq!(in_words(Duration::from_micros(1_234)), "1.2 ms");
        assert_eq!(in_words(MS(25)), "25 ms");
        assert_eq!(in_words(MS(12_340)), "12.3 s");
        assert_eq!(in_words(MS(600_000)), "10 min");
        assert!((in_ms(Duration::from_nanos(1_234_567)) - 1.235).abs() < 1e-9);
    }
}
