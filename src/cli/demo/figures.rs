//! The figures of a run, from what the vendor saw and what the fleet told, and what they come to. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::{Class, Demand};
use super::worker::Told;
use crate::service::mock_vendor::Report;

/// The least use of the offered slots that passes.
const USE: f64 = 0.97;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Pass,
    Fail,
    /// The machine stalled: neither can be said.
    Inconclusive,
}

/// What the run came to, under the names of docs and `--json`.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub limit: u32,
    pub window_ms: u64,
    pub interval_us: u64,
    pub processes: usize,
    /// The processes that the vendor saw.
    pub pids: Vec<u32>,
    pub seconds: f64,
    pub sends: u64,
    pub sends_per_s: f64,
    pub worst_window: u64,
    pub over_limit_windows: u64,
    /// The same without arrivals past the end of their send window and the jitter.
    pub over_limit_windows_without_late: u64,
    pub late: u64,
    pub refused_by_vendor: u64,
    #[serde(rename = "use")]
    pub used: f64,
    pub store_calls_per_send: f64,
    pub worst_stall_ms: f64,
    pub classes: Vec<ClassFigures>,
    /// Calls that were not made, by their code.
    pub refusals: BTreeMap<String, u64>,
    pub settings: BTreeMap<&'static str, String>,
    pub verdict: Verdict,
    /// What stands against it.
    pub because: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct ClassFigures {
    pub name: &'static str,
    pub priority: i32,
    pub floor: f64,
    /// Calls a second that come up; null means without end.
    pub demand: Option<f64>,
    pub share: f64,
    pub sends: u64,
    pub wait_p50_ms: Option<f64>,
    pub wait_p99_ms: Option<f64>,
}

/// What the fleet told so far.
#[derive(Debug, Default)]
pub struct Fleet {
    classes: BTreeMap<String, ClassSum>,
    store_calls: BTreeMap<u32, u64>,
    refusals: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct ClassSum {
    wanted: u64,
    waits_us: Vec<u64>,
}

impl Fleet {
    /// Adds what one process told.
    pub fn add(&mut self, pid: u32, told: Told) {
        self.store_calls.insert(pid, told.store_calls);
        for (name, class) in told.classes {
            let sum = self.classes.entry(name).or_default();
            sum.wanted += class.wanted;
            sum.waits_us.extend(class.waits_us);
            for (why, count) in class.refusals {
                *self.refusals.entry(why).or_default() += count;
            }
        }
    }

    /// The wait that this share of a class's calls did not exceed, in ms.
    fn wait_ms(&self, class: &str, quantile: f64) -> Option<f64> {
        let mut waits = self.classes.get(class)?.waits_us.clone();
        let last = waits.len().checked_sub(1)?;
        let index = ((waits.len() as f64 * quantile) as usize).min(last);
        Some(*waits.select_nth_unstable(index).1 as f64 / 1000.0)
    }
}

/// What was asked of the run.
pub struct Run<'a> {
    pub interval_us: u64,
    pub processes: usize,
    pub classes: &'a [Class],
    pub settings: BTreeMap<&'static str, String>,
    /// Under the budget, or each process on its own.
    pub governed: bool,
    /// How things stood when every class had begun to wait: shares count from then on.
    pub settled: Settled,
}

/// How things stood at one moment of a run.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    arrivals: u64,
    /// By class: its arrivals and the calls that had come up.
    classes: BTreeMap<String, (u64, u64)>,
}

impl Settled {
    pub fn at(report: &Report, fleet: &Fleet) -> Self {
        let arrived = |class: &str| report.by_class.get(class).map_or(0, |count| count.arrivals);
        let classes = fleet.classes.iter().map(|(name, sum)| (name.clone(), (arrived(name), sum.wanted)));
        Self { arrivals: report.arrivals, classes: classes.collect() }
    }

    fn of(&self, class: &str) -> (u64, u64) {
        self.classes.get(class).copied().unwrap_or_default()
    }
}

