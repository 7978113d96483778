//! On a real PostgreSQL: what goes wrong there, and what a lane looks like from the other side.

use std::time::Instant;

use call_budget::{AcquireError, CallBudget, Code, Settings};
use tokio::task::JoinSet;

use crate::support::{self, TestDatabase};
use crate::{Duration, ms, send, within};

const PASSWORD: &str = "not-the-secret";

/// A budget that many calls can be made under.
async fn database(units: i32) -> TestDatabase {
    let database = support::database().await;
    let interval_us = 1_300_000 / units;
    database
        .client
        .batch_execute(&format!(
            "SELECT call_budget.call_budget_set('kis-real', {units}, 1000000, 200000, 50000, 1, {interval_us}, 60000);
             SELECT call_budget.call_budget_class_set('kis-real', 'order', 0, 0)"
        ))
        .await
        .unwrap();
    database
}

fn budget(url: &str) -> CallBudget {
    let mut settings = Settings::default();
    (settings.enabled, settings.database_url) = (true, Some(url.into()));
    settings.application_name = "call-budget under test".into();
    // A busy machine is not what these tests are about.
    settings.rtt_max = ms(190);
    CallBudget::new(&settings).unwrap()
}

/// The error of one acquire, which holds no password.
async fn error(url: &str) -> AcquireError {
    let mut settings = Settings::default();
    (settings.enabled, settings.database_url) = (true, Some(url.into()));
    settings.store_outage_max = Duration::ZERO;
    let budget = CallBudget::new(&settings).unwrap();
    let began = Instant::now();
    let error = budget.acquire("kis-real", "order").await.unwrap_err();
    assert!(began.elapsed() < ms(5000), "{:?}", began.elapsed());
    let mut shown = format!("{error} {error:?}");
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        shown += &format!(" {cause} {cause:?}");
        source = cause.source();
    }
    assert!(!shown.contains(PASSWORD) && !shown.contains("secret@"), "{shown}");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error
}

