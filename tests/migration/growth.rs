//! A budget that is used day and night stays as small and as fast as it was.

use std::time::Duration;

use crate::support::{self, connect};

const CALLS: i64 = 100_000;

#[tokio::test]
async fn after_100_000_calls_nearly_every_update_was_hot_and_the_tables_are_small() {
    let database = support::database().await;
    // 2,000 slots/s for 12 lanes of two classes: some calls are granted, others get an appointment.
    database
        .client
        .batch_execute(
            "SELECT call_budget.call_budget_set('b', 2000, 1000000, 1000, 0, 1, 503, 2000);
             SELECT call_budget.call_budget_class_set('b', 'c0', 0, 200000);
             SELECT call_budget.call_budget_class_set('b', 'c1', 1, 0)",
        )
        .await
        .unwrap();
    let caller = connect(&database.url).await;
    caller.batch_execute("SET synchronous_commit = off").await.unwrap();
    let run = format!(
        "DO $$ BEGIN
             FOR n IN 1..{CALLS} LOOP
                 PERFORM call_budget.call_budget_acquire('b', 'c' || n % 2, n % 12, '{{1}}', 1000000, n);
                 COMMIT;
             END LOOP;
         END $$"
    );
    tokio::time::timeout(Duration::from_secs(300), caller.batch_execute(&run))
        .await
        .expect("within 5 minutes")
        .unwrap();
    drop(caller);

    for (table, least_updates) in
        [("call_budget_schedule", CALLS), ("call_budget_class", CALLS / 20), ("call_budget_waiter", CALLS / 20)]
    {
        let (updates, hot) = updates(&database, table, least_updates).await;
        let size: i64 = database
            .client
            .query_one("SELECT pg_relation_size(('call_budget.' || $1)::regclass)", &[&table])
            .await
            .unwrap()
            .get(0);
        let ratio = hot as f64 / updates as f64;
        println!("{table}: {updates} updates, {ratio:.4} of them HOT, {size} bytes");
        assert!(ratio >= 0.95, "{table}: only {hot} of {updates} updates were HOT");
        // Without pruning they would take 10 MB and more; a busy machine holds a snapshot now and then.
        assert!(size <= 4_000_000, "{table} takes {size} bytes");
    }
}

/// Updates and HOT updates of a table, once the server has counted at least so many.
async fn updates(database: &support::TestDatabase, table: &str, least: i64) -> (i64, i64) {
    let sql =
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'call_budget' AND relname = $1";
    for _ in 0..200 {
        let row = database.client.query_one(sql, &[&table]).await.unwrap();
        if row.get::<_, i64>(0) >= least {
            return (row.get(0), row.get(1));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the server counted fewer than {least} updates of {table}");
}
