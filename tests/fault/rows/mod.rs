//! The faults, one stage a file.

mod answer;
mod connect;
mod pooler;
mod process;
mod query;
mod random;
mod scripted_store;
mod storm;

use crate::suite::Case;

/// Every case, by row.
pub fn all() -> Vec<&'static Case> {
    let mut all: Vec<&Case> =
        [connect::CASES, query::CASES, answer::CASES, process::CASES, pooler::CASES, storm::CASES, random::CASES]
            .into_iter()
            .flatten()
            .collect();
    all.sort_by_key(|case| case.row);
    all
}
