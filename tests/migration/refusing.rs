//! What `migrate` refuses: each by name, with the way out, and without a trace in the database.

use std::fs;

use call_budget::service::scratch_postgres::Halt;
use call_budget::store::migrate::{HISTORY, migrate};
use tokio_postgres::Client;

use crate::support::{self, connect};

#[tokio::test]
async fn a_role_that_may_not_create_schemas_is_told_the_grant_it_needs() {
    let mut database = support::empty_database().await;
    let role = database.role().await;
    let error = refusal(&mut connect(&role.url).await).await;
    assert!(error.contains(&format!("GRANT CREATE ON DATABASE {} TO \"{}\"", database.name, role.name)), "{error}");
}

#[tokio::test]
async fn the_schema_of_another_role_is_refused_with_its_owner() {
    let mut database = support::empty_database().await;
    let (owner, other) = (database.role().await, database.role().await);
    database
        .client
        .batch_execute(&format!("CREATE SCHEMA call_budget AUTHORIZATION \"{}\"", owner.name))
        .await
        .unwrap();
    let error = refusal(&mut connect(&other.url).await).await;
    assert!(error.contains(&format!("belongs to \"{}\"", owner.name)), "{error}");
}

#[tokio::test]
async fn a_read_only_role_is_refused() {
    let mut database = support::empty_database().await;
    database
        .client
        .batch_execute(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name))
        .await
        .unwrap();
    let error = refusal(&mut connect(&database.url).await).await;
    assert!(error.contains("read-only") && error.contains("default_transaction_read_only"), "{error}");
    database.client.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    migrate(&mut database.client).await.unwrap();
}

#[tokio::test]
async fn a_standby_is_refused() {
    let mut server = support::server();
    let data =
        server.data_dir().expect("making a standby needs local PostgreSQL binaries: install postgresql or set PG_BIN");
    server.halt(Halt::Fast).unwrap();
    fs::write(data.join("standby.signal"), "").unwrap();
    server.resume().unwrap();
    let error = refusal(&mut connect(&server.url("postgres")).await).await;
    assert!(error.contains("standby"), "{error}");
}

#[tokio::test]
async fn a_history_with_another_text_is_refused_with_the_migration_named() {
    let mut database = support::database().await;
    database.client.batch_execute(&format!("UPDATE {HISTORY} SET checksum = '1' WHERE version = 2")).await.unwrap();
    let error = refusal(&mut database.client).await;
    assert!(error.contains("V2__acquire") && error.contains("another text"), "{error}");
}

#[tokio::test]
async fn a_history_with_a_gap_is_refused_with_the_migration_named() {
    let mut database = support::database().await;
    database.client.batch_execute(&format!("DELETE FROM {HISTORY} WHERE version = 2")).await.unwrap();
    let error = refusal(&mut database.client).await;
    assert!(error.contains("V2__acquire"), "{error}");
}

#[tokio::test]
async fn a_newer_schema_of_another_contract_is_refused_with_both_numbers() {
    let mut database = support::database().await;
    add_newer_migration(&database.client).await;
    database
        .client
        .batch_execute("CREATE OR REPLACE FUNCTION call_budget.call_budget_contract() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2'")
        .await
        .unwrap();
    let error = refusal(&mut database.client).await;
    assert!(error.contains("V900__newer") && error.contains("contract 2") && error.contains("contract 1"), "{error}");
}

#[tokio::test]
async fn a_newer_schema_of_the_same_contract_is_welcome() {
    let mut database = support::database().await;
    add_newer_migration(&database.client).await;
    let migrated = migrate(&mut database.client).await.unwrap();
    assert!(migrated.applied.is_empty());
    assert_eq!(migrated.present.last().unwrap().to_string(), "V900 newer");
}

async fn add_newer_migration(client: &Client) {
    client
        .batch_execute(&format!(
            "ALTER TABLE call_budget.call_budget ADD COLUMN newer integer;
             INSERT INTO {HISTORY} VALUES (900, 'newer', '2030-01-01T00:00:00Z', '1')"
        ))
        .await
        .unwrap();
}

/// The sentence of a refused run. The lock must be free again.
async fn refusal(client: &mut Client) -> String {
    let error = migrate(client).await.expect_err("this must be refused");
    assert!(error.is_refusal(), "{error}");
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
    assert_eq!(client.query_one(held, &[]).await.unwrap().get::<_, i64>(0), 0);
    error.to_string()
}
