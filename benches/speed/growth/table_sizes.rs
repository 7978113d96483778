//! What is left in the tables after a million grants, and after a hundred thousand transactions of one slot each.

use std::time::Duration;

use call_budget::{AcquireError, CallBudget};
use serde::Serialize;
use tokio::task::JoinSet;

use super::{after_updates, commit_durably, granted, one_by_one, updates};
use crate::Outcome;
use crate::ground::{CLASS, Ground};
use crate::options::Options;
use crate::report::Report;

const BUDGET: &str = "tables";
/// Too many a second to pace: what is looked at is the tables.
const UNITS: u32 = 1_000_000;
const LANES: usize = 4;
const TASKS_PER_LANE: usize = 2500;
const LONGEST: Duration = Duration::from_secs(600);

const COLUMNS: [&str; 8] =
    ["after", "table", "table_bytes", "index_bytes", "live_rows", "dead_rows", "updates", "hot_share"];

#[derive(Debug, Default, Serialize)]
pub struct Row {
    after: String,
    table: String,
    /// With its free space and visibility maps.
    table_bytes: i64,
    index_bytes: i64,
    live_rows: i64,
    /// At the end of the work, before the next vacuum.
    dead_rows: i64,
    /// Since the tables are there.
    updates: i64,
    /// Of these, the ones that touched no index.
    hot_share: Option<f64>,
}

pub fn show(report: &mut Report, rows: &[Row]) -> Outcome<()> {
    report.table(
        "growth_tables",
        "Tables and indexes of the schema, autovacuum on; the counts are since they are there:",
        &COLUMNS,
        rows,
    )
}

pub async fn measure(ground: &Ground, options: &Options) -> Outcome<Vec<Row>> {
    let (grants, calls) = if options.smoke { (5_000, 200) } else { (1_000_000, 100_000) };
    ground.set_budget(BUDGET, UNITS).await?;
    // What a commit waits for changes how long this takes and nothing that is left behind.
    commit_durably(ground, false).await?;
    let before = updates(ground).await?;
    let made = through_lanes(ground, grants).await?;
    after_updates(ground, before + made).await?;
    let mut rows = look(ground, &format!("{grants} grants by some {made} calls of {LANES} lanes")).await?;
    let before = updates(ground).await?;
    one_by_one(&ground.caller(1)?, BUDGET, calls).await?;
    after_updates(ground, before + i64::from(calls)).await?;
    rows.extend(look(ground, &format!("{calls} calls of one caller")).await?);
    commit_durably(ground, true).await?;
    Ok(rows)
}

/// Tasks that ask again and again, until the store has granted so many. Returns how many store calls it took at least.
async fn through_lanes(ground: &Ground, grants: i64) -> Outcome<i64> {
    let callers = (0..LANES).map(|_| ground.caller(1)).collect::<Outcome<Vec<_>>>()?;
    let mut tasks = JoinSet::new();
    for caller in callers.iter().flat_map(|caller| std::iter::repeat_n(caller, TASKS_PER_LANE)) {
        tasks.spawn(ask_for_ever(caller.clone()));
    }
    tokio::select! {
        granted = tokio::time::timeout(LONGEST, until_granted(ground, grants)) => {
            granted.map_err(|_| format!("{grants} grants took more than {LONGEST:?}"))??;
        }
        ended = tasks.join_next() => return Err(format!("a task that was to go on ended: {ended:?}").into()),
    }
    tasks.shutdown().await;
    let calls: u64 = callers.iter().map(|caller| caller.counters().store_calls).sum();
    // One may have been under way in each lane.
    Ok(i64::try_from(calls)? - i64::try_from(LANES)?)
}

/// Ends only with an error.
async fn ask_for_ever(caller: CallBudget) -> Result<(), AcquireError> {
    loop {
        drop(caller.acquire(BUDGET, CLASS).await?);
    }
}

async fn until_granted(ground: &Ground, grants: i64) -> Outcome<()> {
    while granted(ground, BUDGET).await?.0 < grants {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Every table of the schema that was ever written, and the whole.
pub async fn look(ground: &Ground, after: &str) -> Outcome<Vec<Row>> {
    let sql = "SELECT relname::text, pg_table_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup, n_tup_upd,
                      n_tup_hot_upd
                 FROM pg_stat_user_tables WHERE schemaname = 'call_budget' ORDER BY relname";
    let mut whole = Row { after: after.into(), table: "all".into(), ..Row::default() };
    let (mut rows, mut hot) = (Vec::new(), 0);
    for row in ground.aside.query(sql, &[]).await? {
        let (updates, its_hot): (i64, i64) = (row.get(5), row.get(6));
        let row = Row {
            after: after.into(),
            table: row.get(0),
            table_bytes: row.get(1),
            index_bytes: row.get(2),
            live_rows: row.get(3),
            dead_rows: row.get(4),
            updates,
            hot_share: share(its_hot, updates),
        };
        whole.table_bytes += row.table_bytes;
        whole.index_bytes += row.index_bytes;
        whole.live_rows += row.live_rows;
        whole.dead_rows += row.dead_rows;
        whole.updates += updates;
        hot += its_hot;
        if updates > 0 {
            rows.push(row);
        }
    }
    whole.hot_share = share(hot, whole.updates);
    rows.push(whole);
    Ok(rows)
}

fn share(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
