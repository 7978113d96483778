//! What a snapshot that somebody holds in the same database does to the time of a call: no version of the hot row can be
//! removed for as long as it is held.

use serde::Serialize;
use tokio_postgres::IsolationLevel;

use super::{after_updates, commit_durably, one_by_one, updates};
use crate::Outcome;
use crate::ground::Ground;
use crate::options::Options;
use crate::report::Report;

const BUDGET: &str = "snapshot";
const UNITS: u32 = 1_000_000;

const COLUMNS: [&str; 5] = ["when", "calls", "p50_us", "p99_us", "dead_rows"];

#[derive(Debug, Serialize)]
struct Row {
    when: String,
    /// That the times are of.
    calls: usize,
    p50_us: f64,
    p99_us: f64,
    /// Of the hot row's table, afterwards.
    dead_rows: i64,
}

pub async fn run(ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    let (some, most) = if options.smoke { (50, 400) } else { (1000, 20_000) };
    ground.set_budget(BUDGET, UNITS).await?;
    // The disk's share of a call would hide what grows.
    commit_durably(ground, false).await?;
    one_by_one(&ground.caller(1)?, BUDGET, some).await?;
    let mut rows = vec![Row::measure(ground, "before", some).await?];

    let mut reader = ground.connect().await?;
    let snapshot = reader.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await?;
    snapshot.query_one("SELECT count(*) FROM call_budget.call_budget", &[]).await?;
    let mut made = 0;
    for until in [most / 4, most / 2, most] {
        one_by_one(&ground.caller(1)?, BUDGET, until - some - made).await?;
        rows.push(Row::measure(ground, &format!("held for {until} calls"), some).await?);
        made = until;
    }
    snapshot.rollback().await?;
    one_by_one(&ground.caller(1)?, BUDGET, some).await?;
    rows.push(Row::measure(ground, "let go", some).await?);
    commit_durably(ground, true).await?;
    let title = "One caller, synchronous_commit off, while somebody holds a snapshot in the same database:";
    report.table("growth_snapshot", title, &COLUMNS, &rows)
}

impl Row {
    async fn measure(ground: &Ground, when: &str, calls: u32) -> Outcome<Self> {
        let before = updates(ground).await?;
        // Its connection ends with it, and then the server knows what it has done.
        let mut took = one_by_one(&ground.caller(1)?, BUDGET, calls).await?;
        after_updates(ground, before + i64::from(calls)).await?;
        let sql = "SELECT n_dead_tup FROM pg_stat_user_tables
                    WHERE schemaname = 'call_budget' AND relname = 'call_budget_schedule'";
        let dead_rows = ground.aside.query_one(sql, &[]).await?.get(0);
        let (p50_us, p99_us) = (took.percentile_us(0.5), took.percentile_us(0.99));
        Ok(Self { when: when.into(), calls: took.count(), p50_us, p99_us, dead_rows })
    }
}
