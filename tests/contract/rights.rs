//! What a client's role can do, and what it cannot.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::store::{BUDGET, KIS, Store};

#[tokio::test]
async fn a_client_role_gets_slots() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let client = client_role(&store).await;
    let sql = "SELECT a.reason FROM call_budget.call_budget_acquire($1, 'order', 1, '{1}', 1000000, 1) AS a";
    let reason: Option<String> = client.query_one(sql, &[&BUDGET]).await.unwrap().get(0);
    assert_eq!(reason, None);
    let sql = "SELECT a.reason FROM call_budget.call_budget_acquire('', '', 1, '{1}', 0, 1) AS a";
    assert_eq!(client.query_one(sql, &[]).await.unwrap().get::<_, &str>(0), "unknown_budget");
    assert_eq!(client.query_one("SELECT call_budget.call_budget_contract()", &[]).await.unwrap().get::<_, i32>(0), 1);
    drop_role(&store, client).await;
}

#[tokio::test]
async fn a_client_role_can_neither_read_nor_write_a_table() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let client = client_role(&store).await;
    let relations = async |kind: &str| {
        let sql = "SELECT relname::text FROM pg_class WHERE relnamespace = 'call_budget'::regnamespace AND relkind::text = $1";
        let rows = store.client().query(sql, &[&kind]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
    };
    let (tables, views) = (relations("r").await, relations("v").await);
    assert!(tables.len() >= 4 && views.len() >= 2, "{tables:?}, {views:?}");
    for relation in tables.iter().chain(&views) {
        assert_denied(&client, &format!("SELECT FROM call_budget.{relation}")).await;
    }
    for table in tables {
        assert_denied(&client, &format!("DELETE FROM call_budget.{table}")).await;
        assert_denied(&client, &format!("INSERT INTO call_budget.{table} DEFAULT VALUES")).await;
        assert_denied(&client, &format!("TRUNCATE call_budget.{table}")).await;
    }
    assert_denied(&client, "UPDATE call_budget.call_budget SET interval_us = 1").await;
    assert_denied(&client, "CREATE TABLE call_budget.mine ()").await;
    drop_role(&store, client).await;
}

#[tokio::test]
async fn a_client_role_can_call_nothing_but_what_it_was_given() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let client = client_role(&store).await;
    for call in [
        "call_budget_reserve(NULL, 'order', 1, '{1}', 0, 0, 0)",
        "call_budget_decide(NULL, 'order', 1, '{1}', 0, 0, 0)",
        "call_budget_fence_now(NULL, 0)",
        "call_budget_shift(NULL, 0)",
        "call_budget_lock('kis-real')",
        "call_budget_set('kis-real', 18, 1000000, 50000, 50000, 1, 61174, 60000)",
        "call_budget_delete('kis-real')",
        "call_budget_class_set('kis-real', 'order', 0, 0)",
        "call_budget_class_delete('kis-real', 'order')",
        "call_budget_pause('kis-real', 'x')",
        "call_budget_resume('kis-real')",
        "call_budget_drained_us('kis-real')",
        "call_budget_push_back('kis-real', 0, 0, 'x')",
        "call_budget_pushback('kis-real', 0, 'x')",
        "call_budget_fence('kis-real')",
        "call_budget_publish_breakers(1, '[]')",
        "call_budget_one_line('x')",
    ] {
        assert_denied(&client, &format!("SELECT call_budget.{call}")).await;
    }
    // Nor what a later migration may add: everything is closed until it is opened.
    let sql = "SELECT p.oid::regprocedure::text FROM pg_proc AS p \
                WHERE p.pronamespace = 'call_budget'::regnamespace AND has_function_privilege($1, p.oid, 'EXECUTE') \
                  AND p.proname NOT IN ('call_budget_acquire', 'call_budget_contract')";
    let role: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
    let open: Vec<String> =
        store.client().query(sql, &[&role]).await.unwrap().iter().map(|row| row.get::<_, String>(0)).collect();
    assert_eq!(open, [""; 0]);
    drop_role(&store, client).await;
}

/// A connection that acts as a new role with nothing but USAGE on the schema and EXECUTE on `call_budget_acquire`.
async fn client_role(store: &Store) -> Client {
    let client = store.connect().await;
    let role = format!("call_budget_test_client_{:016x}", fastrand::u64(..));
    client
        .batch_execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE ON SCHEMA call_budget TO {role}; \
             GRANT EXECUTE ON FUNCTION call_budget.call_budget_acquire TO {role}; SET ROLE {role}"
        ))
        .await
        .unwrap();
    client
}

/// Roles belong to the whole server and would outlive the test's database.
async fn drop_role(store: &Store, client: Client) {
    let role: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
    store.client().batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}

async fn assert_denied(client: &Client, sql: &str) {
    let refused = client.query(sql, &[]).await.expect_err(sql);
    assert_eq!(refused.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {refused:?}");
}
