//! The faults, one stage a file.

mod cancel;
mod clock;
mod connect;
mod failover;
mod query;
mod server;

use crate::suite::Case;

/// Every case, by row.
pub fn all() -> Vec<&'static Case> {
    let mut all: Vec<&Case> =
        [connect::CASES, query::CASES, cancel::CASES, server::CASES, failover::CASES, clock::CASES]
            .into_iter()
            .flatten()
            .collect();
    all.sort_by_key(|case| case.row);
    all
}
