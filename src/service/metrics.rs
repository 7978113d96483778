//! What Prometheus reads: the figures of this process, of the service around it, and of the whole fleet as the store last
//! told them. A reading is turned into families first, each with its name, labels and meaning, and then into text.
//!
//! Names and labels are stable: dashboards and alerts are built on them. `docs/metrics.md` lists them all.

mod family;
mod fleet;
mod http;
mod process;

use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::Figures;
use crate::store::report::Report;

use family::{Exposed, Family};

pub use http::{HttpFigures, HttpReading};

/// What the answer of `GET /metrics` is called.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the service knows of itself.
#[derive(Clone, Debug, Default)]
pub struct ServiceFigures {
    /// The switch.
    pub enabled: bool,
    pub uptime: Duration,
    /// Callers that wait here for a slot.
    pub waiting: usize,
    /// Guarded calls that were handed out and are not settled.
    pub open_calls: usize,
    /// Those that nobody settled in time.
    pub calls_lost: u64,
    /// Whether the store answered when it was last asked for its status; none while it is never asked.
    pub store_reachable: Option<bool>,
    pub http: HttpReading,
}

/// The text of one reading. `report` is what the store last told of the fleet, with its age.
pub fn text(figures: &Figures, service: &ServiceFigures, report: Option<(&Report, Duration)>) -> String {
    let mut families = process::families(figures);
    families.extend(of_service(service));
    families.extend(report.into_iter().flat_map(|(report, age)| fleet::families(report, age)));
    let (mut registry, mut written) = (Registry::default(), String::new());
    registry.register_collector(Box::new(Exposed(families)));
    text::encode(&mut written, &registry).expect("writing to memory does not fail");
    written
}

fn of_service(service: &ServiceFigures) -> Vec<Family> {
    let ServiceFigures { enabled, uptime, waiting, open_calls, calls_lost, store_reachable, http } = service;
    let mut build = Family::gauge("call_budget_build_info", "1, with the version that runs.");
    build.add([("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut switch = Family::gauge("call_budget_enabled", "1 while the switch is on: the limit is shared.");
    switch.add([], f64::from(u8::from(*enabled)));
    let mut up = Family::gauge("call_budget_uptime_seconds", "Since the service was started.");
    up.add([], uptime.as_secs_f64());
    let mut callers = Family::gauge("call_budget_waiting_callers", "Callers that wait in this service for a slot.");
    callers.add([], *waiting as f64);
    let mut calls = Family::gauge("call_budget_open_calls", "Guarded calls handed out here and not settled yet.");
    calls.add([], *open_calls as f64);
    let mut lost =
        Family::counter("call_budget_calls_lost", "Guarded calls handed out here that nobody settled in time.");
    lost.add([], *calls_lost);
    let mut reachable =
        Family::gauge("call_budget_store_reachable", "1 where the store answered when last asked for its status.");
    if let Some(is_reachable) = store_reachable {
        reachable.add([], f64::from(u8::from(*is_reachable)));
    }
    let mut families = vec![build, switch, up, callers, calls, lost, reachable];
    families.extend(http.families());
    families
}
