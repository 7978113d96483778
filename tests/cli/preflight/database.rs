//! The schema, the budget and the role made bad.

use super::{Ground, preflight, preflight_with};
use crate::support;
use crate::{call_budget, words};

#[tokio::test]
async fn a_budget_that_is_not_there_or_spelt_otherwise_is_named() {
    let ground = Ground::new().await;
    call_budget(&ground.database.url, &words("budget delete kis-real --yes")).await.done();
    call_budget(&ground.database.url, &words("budget set kis-rael --limit 18 --window 1s")).await.done();
    let report = ground.preflight("").await;
    report.says("budget", "fail", "did you mean \"kis-rael\"?");
    for name in ["interval", "classes", "budget_state", "lookahead", "lock_waits"] {
        report.says(name, "not_measured", "there is no budget");
    }
    report.passes(&["schema", "rights", "marker", "timeline", "clock_steps"]);
    assert_eq!(report.exit, 1);
}

#[tokio::test]
async fn a_budget_that_is_paused_pushed_back_or_too_fast_is_told() {
    let ground = Ground::new().await;
    call_budget(&ground.database.url, &words("budget pushback kis-real --for 60s")).await.done();
    ground.preflight("").await.says("budget_state", "warn", "the vendor said too many");
    call_budget(&ground.database.url, &words("budget pause kis-real")).await.done();
    ground
        .does(
            "ALTER TABLE call_budget.call_budget DROP CONSTRAINT \"the interval keeps every window within the limit, max_cost too\";
             UPDATE call_budget.call_budget SET interval_us = 55556",
        )
        .await;
    let report = ground.preflight("").await;
    report.says("budget_state", "warn", "budget resume kis-real");
    let interval = report.says("interval", "fail", "more than the limit");
    assert_eq!(interval["figures"]["worst_window"], 20);
    // The refused call of a paused budget takes the lock all the same.
    assert!(report.lines["lock_waits"]["figures"]["calls"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn classes_that_are_missing_or_can_starve_are_told() {
    let ground = Ground::new().await;
    call_budget(&ground.database.url, &words("class set kis-real eod --priority 3 --floor 0")).await.done();
    ground.preflight("").await.says("classes", "warn", "\"eod\" has no floor");
    for class in ["order", "minute", "index", "eod"] {
        call_budget(&ground.database.url, &["class", "delete", "kis-real", class]).await.done();
    }
    ground.preflight("").await.says("classes", "fail", "nobody can acquire");
}

#[tokio::test]
async fn windows_that_leave_no_room_for_the_round_trip_are_told() {
    let ground = Ground::new().await;
    let report = preflight_with(&ground.role.url, "", &[("CALL_BUDGET_RTT_MAX", "50ms")]).await;
    report.says("send_window", "fail", "no time left to be used");
    call_budget(&ground.database.url, &words("budget set kis-real --lookahead 1ms")).await.done();
    ground.preflight("").await.says("lookahead", "warn", "slots go idle");
}

#[tokio::test]
async fn a_role_without_rights_is_told_whom_to_ask() {
    let mut ground = Ground::new().await;
    ground.role = ground.database.role().await;
    let report = ground.preflight("").await;
    report.says("rights", "fail", "call_budget_acquire: its owner can run");
    report.says("schema", "fail", "may not use the schema");
    report.says("round_trip", "fail", "lacks rights");
    report.passes(&["role", "marker", "primary", "fsync", "connections", "lock_holders"]);
    assert_eq!(report.exit, 1);
}

#[tokio::test]
async fn a_role_that_is_more_than_a_client_and_rights_past_the_functions_are_told() {
    let ground = Ground::new().await;
    let owner = preflight(&ground.database.url, "").await;
    owner.says("role", "warn", "superuser");
    owner.says("statement_timeout", "warn", "given up");
    owner.passes(&["rights", "table_rights", "isolation"]);
    call_budget(&ground.database.url, &["access", &ground.role.name, "--as", "admin"]).await.done();
    ground.does(&format!("GRANT UPDATE (interval_us) ON call_budget.call_budget TO {}", ground.quoted())).await;
    let report = ground.preflight("").await;
    report.says("role", "warn", "an admin");
    report.says("table_rights", "fail", "UPDATE on call_budget to");
    ground
        .does(&format!(
            "REVOKE ALL (interval_us) ON call_budget.call_budget FROM {}; GRANT SELECT ON call_budget.call_budget_waiter TO PUBLIC",
            ground.quoted()
        ))
        .await;
    ground.preflight("").await.says("table_rights", "fail", "SELECT on call_budget_waiter to PUBLIC");
}

#[tokio::test]
async fn sessions_of_the_role_that_begin_otherwise_are_told() {
    let ground = Ground::new().await;
    let role = ground.quoted();
    ground
        .does(&format!(
            "ALTER ROLE {role} SET default_transaction_isolation = 'serializable';
             ALTER ROLE {role} RESET statement_timeout; ALTER ROLE {role} SET lock_timeout = '1min';
             ALTER ROLE {role} SET idle_in_transaction_session_timeout = '100ms';
             ALTER ROLE {role} RESET client_connection_check_interval;
             ALTER ROLE {role} SET synchronous_commit = off"
        ))
        .await;
    let report = ground.preflight("").await;
    report.says("isolation", "fail", "older than the lock");
    report.says("statement_timeout", "warn", "have given up: run");
    report.says("lock_timeout", "warn", "works longer");
    report.says("idle_timeout", "warn", "would still wait for");
    report.says("check_interval", "warn", "who have gone");
    report.says("synchronous_commit", "warn", "costs a quiet moment");
    ground.does(&format!("ALTER ROLE {role} SET default_transaction_read_only = on")).await;
    ground.preflight("").await.says("primary", "fail", "default_transaction_read_only");
}

#[tokio::test]
async fn too_few_connections_are_told_of_the_server_the_role_and_the_database() {
    let ground = Ground::new().await;
    ground.preflight("--processes 1000").await.says("connections", "fail", "max_connections");
    ground.does(&format!("ALTER ROLE {} CONNECTION LIMIT 1", ground.quoted())).await;
    let report = ground.preflight("").await;
    let room = report.says("role_connections", "fail", "ALTER ROLE");
    assert_eq!((&room["figures"]["left"], &room["figures"]["need"]), (&1.into(), &2.into()));
    report.says("login", "fail", "no connection left");
    report.says("round_trip", "fail", "no connection left");
    ground
        .does(&format!(
            "ALTER ROLE {} CONNECTION LIMIT -1; ALTER DATABASE {} CONNECTION LIMIT 6",
            ground.quoted(),
            ground.database.name
        ))
        .await;
    ground.preflight("--processes 2").await.says("database_connections", "warn", "old and new ones");
}

#[tokio::test]
async fn a_marker_that_would_outlive_a_crash_and_a_limit_that_would_not_are_told() {
    let ground = Ground::new().await;
    ground.does("ALTER TABLE call_budget.call_budget_marker SET LOGGED").await;
    ground.preflight("").await.says("marker", "fail", "call_budget_marker SET UNLOGGED");
    ground
        .does(
            "ALTER TABLE call_budget.call_budget_marker SET UNLOGGED;
             ALTER TABLE call_budget.call_budget_class SET UNLOGGED",
        )
        .await;
    ground.preflight("").await.says("marker", "fail", "call_budget_class SET LOGGED");
    ground.does("CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS 'SELECT ''3.2.1''::text'").await;
    ground.preflight("").await.says("server", "warn", "proves nothing");
}

#[tokio::test]
async fn a_schema_of_another_contract_or_none_is_told() {
    let ground = Ground::new().await;
    ground
        .does("CREATE OR REPLACE FUNCTION call_budget.call_budget_contract() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 7'")
        .await;
    ground.preflight("").await.says("schema", "fail", "use a newer one");
    let empty = support::empty_database().await;
    let report = preflight(&empty.url, "").await;
    report.says("schema", "fail", "call-budget migrate");
    report.says("marker", "fail", "call-budget migrate");
    report.passes(&["primary", "fsync", "connections"]);
}
