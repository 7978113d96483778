//! What acquire costs in the caller's own process: how late a permit wakes its task, what is allocated on the way, and
//! what ten thousand waiting tasks take.

mod allocations;
mod counting;
mod waiting;
mod wake;

use std::time::Duration;

use crate::Outcome;
use crate::ground::Ground;
use crate::options::Options;
use crate::report::Report;

/// Before that a first call is connecting, and a first task of a lane is alone.
const SETTLED: Duration = Duration::from_millis(500);

pub async fn run(ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    wake::run(ground, options, report).await?;
    allocations::run(ground, options, report).await?;
    waiting::run(ground, options, report).await
}
