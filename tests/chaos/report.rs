//! The report of a run, for programs and for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::judge::{Books, Bounds, Evidence, Fault, Judgement, Span, Violation, Word};
use super::schedule::Kind;
use super::windows::Windows;

/// Violations that people are shown; programs get all.
const SHOWN: usize = 10;
/// A recovery that takes longer has to be explained.
const SLOW_MS: f64 = 1000.0;

/// The run as one JSON object. `Options` says what its fields mean.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub bounds: Bounds,
    pub seconds: f64,
    pub processes: usize,
    pub limit: u64,
    pub window_ms: u64,
    pub interval_us: u64,
    pub sends: usize,
    pub worst_window: u64,
    pub over_limit_windows: u64,
    pub over_limit_windows_with_residuals: u64,
    pub windows: Windows,
    pub late: u64,
    pub late_unexplained: u64,
    pub duplicate_nonces: u64,
    pub lost: u64,
    pub lapsed: u64,
    pub dropped: u64,
    pub use_outside_faults: f64,
    pub seconds_outside_faults: f64,
    pub faults: BTreeMap<Kind, u64>,
    pub recovery_ms: BTreeMap<Kind, f64>,
    pub fault_list: Vec<Listed>,
    pub books: BTreeMap<String, Books>,
    pub forgotten_at_most: u64,
    /// When the vendor stood still, in seconds since the run began, and for how many ms.
    pub stalls: Vec<Stall>,
    /// What may not be: windows over the limit and late arrivals, the stated residuals aside.
    pub violations: Vec<Placed>,
    pub not_tried: Vec<String>,
    pub inconclusive: bool,
    pub pass: bool,
    /// What stands against it.
    pub because: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Listed {
    pub kind: Kind,
    pub at_s: f64,
    pub healed_after_ms: f64,
    /// From its beginning to its healing: whether it bit.
    pub sends_meanwhile: usize,
    /// Null: it never did.
    pub recovery_ms: Option<f64>,
    pub note: String,
    /// Where it took longer than a second to recover: what the processes said of the store, in ms since its healing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Placed {
    pub at_s: f64,
    #[serde(flatten)]
    pub violation: Violation,
}

#[derive(Debug, Serialize)]
pub struct Stall {
    pub at_s: f64,
    pub for_ms: f64,
}

impl Report {
    pub fn of(seed: u64, evidence: &Evidence, bounds: Bounds, judgement: Judgement, not_tried: Vec<String>) -> Self {
        let Evidence { rule, run, accounts, .. } = evidence;
        let since = |at_us: u64| rounded(at_us.saturating_sub(run.from_us) as f64 / 1e6);
        let sends = |from_us: u64, to_us: u64| {
            evidence.arrivals.iter().filter(|one| (from_us..to_us).contains(&one.at_us)).count()
        };
        let listed = evidence.faults.iter().zip(&judgement.recoveries).map(|(fault, recovery_ms)| Listed {
            kind: fault.kind,
            at_s: since(fault.begin_us),
            healed_after_ms: rounded((fault.healed_us - fault.begin_us) as f64 / 1e3),
            sends_meanwhile: sends(fault.begin_us, fault.healed_us),
            recovery_ms: recovery_ms.map(rounded),
            note: fault.note.clone(),
            told: if recovery_ms.is_none_or(|ms| ms > SLOW_MS) {
                told(evidence, fault, *recovery_ms)
            } else {
                Vec::new()
            },
        });
        let placed = |violation: Violation| Placed { at_s: since(violation.span.to_us), violation };
        let stall = |span: &Span| Stall { at_s: since(span.from_us), for_ms: (span.to_us - span.from_us) as f64 / 1e3 };
        Self {
            seed,
            bounds,
            seconds: rounded((run.to_us - run.from_us) as f64 / 1e6),
            processes: evidence.processes,
            limit: rule.limit,
            window_ms: rule.window_us / 1000,
            interval_us: rule.interval_us,
            sends: evidence.arrivals.len(),
            worst_window: judgement.worst_window,
            over_limit_windows: judgement.over_limit,
            over_limit_windows_with_residuals: judgement.over_limit_with_residuals,
            windows: judgement.windows,
            late: judgement.late,
            late_unexplained: judgement.late_unexplained,
            duplicate_nonces: judgement.duplicate_nonces,
            lost: accounts.iter().map(|account| account.lost).sum(),
            lapsed: accounts.iter().map(|account| account.lapsed).sum(),
            dropped: accounts.iter().map(|account| account.dropped).sum(),
            use_outside_faults: (judgement.use_outside_faults * 1e4).round() / 1e4,
            seconds_outside_faults: rounded(judgement.calm_s),
            faults: judgement.faults,
            recovery_ms: judgement.recovery_ms.into_iter().map(|(kind, ms)| (kind, rounded(ms))).collect(),
            fault_list: listed.collect(),
            books: judgement.books,
            forgotten_at_most: judgement.forgotten_at_most,
            stalls: evidence.stalls.iter().filter(|stall| stall.touches(*run)).map(stall).collect(),
            violations: judgement.violations.into_iter().map(placed).collect(),
            not_tried,
            inconclusive: judgement.inconclusive,
            pass: judgement.because.is_empty(),
            because: judgement.because,
        }
    }

