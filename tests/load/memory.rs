//! Whether the service stays as large as it is: its memory, descriptors and threads. Pure.

use serde::Serialize;

use crate::judge::{Bounds, Load, S};
use crate::looks::Look;

#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    pub looks: usize,
    pub warm_up_s: f64,
    /// Means over a minute, or a quarter of a shorter run: after the warm-up, and the last.
    pub first_mib: f64,
    pub last_mib: f64,
    pub most_mib: f64,
    pub slope_mib_per_10_min: f64,
    pub first_descriptors: u64,
    pub last_descriptors: u64,
    pub most_descriptors: u64,
    pub first_threads: u64,
    pub last_threads: u64,
    pub most_threads: u64,
    /// Of one core.
    pub cpu_percent: f64,
}

/// A service has its listener, the store's connections, and what its runtime needs.
const OTHER_DESCRIPTORS: u64 = 64;

impl Memory {
    /// `None` where the system does not tell.
    pub fn of(load: &Load) -> Option<Self> {
        let looks: Vec<&Look> = load.looks.iter().filter(|look| load.span.holds(look.at_us)).collect();
        let (first, last) = (*looks.first()?, *looks.last()?);
        let warm_us = warm_up_us(last.at_us - first.at_us);
        let settled: Vec<&Look> = looks.iter().copied().filter(|look| look.at_us >= first.at_us + warm_us).collect();
        let minute_us = (60 * S).min((last.at_us - first.at_us) / 4);
        let mib = |kib: u64| kib as f64 / 1024.0;
        let mean = |inside: &dyn Fn(&Look) -> bool| {
            let within: Vec<f64> =
                settled.iter().filter(|look| inside(look)).map(|look| mib(look.resident_kib)).collect();
            within.iter().sum::<f64>() / within.len() as f64
        };
        let most = |part: fn(&Look) -> u64| looks.iter().map(|look| part(look)).max().unwrap_or(0);
        let settled_first = settled.first()?;
        Some(Self {
            looks: looks.len(),
            warm_up_s: warm_us as f64 / S as f64,
            first_mib: mean(&|look| look.at_us <= first.at_us + warm_us + minute_us),
            last_mib: mean(&|look| look.at_us + minute_us >= last.at_us),
            most_mib: mib(most(|look| look.resident_kib)),
            slope_mib_per_10_min: slope(&settled) * 600.0,
            first_descriptors: settled_first.descriptors,
            last_descriptors: last.descriptors,
            most_descriptors: most(|look| look.descriptors),
            first_threads: settled_first.threads,
            last_threads: last.threads,
            most_threads: most(|look| look.threads),
            cpu_percent: 100.0 * (last.cpu_us - first.cpu_us) as f64 / (last.at_us - first.at_us).max(1) as f64,
        })
    }

    /// What stands against it.
    pub fn against(&self, bounds: &Bounds, callers: u64, because: &mut Vec<String>) {
        if let Some(most) = bounds.most_growth_mib {
            let grown = self.last_mib - self.first_mib;
            if self.slope_mib_per_10_min > most || grown > most {
                because.push(format!(
                    "memory grew: {grown:.2} MiB from minute to minute, {:.2} MiB in 10 minutes by its slope, {most} MiB may be",
                    self.slope_mib_per_10_min
                ));
            }
        }
        if self.most_mib > bounds.most_resident_mib {
            because.push(format!("{:.0} MiB were resident, {:.0} may be", self.most_mib, bounds.most_resident_mib));
        }
        if self.most_descriptors > callers + OTHER_DESCRIPTORS || self.last_descriptors > self.first_descriptors + 8 {
            because.push(format!(
                "the service had {} descriptors at most and {} in the end, for {callers} callers",
                self.most_descriptors, self.last_descriptors
            ));
        }
        if self.last_threads > self.first_threads + 4 {
            because.push(format!("from {} threads to {}", self.first_threads, self.last_threads));
        }
    }
}

/// How long the service may take to warm up: its page shows two minutes, which it has to collect first.
fn warm_up_us(length_us: u64) -> u64 {
    (length_us / 2).min(150 * S)
}

/// Of the line that lies closest to all of them, in MiB a second.
fn slope(looks: &[&Look]) -> f64 {
    let Some(first) = looks.first() else { return 0.0 };
    let points =
        || looks.iter().map(|look| ((look.at_us - first.at_us) as f64 / S as f64, look.resident_kib as f64 / 1024.0));
    let count = looks.len() as f64;
    let (sum_x, sum_y) = points().fold((0.0, 0.0), |(sum_x, sum_y), (x, y)| (sum_x + x, sum_y + y));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (up, across) = points().fold((0.0, 0.0), |(up, across), (x, y)| {
        (up + (x - mean_x) * (y - mean_y), across + (x - mean_x) * (x - mean_x))
    });
    if across > 0.0 { up / across } else { 0.0 }
}
