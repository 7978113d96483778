//! Requests by route and status. Routes are those of the service, never what a caller typed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::family::Family;
use crate::Histogram;

/// Counts requests. One lock for a moment, at the end of each.
#[derive(Debug, Default)]
pub struct HttpFigures(Mutex<HttpReading>);

/// What it has counted.
#[derive(Clone, Debug, Default)]
pub struct HttpReading(BTreeMap<String, Route>);

#[derive(Clone, Debug, Default)]
struct Route {
    by_status: BTreeMap<u16, u64>,
    took: Histogram,
}

impl HttpFigures {
    /// A request was answered. `route` is the pattern that it was routed by, such as `/v1/calls/{id}/settle`; `took` is
    /// from its head to the head of the answer.
    pub fn record(&self, route: &str, status: u16, took: Duration) {
        let mut reading = self.reading();
        if !reading.0.contains_key(route) {
            reading.0.insert(route.to_owned(), Route::default());
        }
        let Some(route) = reading.0.get_mut(route) else { return };
        *route.by_status.entry(status).or_default() += 1;
        route.took.add(took);
    }

    pub fn read(&self) -> HttpReading {
        self.reading().clone()
    }

    fn reading(&self) -> MutexGuard<'_, HttpReading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpReading {
    pub(super) fn families(&self) -> Vec<Family> {
        let mut requests = Family::counter("call_budget_http_requests", "Requests that were answered.");
        let mut seconds = Family::histogram(
            "call_budget_http_request_seconds",
            "From the head of a request to the head of its answer, waiting for a slot included.",
        );
        for (route, Route { by_status, took }) in &self.0 {
            for (status, times) in by_status {
                requests.add([("route", route.as_str()), ("status", &status.to_string())], *times);
            }
            seconds.add([("route", route.as_str())], took);
        }
        vec![requests, seconds]
    }
}