    pub fn for_people(&self) -> String {
        let mut lines = vec![
            format!(
                "{} calls in {:.0} s from {} processes, {} per {} ms allowed, seed {}",
                self.sends, self.seconds, self.processes, self.limit, self.window_ms, self.seed
            ),
            format!(
                "worst window {} of {}; windows over the limit: {} ({} with the stated residuals)",
                self.worst_window, self.limit, self.over_limit_windows, self.over_limit_windows_with_residuals
            ),
            format!(
                "late {} ({} unexplained), lost {}, lapsed {}, dropped {}, nonces twice {}",
                self.late, self.late_unexplained, self.lost, self.lapsed, self.dropped, self.duplicate_nonces
            ),
            format!(
                "{:.1} % of the slots outside faults used ({:.0} s)",
                100.0 * self.use_outside_faults,
                self.seconds_outside_faults
            ),
            format!(
                "asked for: {:.0} % of these slots, recovery within {} ms and what a kind needs, {} faults of {} kinds",
                100.0 * self.bounds.least_use,
                self.bounds.recovery.as_millis(),
                self.bounds.least_faults,
                self.bounds.least_kinds.max(self.bounds.kinds.len())
            ),
            String::new(),
        ];
        lines.push(format!("{:<18}{:>6}  {}", "fault", "count", "worst recovery"));
        lines.extend(self.faults.iter().map(|(kind, count)| {
            let worst = self.recovery_ms.get(kind).map_or("never".into(), |ms| format!("{ms:.0} ms"));
            format!("{:<18}{count:>6}  {worst}", kind.name())
        }));
        lines.push(String::new());
        for slow in self.fault_list.iter().filter(|fault| !fault.told.is_empty()) {
            lines.push(format!("{} at {} s was slow to recover, and meanwhile:", slow.kind.name(), slow.at_s));
            lines.extend(slow.told.iter().map(|word| format!("  {word}")));
        }
        if let Some(worst_ms) = self.stalls.iter().map(|stall| stall.for_ms).max_by(f64::total_cmp) {
            lines.push(format!("the vendor itself stood still {} times, {worst_ms:.0} ms at most", self.stalls.len()));
        }
        lines.extend(self.violations.iter().take(SHOWN).map(|Placed { at_s, violation }| {
            let stall = if violation.during_a_stall { ", while the vendor stood still" } else { "" };
            format!("at {at_s:.1} s: {}{stall}", violation.what)
        }));
        if let Some(more) = self.violations.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            lines.push(format!("and {more} more"));
        }
        lines.push(match (self.inconclusive, self.pass) {
            (true, _) => format!("inconclusive: the vendor itself stood still: {}", self.because.join("; ")),
            (false, true) => "pass".into(),
            (false, false) => format!("FAIL: {}", self.because.join("; ")),
        });
        lines.join("\n")
    }
}

/// From the fault's beginning to its recovery.
fn told(evidence: &Evidence, fault: &Fault, recovery_ms: Option<f64>) -> Vec<String> {
    let to_us = recovery_ms.map_or(u64::MAX, |ms| fault.healed_us + (ms * 1e3) as u64 + 100_000);
    let meanwhile = evidence.told.iter().filter(|word| (fault.begin_us..=to_us).contains(&word.at_us));
    let line = |word: &Word| {
        let since_ms = (word.at_us as f64 - fault.healed_us as f64) / 1e3;
        format!("{since_ms:>+7.0} ms  {:>7}  {}", word.pid, word.what.trim())
    };
    meanwhile.map(line).collect()
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
