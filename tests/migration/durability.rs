//! Settings are never forgotten, whatever the role's synchronous_commit says; grants follow the role.

use crate::support::{self, TestDatabase};
use crate::{BUDGET, acquire};

#[tokio::test]
async fn what_operators_do_commits_durably_under_a_role_that_does_not() {
    let database = relaxed().await;
    for call in [
        "call_budget_set('b', 18, 1000000, 50000, 50000, 1, 61174, 60000)",
        "call_budget_class_set('b', 'd', 1, 1000)",
        "call_budget_pause('b', 'test')",
        "call_budget_resume('b')",
        "call_budget_pushback('b', 1000, 'test')",
        "call_budget_report_pushback('b', 1000, 'test')",
        "call_budget_fence('b')",
        "call_budget_request_fence('b')",
        "call_budget_class_delete('b', 'd')",
        "call_budget_delete('unused')",
    ] {
        assert_eq!(mode_after(&database, call).await, "on", "{call}");
    }
}

#[tokio::test]
async fn a_stronger_mode_than_on_is_left_alone() {
    let database = relaxed().await;
    database.client.batch_execute("SET synchronous_commit = remote_apply").await.unwrap();
    assert_eq!(mode_after(&database, "call_budget_pause('b', 'test')").await, "remote_apply");
}

#[tokio::test]
async fn a_grant_commits_as_the_role_says() {
    let database = relaxed().await;
    acquire(&database.client).await;
    let call = "call_budget_acquire('b', 'c', 7, '{1}', 0, 42)";
    assert_eq!(mode_after(&database, call).await, "off");
}

/// A database with a budget, whose session has synchronous_commit off.
async fn relaxed() -> TestDatabase {
    let database = support::database().await;
    database.client.batch_execute(BUDGET).await.unwrap();
    database.client.batch_execute("SET synchronous_commit = off").await.unwrap();
    database
}

/// The mode in force when the transaction of `call` commits. The session's own comes back afterwards.
async fn mode_after(database: &TestDatabase, call: &str) -> String {
    let mode = "SELECT current_setting('synchronous_commit')";
    let client = &database.client;
    let before: String = client.query_one(mode, &[]).await.unwrap().get(0);
    client.batch_execute(&format!("BEGIN; SELECT call_budget.{call}")).await.unwrap();
    let inside = client.query_one(mode, &[]).await.unwrap().get(0);
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(client.query_one(mode, &[]).await.unwrap().get::<_, String>(0), before, "{call}");
    inside
}