impl Figures {
    pub fn of(run: &Run<'_>, report: &Report, fleet: &Fleet) -> Figures {
        let span_us = match (report.first_arrival_us, report.last_arrival_us) {
            (Some(first), Some(last)) => last - first,
            _ => 0,
        };
        let sends = report.arrivals;
        let offered = span_us as f64 / run.interval_us as f64 + 1.0;
        let classes: Vec<ClassFigures> =
            run.classes.iter().map(|class| ClassFigures::of(class, run, report, fleet)).collect();
        let mut figures = Figures {
            limit: report.limit,
            window_ms: report.window_us / 1000,
            interval_us: run.interval_us,
            processes: run.processes,
            pids: report.pids.clone(),
            seconds: span_us as f64 / 1e6,
            sends,
            sends_per_s: if span_us > 0 { (sends - 1) as f64 * 1e6 / span_us as f64 } else { 0.0 },
            worst_window: report.worst_window,
            over_limit_windows: report.over_limit_windows,
            over_limit_windows_without_late: report.over_limit_windows_without_late,
            late: report.late,
            refused_by_vendor: report.refused,
            used: sends as f64 / offered,
            store_calls_per_send: fleet.store_calls.values().sum::<u64>() as f64 / sends.max(1) as f64,
            worst_stall_ms: report.worst_stall_us as f64 / 1000.0,
            classes,
            refusals: fleet.refusals.clone(),
            settings: run.settings.clone(),
            verdict: Verdict::Pass,
            because: Vec::new(),
        };
        figures.judge(run, report, fleet);
        figures
    }

    fn judge(&mut self, run: &Run<'_>, report: &Report, fleet: &Fleet) {
        let mut against = Vec::new();
        if self.sends == 0 {
            against.push("nothing arrived at the vendor".to_owned());
        }
        if self.over_limit_windows > 0 {
            against.push(format!(
                "{} windows held more than {} calls, the worst {}",
                self.over_limit_windows, self.limit, self.worst_window
            ));
        }
        if self.refused_by_vendor > 0 {
            against.push(format!("the vendor refused {} calls", self.refused_by_vendor));
        }
        if run.governed {
            if self.used < USE {
                against.push(format!("only {:.3} of the offered slots were used, {USE} is due", self.used));
            }
            for class in &self.classes {
                let (arrived, wanted) = run.settled.of(class.name);
                let wanted = fleet.classes.get(class.name).map_or(0, |sum| sum.wanted) - wanted;
                let (sends, all) = (class.sends - arrived, self.sends - run.settled.arrivals);
                // One slot less is allowed: the run may end between two.
                let due = (class.floor * all as f64).min(wanted as f64) - 1.0;
                if (sends as f64) < due {
                    against.push(format!(
                        "class {} had {sends} of {all} calls, {due:.1} are its floor less one",
                        class.name
                    ));
                }
            }
        }
        // A stall of the machine makes calls late; what they break says nothing of the schedule.
        let stalled = report.violation_during_stall
            || self.over_limit_windows > 0 && self.over_limit_windows_without_late == 0 && self.late > 0;
        self.verdict = match () {
            () if against.is_empty() => Verdict::Pass,
            () if run.governed && stalled => Verdict::Inconclusive,
            () => Verdict::Fail,
        };
        self.because = against;
    }
}

impl ClassFigures {
    fn of(class: &Class, run: &Run<'_>, report: &Report, fleet: &Fleet) -> Self {
        let sends = report.by_class.get(class.name).map_or(0, |count| count.arrivals);
        let all = report.arrivals - run.settled.arrivals;
        Self {
            name: class.name,
            priority: class.priority,
            floor: class.floor,
            demand: match class.demand {
                Demand::Poisson(per_s) | Demand::Even(per_s) => Some(per_s),
                Demand::Endless(_) => None,
            },
            share: (sends - run.settled.of(class.name).0) as f64 / all.max(1) as f64,
            sends,
            wait_p50_ms: fleet.wait_ms(class.name, 0.5),
            wait_p99_ms: fleet.wait_ms(class.name, 0.99),
        }
    }
}
