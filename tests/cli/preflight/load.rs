//! Others in the way.

use super::Ground;
use crate::support;

#[tokio::test]
async fn a_lock_that_somebody_keeps_is_told_with_his_name_and_what_it_does_to_calls() {
    let ground = Ground::new().await;
    let holder = support::connect(&ground.database.url).await;
    holder
        .batch_execute("SET application_name = 'night job'; BEGIN; SELECT FROM call_budget.call_budget FOR UPDATE")
        .await
        .unwrap();
    let report = ground.preflight("--seconds 2").await;
    report.says("lock_holders", "fail", "\"night job\" has kept a lock on the schema's tables for");
    report.says("lock_waits", "fail", "held the row for too long");
    // The client may not see what a session of somebody else does.
    report.says("idle_in_transaction", "warn", "\"night job\" leaves a transaction open (this role may not see");
    report.passes(&["rights", "budget", "interval", "clock_steps"]);
    assert_eq!(report.exit, 1);
}

#[tokio::test]
async fn waiting_of_others_for_the_lock_is_seen() {
    let ground = Ground::new().await;
    let (holder, waiter) = (support::connect(&ground.database.url).await, support::connect(&ground.database.url).await);
    holder.batch_execute("BEGIN; SELECT FROM call_budget.call_budget FOR UPDATE").await.unwrap();
    let waits =
        tokio::spawn(async move { waiter.batch_execute("SELECT FROM call_budget.call_budget FOR UPDATE").await });
    let waiting =
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')";
    support::eventually("somebody waits", async || {
        ground.database.client.query_one(waiting, &[]).await.unwrap().get(0)
    })
    .await;
    let report = ground.preflight("").await;
    let line = report.says("lock_waits", "fail", "");
    assert!(line["figures"]["waiting_seen"].as_u64().unwrap() >= 1, "{line}");
    assert!(line["figures"]["longest_wait_ms"].as_f64().unwrap() >= 500.0, "{line}");
    holder.batch_execute("COMMIT").await.unwrap();
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_snapshot_that_is_held_is_told_at_once_and_its_age_when_it_has_one() {
    let ground = Ground::new().await;
    let report = support::connect(&ground.role.url).await;
    report
        .batch_execute("SET application_name = 'long report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    let seen = ground.preflight("").await;
    seen.says("oldest_snapshot", "warn", "\"long report\" held its snapshot all the while");
    // A session of its own role: what it does can be seen.
    seen.says("idle_in_transaction", "warn", "\"long report\" leaves a transaction open and does nothing");
    seen.passes(&["lock_holders"]);
    // Numbers of transactions are the whole server's: others may add to them.
    ground.does("DO $$ BEGIN FOR i IN 1..10000 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$").await;
    let seen = ground.preflight("").await;
    let line = seen.says("oldest_snapshot", "warn", "\"long report\" keeps 1");
    assert!(line["figures"]["transactions"].as_i64().unwrap() >= 10_000, "{line}");
    report.batch_execute("COMMIT").await.unwrap();
    ground.preflight("").await.passes(&["idle_in_transaction"]);
}
