//! The whole picture, as one document: the page is drawn from it.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::House;
use super::lookout::Seen;
use crate::BreakerReport;
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;
use crate::policy::breaker::Shown;
use crate::store::breakers::cause;
use crate::store::report::View;
use crate::store::status::{Breaker, Hold, Server};

#[derive(Serialize)]
pub(super) struct Status {
    unix_ms: i64,
    service: ServiceLine,
    store: StoreLine,
    server: Option<Server>,
    budgets: Vec<View>,
    /// Of all processes, as they were told to the store.
    breakers: Vec<Breaker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    breakers_unseen: Option<&'static str>,
    /// Of this service.
    breakers_here: Vec<BreakerHere>,
}

#[derive(Serialize)]
struct ServiceLine {
    version: &'static str,
    enabled: bool,
    uptime_s: f64,
    stopping: bool,
    /// There is an admin token.
    admin: bool,
    /// Whose breakers among those of the fleet are these; none while the switch is off.
    process: Option<String>,
    waiting: usize,
    open_calls: usize,
}

#[derive(Serialize)]
struct StoreLine {
    reachable: bool,
    why: Option<String>,
    age_ms: Option<u64>,
}

/// A breaker of this service as it is now.
#[derive(Serialize)]
pub(super) struct BreakerHere {
    pub breaker: String,
    surfaces: Vec<String>,
    state: &'static str,
    why: String,
    retry_us: Option<u64>,
    rung: usize,
    failure_rate_ppm: Option<u32>,
    slow_rate_ppm: Option<u32>,
    calls: u64,
    successes: u64,
    failures: u64,
    rejected: u64,
    episode: Option<EpisodeHere>,
    holds: Vec<Hold>,
}

#[derive(Serialize)]
struct EpisodeHere {
    age_us: u64,
    total_open_us: u64,
    reopen_count: u32,
    probe_count: u32,
    cause: &'static str,
}

impl Status {
    pub fn of(house: &House, seen: Seen) -> Self {
        let age = seen.age();
        let (reachable, why) = (seen.is_reachable(), seen.why());
        let report = seen.report.map(|report| (*report).clone());
        let (budgets, breakers, breakers_unseen, server) = match report {
            Some(report) => (report.budgets, report.breakers, report.breakers_unseen, Some(report.server)),
            None => (Vec::new(), Vec::new(), None, None),
        };
        Self {
            unix_ms: SystemClock.wall().unix_us() / 1000,
            service: ServiceLine {
                version: env!("CARGO_PKG_VERSION"),
                enabled: house.enabled,
                uptime_s: SystemClock.now().saturating_since(house.started).as_millis() as f64 / 1000.0,
                stopping: house.is_stopping(),
                admin: house.tokens.admin.is_some(),
                process: house.budgets.process().map(|process| format!("{process:016x}")),
                waiting: house.waiting.load(Ordering::Relaxed),
                open_calls: house.calls.count(),
            },
            store: StoreLine { reachable, why, age_ms: age.map(|age| age.as_millis().try_into().unwrap_or(u64::MAX)) },
            server,
            budgets,
            breakers,
            breakers_unseen,
            breakers_here: breakers_here(house),
        }
    }
}

/// The breakers of this service, by name.
pub(super) fn breakers_here(house: &House) -> Vec<BreakerHere> {
    let now = SystemClock.now();
    house.budgets.breakers().iter().map(|report| BreakerHere::of(report, now)).collect()
}

impl BreakerHere {
    fn of(report: &BreakerReport, now: Instant) -> Self {
        let BreakerReport { name, surfaces, view, holds } = report;
        let left_us = |until: Instant| micros(until.saturating_since(now));
        let ppm = |rate: Option<f64>| rate.map(|rate| (rate * 1e6).round() as u32);
        let wall_us = SystemClock.wall().unix_us();
        Self {
            breaker: name.to_string(),
            surfaces: surfaces.iter().map(ToString::to_string).collect(),
            state: Shown::as_str(view.shown),
            why: view.why.clone(),
            retry_us: view.retry_at.map(left_us),
            rung: view.rung,
            failure_rate_ppm: ppm(view.failure_rate),
            slow_rate_ppm: ppm(view.slow_rate),
            calls: view.calls,
            successes: view.successes,
            failures: view.failures,
            rejected: view.rejected,
            episode: view.episode.map(|episode| EpisodeHere {
                age_us: wall_us.saturating_sub(episode.started_at.unix_us()).unsigned_abs(),
                total_open_us: micros(episode.total_open),
                reopen_count: episode.reopen_count,
                probe_count: episode.probe_count,
                cause: cause(episode.cause),
            }),
            holds: holds
                .iter()
                .map(|held| Hold {
                    scope: held.scope.clone(),
                    why: held.why.to_string(),
                    left_us: left_us(held.until).try_into().unwrap_or(i64::MAX),
                })
                .collect(),
        }
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}
