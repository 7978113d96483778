//! What Prometheus reads of this program, and what is built on it: the page that lists it, the dashboard, the alerts.
#![cfg(feature = "cli")]

#[path = "../support/mod.rs"]
mod support;

mod built_on;
mod exposed;
mod promtool;
mod sample;
