//! The faults, one stage a file.

mod cancel;
mod connect;
mod half_open;
mod link;
mod query;

use crate::suite::Case;

/// Every case, by row.
pub fn all() -> Vec<&'static Case> {
    let mut all: Vec<&Case> =
        [connect::CASES, query::CASES, link::CASES, half_open::CASES, cancel::CASES].into_iter().flatten().collect();
    all.sort_by_key(|case| case.row);
    all
}
