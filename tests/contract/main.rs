//! What the SQL functions promise, on a real PostgreSQL.
//!
//! `differential` holds them to the scheduler in memory and to the model in Python, call by call; the other modules hold
//! them to the promises themselves, one test each. Where a test needs a time of its own it calls the private function
//! that `call_budget_acquire` calls, with the time as an argument (`store`); where it needs many callers it lets a
//! simulated fleet drive that function (`fleet`).

#[path = "../support/mod.rs"]
mod support;

mod arguments;
mod breakers;
mod differential;
mod fence;
mod fleet;
mod model;
mod order;
mod rights;
mod settings;
mod spacing;
mod store;
mod windows;
