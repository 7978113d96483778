//! What the suite says: a line a case for people, a JSON object a case for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::ground::{Database, Images};
use super::judge::{Measured, Spread, spread};

/// What was under test.
#[derive(Serialize)]
pub struct Versions {
    call_budget: &'static str,
    tokio_postgres: String,
    native_tls: String,
    openssl: &'static str,
    postgresql: String,
    /// Of a session between a client and the shared server, by its own word.
    tls: String,
    /// What a database given from outside is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<Images>,
}

impl Versions {
    pub fn of(database: &Database) -> Self {
        Self {
            call_budget: env!("CARGO_PKG_VERSION"),
            tokio_postgres: locked("tokio-postgres"),
            native_tls: locked("native-tls"),
            openssl: openssl::version::version(),
            postgresql: database.server_version.clone(),
            tls: database.tls.clone().unwrap_or_else(|| "not known".into()),
            images: database.images().cloned(),
        }
    }
}

/// A case's row of the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub id: String,
    pub row: u8,
    pub name: String,
    pub deadline_ms: f64,
    pub median_end_ms: Option<f64>,
    pub worst_end_ms: Option<f64>,
    pub repeats: u32,
    pub sends_in_doubt: usize,
    pub lost: u64,
    /// `null`: no round was made.
    pub books_balance: Option<bool>,
    pub leaks: usize,
    pub recovery_ms: Option<Recovery>,
    pub how: String,
    /// All its rounds, with what surrounds them; `null`: it was not tried.
    pub took_s: Option<f64>,
    /// `null`: not tried, and then the note says why.
    pub pass: Option<bool>,
    pub note: String,
    /// Why it did not pass.
    pub faults: Vec<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Recovery {
    pub median: f64,
    pub worst: f64,
}

impl Row {
    pub fn tried(case: &Case, repeats: u32, measured: &Measured, notes: &[String]) -> Self {
        let ends = spread(&measured.ends);
        let faults = measured.faults(case.deadline, case.heals);
        Self {
            median_end_ms: ends.map(|Spread { median, .. }| ms(median)),
            worst_end_ms: ends.map(|Spread { worst, .. }| ms(worst)),
            repeats,
            sends_in_doubt: measured.sends_in_doubt,
            lost: measured.lost,
            books_balance: Some(measured.unbalanced.is_empty()),
            leaks: measured.leaks.len(),
            recovery_ms: spread(&measured.recoveries)
                .map(|Spread { median, worst }| Recovery { median: ms(median), worst: ms(worst) }),
            pass: Some(faults.is_empty()),
            note: notes.join("; "),
            faults,
            ..Self::untried(case, "")
        }
    }

    pub fn failed(case: &Case, why: String) -> Self {
        Self { pass: Some(false), faults: vec![why], ..Self::untried(case, "") }
    }

    pub fn not_tried(case: &Case, why: &str) -> Self {
        Self::untried(case, &format!("not tried: {why}"))
    }

    fn untried(case: &Case, note: &str) -> Self {
        let how = serde_json::to_value(case.how).expect("a word");
        Self {
            id: case.id.into(),
            row: case.row,
            name: case.name.into(),
            deadline_ms: ms(case.deadline),
            median_end_ms: None,
            worst_end_ms: None,
            repeats: 0,
            sends_in_doubt: 0,
            lost: 0,
            books_balance: None,
            leaks: 0,
            recovery_ms: None,
            how: how.as_str().expect("a word").into(),
            took_s: None,
            pass: None,
            note: note.into(),
            faults: Vec::new(),
        }
    }

    #[must_use]
    pub fn in_all(self, took: Duration) -> Self {
        Self { took_s: Some((took.as_secs_f64() * 1000.0).round() / 1000.0), ..self }
    }

    /// One line, and one more for each fault.
    pub fn for_people(&self) -> String {
        let verdict = match self.pass {
            Some(true) => "ok",
            Some(false) => "FAILED",
            None => "not tried",
        };
        let mut line = format!("{verdict:<9} {:<24} {}", self.id, self.name);
        if let (Some(median), Some(worst)) = (self.median_end_ms, self.worst_end_ms) {
            let _ = write!(
                line,
                ": {} x, ended after {median:.0} ms (worst {worst:.0}) of {:.0} ms",
                self.repeats, self.deadline_ms
            );
        }
        if let Some(Recovery { median, worst }) = self.recovery_ms {
            let _ = write!(line, ", recovered in {median:.0} ms (worst {worst:.0})");
        }
        if self.lost > 0 {
            let _ = write!(line, ", lost {}", self.lost);
        }
        if let Some(took) = self.took_s {
            let _ = write!(line, ", {took:.1} s in all");
        }
        if !self.note.is_empty() {
            let _ = write!(line, " ({})", self.note);
        }
        // The same fault in many rounds is shown once.
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for fault in &self.faults {
            *times.entry(fault).or_default() += 1;
        }
        for (fault, times) in times {
            let _ = write!(line, "\n          {}x {fault}", times);
        }
        line
    }
}

/// On a terminal, what is running now; the next line takes its place. Elsewhere nothing.
pub fn running(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
        let _ = std::io::stderr().flush();
    }
}

pub fn line(text: &str) {
    running("");
    eprintln!("{text}");
}

/// The version of a package in Cargo.lock, as this suite was built.
fn locked(package: &str) -> String {
    const LOCK: &str = include_str!("../../../Cargo.lock");
    let of_package = LOCK.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{package}\"\n")));
    let version = of_package.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("not known").into()
}

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}
