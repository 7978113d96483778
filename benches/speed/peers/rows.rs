//! From runs to the rows that people see.

use std::time::Duration;

use serde::Serialize;

use super::cases::{Callers, Case, Commit, Subject};
use super::load::Sample;
use crate::Outcome;
use crate::measure::median;
use crate::options::Options;
use crate::report::Report;

/// The runs of one case.
#[derive(Default)]
pub struct Runs {
    runs: Vec<Run>,
    grants: usize,
    cpu: Duration,
    log_bytes: u64,
}

#[derive(Clone, Serialize)]
pub struct Run {
    pub grants_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub never_served: usize,
}

#[derive(Serialize)]
pub struct Row {
    #[serde(skip)]
    pub case: Case,
    pub subject: &'static str,
    pub callers: String,
    pub connections: usize,
    pub keys: usize,
    /// The role's `synchronous_commit`; of Redis nothing is said.
    pub commit: &'static str,
    /// Whether what was granted is still known after a crash.
    pub durable: &'static str,
    /// Medians over the runs, these three.
    pub grants_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Per grant, over all runs. Of Redis its own, and what it appends to its file.
    pub cpu_us: f64,
    pub wal_bytes: f64,
    /// Tasks, at most in any run, that the run was too short for: the percentiles are bounds from below.
    pub never_served: usize,
    pub grants: usize,
    pub runs: Vec<Run>,
}

impl Runs {
    pub fn add(&mut self, mut sample: Sample) {
        self.grants += sample.grants;
        self.cpu += sample.cpu;
        self.log_bytes += sample.log_bytes;
        self.runs.push(Run {
            grants_per_s: sample.grants as f64 / sample.seconds,
            p50_ms: sample.waits.percentile_us(0.5) / 1000.0,
            p99_ms: sample.waits.percentile_us(0.99) / 1000.0,
            never_served: sample.never_served,
        });
    }

    pub fn row(self, case: &Case, connections: usize) -> Row {
        let middle = |figure: fn(&Run) -> f64| median(self.runs.iter().map(figure));
        let per_grant = |figure: f64| figure / self.grants as f64;
        Row {
            case: *case,
            subject: case.subject.name(),
            callers: case.callers.in_words(),
            connections,
            keys: case.keys,
            commit: if matches!(case.subject, Subject::Redis(_)) { "-" } else { case.commit.name() },
            durable: if case.is_durable() { "yes" } else { "no" },
            grants_per_s: middle(|run| run.grants_per_s),
            p50_ms: middle(|run| run.p50_ms),
            p99_ms: middle(|run| run.p99_ms),
            cpu_us: per_grant(self.cpu.as_secs_f64() * 1e6),
            wal_bytes: per_grant(self.log_bytes as f64),
            never_served: self.runs.iter().map(|run| run.never_served).max().unwrap_or_default(),
            grants: self.grants,
            runs: self.runs,
        }
    }
}

/// A row without a figure is an error of the bench, and none of its figures is then worth anything.
pub fn check(rows: &[Row]) -> Outcome<()> {
    for row in rows {
        let figures = [
            ("grants/s", row.grants_per_s),
            ("p50", row.p50_ms),
            ("p99", row.p99_ms),
            ("server CPU", row.cpu_us),
            // Who writes no log forgets.
            ("log", if row.durable == "yes" { row.wal_bytes } else { 1.0 }),
        ];
        let missing = figures.into_iter().find(|(_, figure)| !figure.is_finite() || *figure <= 0.0);
        if let Some((name, figure)) = missing {
            return Err(format!("{}: {name} is {figure}", row.case.in_words()).into());
        }
    }
    if rows.is_empty() { Err("nothing was measured".into()) } else { Ok(()) }
}

/// A table for each kind of comparison.
pub fn show(rows: &[Row], options: &Options, report: &mut Report) -> Outcome<()> {
    const FIGURES: [&str; 5] = ["grants_per_s", "p50_ms", "p99_ms", "cpu_us", "wal_bytes"];
    let mut table = |name: &str, title: &str, keys: &[&str], belongs: &dyn Fn(&Case) -> bool| {
        let rows: Vec<&Row> = rows.iter().filter(|row| belongs(&row.case)).collect();
        let cut_short = rows.iter().any(|row| row.never_served > 0).then_some("never_served");
        let columns: Vec<&str> = keys.iter().copied().chain(FIGURES).chain(cut_short).collect();
        report.table(name, title, &columns, &rows)
    };
    let is_alone = |case: &Case| case.callers == Callers::One;
    let is_plain = |case: &Case| case.keys == 1 && case.commit == Commit::On;
    // Ours with other numbers of lanes has a table of its own.
    let stands_beside = |case: &Case| match case.callers {
        Callers::One => false,
        Callers::Lanes { lanes, .. } => lanes == options.compared_lanes() || case.subject != Subject::Ours,
    };
    table("peers_one_caller", "One caller, one key:", &["subject", "durable"], &|case| {
        is_alone(case) && is_plain(case)
    })?;
    table("peers_one_caller_many_keys", "One caller, many keys in turn:", &["subject", "keys"], &|case| {
        is_alone(case) && case.keys > 1
    })?;
    let crowd = ["subject", "durable", "callers", "connections"];
    table("peers_many_callers", "Many callers, one key:", &crowd, &|case| stands_beside(case) && is_plain(case))?;
    let crowd = ["subject", "callers", "connections", "keys"];
    table("peers_many_callers_many_keys", "Many callers, many keys:", &crowd, &|case| {
        !is_alone(case) && case.keys > 1
    })?;
    let crowd = ["subject", "callers", "connections"];
    table("peers_commit_off", "One key, synchronous_commit off, so not durable:", &crowd, &|case| {
        case.commit == Commit::Off
    })?;
    table("peers_our_lanes", "call-budget by lanes, one budget:", &crowd, &|case| {
        case.subject == Subject::Ours && !is_alone(case) && is_plain(case)
    })
}
