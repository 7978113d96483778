//! What the schema is made of: names, owners, rights, and nothing outside it.

use call_budget::store::migrate::{HISTORY, migrate};
use tokio_postgres::Client;

use crate::support::{self, connect};
use crate::{BUDGET, acquire};

#[tokio::test]
async fn a_plain_owner_migrates_and_everything_is_its_own_inside_the_schema() {
    let mut database = support::empty_database().await;
    let role = database.role().await;
    database
        .client
        .batch_execute(&format!("GRANT CREATE ON DATABASE {} TO \"{}\"", database.name, role.name))
        .await
        .unwrap();
    let before = outside(&database.client).await;
    let mut owner = connect(&role.url).await;
    migrate(&mut owner).await.unwrap();
    assert_eq!(outside(&database.client).await, before);
    let owners = "SELECT DISTINCT o::regrole::text FROM (
                      SELECT relowner FROM pg_class WHERE relnamespace = 'call_budget'::regnamespace
                      UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'call_budget'::regnamespace
                      UNION ALL SELECT typowner FROM pg_type WHERE typnamespace = 'call_budget'::regnamespace
                      UNION ALL SELECT nspowner FROM pg_namespace WHERE nspname = 'call_budget') AS owned (o)";
    assert_eq!(names(&database.client, owners).await, [format!("\"{}\"", role.name)]);
    owner.batch_execute(BUDGET).await.unwrap();
    assert_eq!(acquire(&owner).await.fences, 1);
}

#[tokio::test]
async fn a_superuser_continues_the_schema_of_a_plain_owner_as_that_owner() {
    let mut database = support::empty_database().await;
    let role = database.role().await;
    database.client.batch_execute(&format!("CREATE SCHEMA call_budget AUTHORIZATION \"{}\"", role.name)).await.unwrap();
    migrate(&mut database.client).await.unwrap();
    let owners =
        "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'call_budget'::regnamespace";
    assert_eq!(names(&database.client, owners).await, [format!("\"{}\"", role.name)]);
    let me = "SELECT current_user::text WHERE current_user <> session_user";
    assert!(names(&database.client, me).await.is_empty(), "the role was not given back");
}

#[tokio::test]
async fn every_table_view_and_function_is_prefixed() {
    let database = support::database().await;
    let odd = "SELECT n FROM (
                   SELECT relname::text FROM pg_class
                    WHERE relnamespace = 'call_budget'::regnamespace AND relkind NOT IN ('i', 'c')
                   UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'call_budget'::regnamespace) AS named (n)
                WHERE n !~ '^call_budget(_|$)'";
    assert_eq!(names(&database.client, odd).await, [""; 0]);
}

#[tokio::test]
async fn every_constraint_is_named_as_a_sentence() {
    let database = support::database().await;
    // Not the history's, which is not ours; and newer servers name NOT NULL ('n') themselves.
    let odd = format!(
        "SELECT conname::text FROM pg_constraint
          WHERE connamespace = 'call_budget'::regnamespace AND conrelid <> '{HISTORY}'::regclass
            AND contype <> 'n' AND conname !~ '^[a-z]+( [^ ]+)+$'"
    );
    assert_eq!(names(&database.client, &odd).await, [""; 0]);
}

#[tokio::test]
async fn tables_and_views_are_granted_to_nobody() {
    let database = support::database().await;
    let granted = "SELECT DISTINCT c.relname::text FROM pg_class AS c, aclexplode(c.relacl) AS a
                    WHERE c.relnamespace = 'call_budget'::regnamespace AND a.grantee <> c.relowner";
    assert_eq!(names(&database.client, granted).await, [""; 0]);
}

#[tokio::test]
async fn the_public_may_execute_nothing_but_the_contract() {
    let database = support::database().await;
    let public =
        "SELECT p.proname::text FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
                   WHERE p.pronamespace = 'call_budget'::regnamespace AND a.grantee = 0";
    assert_eq!(names(&database.client, public).await, ["call_budget_contract"]);
}

#[tokio::test]
async fn functions_that_run_as_their_owner_pin_the_search_path() {
    let database = support::database().await;
    let loose = "SELECT proname::text FROM pg_proc WHERE pronamespace = 'call_budget'::regnamespace AND prosecdef
                    AND NOT coalesce(proconfig @> '{\"search_path=pg_catalog, pg_temp\"}', false)";
    assert_eq!(names(&database.client, loose).await, [""; 0]);
}

/// Everything named outside the schema.
async fn outside(client: &Client) -> Vec<String> {
    names(
        client,
        "SELECT relnamespace::regnamespace || '.' || relname FROM pg_class
          WHERE relnamespace::regnamespace::text NOT IN ('call_budget', 'pg_toast')
         UNION ALL SELECT pronamespace::regnamespace || '.' || proname FROM pg_proc WHERE pronamespace::regnamespace::text <> 'call_budget'
         UNION ALL SELECT typnamespace::regnamespace || '.' || typname FROM pg_type
                    WHERE typnamespace::regnamespace::text NOT IN ('call_budget', 'pg_toast')
         UNION ALL SELECT extname FROM pg_extension
         UNION ALL SELECT nspname FROM pg_namespace WHERE nspname <> 'call_budget'
         ORDER BY 1",
    )
    .await
}

async fn names(client: &Client, sql: &str) -> Vec<String> {
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}
