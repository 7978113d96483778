//! The cases, one stage a file.

mod answer;
mod clock;
mod connect;
mod dns;
mod failover;
mod half_open;
mod link;
mod pool;
mod pooler;
mod process;
mod query;
mod random;
mod refusals;
mod scripted_store;
mod server;
mod startup;
mod storm;
mod tls;

use crate::suite::Case;

/// Every case, by row.
pub fn all() -> Vec<&'static Case> {
    let mut all: Vec<&Case> = [
        dns::CASES,
        connect::CASES,
        tls::CASES,
        startup::CASES,
        pool::CASES,
        query::CASES,
        answer::CASES,
        link::CASES,
        half_open::CASES,
        server::CASES,
        refusals::CASES,
        failover::CASES,
        clock::CASES,
        pooler::CASES,
        storm::CASES,
        process::CASES,
        random::CASES,
    ]
    .into_iter()
    .flatten()
    .collect();
    all.sort_by_key(|case| case.row);
    all
}
