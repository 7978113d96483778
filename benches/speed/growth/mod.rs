//! How cost grows: with the rate and the number of lanes, and with all that was granted before.

mod held_snapshot;
mod rates;
mod table_sizes;
mod windows;

use std::time::Duration;

use call_budget::CallBudget;
use call_budget::clock::{Clock, SystemClock};

use crate::Outcome;
use crate::ground::{CLASS, Ground};
use crate::measure::Took;
use crate::options::Options;
use crate::report::Report;

/// On a server of its own: what other parts did to the tables would count as growth.
pub async fn run(_ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    let ground = Ground::start(&options.settings).await?;
    let mut sizes = table_sizes::look(&ground, "nothing").await?;
    rates::run(&ground, options, report).await?;
    // The fleet's connections have ended, and each tells the server as it ends what it has done.
    tokio::time::sleep(Duration::from_secs(1)).await;
    sizes.extend(table_sizes::look(&ground, "the paced fleets").await?);
    sizes.extend(table_sizes::measure(&ground, options).await?);
    table_sizes::show(report, &sizes)?;
    held_snapshot::run(&ground, options, report).await
}

/// So many acquires, one after the other, each a store call and a transaction of its own.
async fn one_by_one(caller: &CallBudget, budget: &str, calls: u32) -> Outcome<Took> {
    let before = caller.counters().store_calls;
    let mut took = Took::default();
    for _ in 0..calls {
        let begin = SystemClock.now();
        let permit = caller.acquire(budget, CLASS).await?;
        took.add(SystemClock.now().saturating_since(begin));
        drop(permit);
    }
    let made = caller.counters().store_calls - before;
    if made < u64::from(calls) {
        return Err(format!("{calls} acquires made {made} store calls: they were not one transaction each").into());
    }
    Ok(took)
}

/// Updates of the hot row that the server has counted so far. Its backends tell it when they end, or seconds later.
async fn updates(ground: &Ground) -> Outcome<i64> {
    let sql = "SELECT n_tup_upd FROM pg_stat_user_tables
                WHERE schemaname = 'call_budget' AND relname = 'call_budget_schedule'";
    Ok(ground.aside.query_one(sql, &[]).await?.get(0))
}

/// Waits until the server has counted at least so many: what it says of the tables is of then.
async fn after_updates(ground: &Ground, least: i64) -> Outcome<()> {
    for _ in 0..300 {
        if updates(ground).await? >= least {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("the server counted fewer than {least} updates of the schedule").into())
}

/// Slots granted so far, and the last of them in the store's time: read in one snapshot, so that they belong together.
async fn granted(ground: &Ground, budget: &str) -> Outcome<(i64, i64)> {
    let sql = "SELECT sum(granted)::bigint, max(last_slot_us) FROM call_budget.call_budget_class WHERE budget = $1";
    let row = ground.aside.query_one(sql, &[&budget]).await?;
    Ok((row.get(0), row.get(1)))
}

/// Of connections that are opened from now on.
async fn commit_durably(ground: &Ground, durably: bool) -> Outcome<()> {
    let mode = if durably { "RESET synchronous_commit" } else { "SET synchronous_commit = off" };
    Ok(ground.aside.batch_execute(&format!("ALTER ROLE CURRENT_USER {mode}")).await?)
}