#[tokio::test]
async fn a_lane_keeps_one_row_however_often_it_asks() {
    let database = database(13).await;
    let budget = budget(&database.url);
    let mut tasks = JoinSet::new();
    for _ in 0..12 {
        let budget = budget.clone();
        tasks.spawn(async move { send(budget.acquire("kis-real", "order").await) });
    }
    let mut served = 0;
    while let Some(sent) = tasks.join_next().await {
        sent.unwrap();
        served += 1;
        if served % 4 == 0 {
            kill_sessions(&database).await;
        }
    }
    let counters = budget.counters();
    assert!(counters.store_calls >= 12, "{counters:?}");
    let lanes: i64 = database
        .client
        .query_one("SELECT count(*) FROM call_budget.call_budget_waiter WHERE budget = 'kis-real'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(lanes, 1);
}

#[tokio::test]
async fn a_session_killed_between_two_calls_costs_at_most_a_retry() {
    let database = database(1000).await;
    let budget = budget(&database.url);
    for _ in 0..5 {
        send(budget.acquire("kis-real", "order").await);
        assert_eq!(kill_sessions(&database).await, 1);
        let began = Instant::now();
        send(budget.acquire("kis-real", "order").await);
        assert!(began.elapsed() < ms(1300), "{:?}", began.elapsed());
    }
    assert!(budget.counters().store_failures <= 5);
}

#[tokio::test]
async fn a_role_whose_sessions_are_repeatable_read_works_all_the_same() {
    let mut database = database(1000).await;
    let role = database.role().await;
    database
        .client
        .batch_execute(&format!(
            "GRANT USAGE ON SCHEMA call_budget TO \"{0}\";
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA call_budget TO \"{0}\";
             ALTER ROLE \"{0}\" SET default_transaction_isolation = 'repeatable read'",
            role.name
        ))
        .await
        .unwrap();
    let budget = budget(&role.url);
    for _ in 0..3 {
        send(budget.acquire("kis-real", "order").await);
    }
}

#[tokio::test]
async fn a_database_without_the_schema_says_to_migrate() {
    let database = support::empty_database().await;
    let error = error(&database.url).await;
    assert_eq!(error.code(), Code::Misconfigured);
    assert!(error.to_string().contains("call-budget migrate"), "{error}");
}

#[tokio::test]
async fn a_schema_of_another_contract_is_refused_by_name() {
    let database = database(1000).await;
    let two =
        "CREATE OR REPLACE FUNCTION call_budget.call_budget_contract() RETURNS integer LANGUAGE sql AS 'SELECT 2'";
    database.client.batch_execute(two).await.unwrap();
    let error = error(&database.url).await;
    assert_eq!(error.code(), Code::Misconfigured);
    let text = error.to_string();
    assert!(text.contains("contract 2") && text.contains("speaks 1") && text.contains("call-budget migrate"), "{text}");
}

#[tokio::test]
async fn a_role_without_rights_hears_how_to_get_them() {
    let mut database = database(1000).await;
    let role = database.role().await;
    let error = error(&role.url).await;
    assert_eq!(error.code(), Code::Misconfigured);
    assert!(error.to_string().contains("call-budget access"), "{error}");
}

/// Passwords rotate, so it is an outage and no permanent error.
#[tokio::test]
async fn a_refused_password_is_an_outage_that_says_what_to_check() {
    let mut database = database(1000).await;
    let role = database.role().await;
    let error = error(&role.url.replacen(":secret@", &format!(":{PASSWORD}@"), 1)).await;
    assert_eq!((error.code(), error.stage().unwrap().as_str()), (Code::StoreUnavailable, "startup"));
    assert!(error.to_string().contains("check user and password"), "{error}");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_named_as_the_mistake() {
    let database = support::empty_database().await;
    let error = error(&database.url.replace(&database.name, "no_such_database")).await;
    assert_eq!(error.code(), Code::Misconfigured);
    assert!(error.to_string().contains("set another dbname"), "{error}");
}

#[tokio::test]
async fn no_server_is_an_outage_that_says_what_to_check() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = error(&format!("postgresql://u:{PASSWORD}@127.0.0.1:{port}/d")).await;
    assert_eq!((error.code(), error.stage().unwrap().as_str()), (Code::StoreUnavailable, "connect"));
    let text = error.to_string();
    assert!(text.contains("check that PostgreSQL runs") && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_name_that_no_database_can_hold_is_the_callers_mistake() {
    let database = database(1000).await;
    let error = budget(&database.url).acquire("kis\0real", "order").await.unwrap_err();
    assert_eq!(error.code(), Code::Misconfigured, "{error}");
    let error = budget(&database.url).acquire(&"가".repeat(300), "'\"; DROP").await.unwrap_err();
    assert_eq!(error.code(), Code::UnknownBudget, "{error}");
}

/// The row is held by somebody else for longer than a store call may take.
#[tokio::test]
async fn a_row_that_somebody_holds_ends_by_max_wait_and_is_served_once_let_go() {
    let mut database = database(1000).await;
    let budget = budget(&database.url);
    send(budget.acquire("kis-real", "order").await);
    let holding = database.client.transaction().await.unwrap();
    holding.batch_execute("SELECT FROM call_budget.call_budget FOR UPDATE").await.unwrap();
    let began = Instant::now();
    let error = budget.acquire_with("kis-real", "order", within(ms(1500))).await.unwrap_err();
    let took = began.elapsed();
    assert!((ms(1500)..ms(2500)).contains(&took), "{took:?}");
    assert_eq!((error.code(), error.stage().unwrap().as_str()), (Code::Uncertain, "query"));
    assert!(error.lost() >= 1, "{error:?}");
    holding.rollback().await.unwrap();
    send(budget.acquire("kis-real", "order").await);
}

/// Ends the sessions of the library in this database, and waits until they are gone.
async fn kill_sessions(database: &TestDatabase) -> i64 {
    let sql = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'call-budget under test'";
    database.client.query_one(sql, &[]).await.unwrap().get(0)
}
