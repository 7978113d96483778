//! How a command reaches its database, and what it says when it cannot.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::call_budget;
use crate::support;

#[tokio::test]
async fn a_database_without_the_schema_is_named_with_the_way_out() {
    let database = support::empty_database().await;
    for command in
        [["budget", "list"].as_slice(), &["budget", "set", "x", "--limit", "1", "--window", "1s"], &["status"]]
    {
        let sentence = format!("the database {:?} has no call-budget schema", database.name);
        call_budget(&database.url, command).await.refused(3, &[&sentence, "call-budget migrate"]);
    }
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'call_budget'";
    assert_eq!(database.client.query_one(schemas, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_schema_of_another_contract_is_refused_by_its_number() {
    let database = support::database().await;
    for (contract, way_out) in [(2, "newer call-budget"), (0, "call-budget migrate")] {
        let other = format!(
            "CREATE OR REPLACE FUNCTION call_budget.call_budget_contract() RETURNS integer
             LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT {contract}'"
        );
        database.client.batch_execute(&other).await.unwrap();
        let speaks = format!("speaks contract {contract}, this call-budget speaks 1");
        call_budget(&database.url, &["budget", "list"]).await.refused(3, &[&speaks, way_out]);
    }
}

#[tokio::test]
async fn a_wrong_password_user_or_database_is_named_and_no_password_is_shown() {
    let server = tokio::task::spawn_blocking(support::server).await.unwrap();
    let port = server.port();
    let good = server.url("postgres");
    let password = good.split([':', '@']).nth(2).unwrap();
    let cases = [
        (
            good.replace(password, "hunter2"),
            [format!("127.0.0.1:{port} refuses the password of user \"postgres\""), "28P01".into()],
        ),
        (good.replace("//postgres:", "//nobody:"), ["user \"nobody\"".into(), "check user and password".into()]),
        (server.url("elsewhere"), [format!("127.0.0.1:{port} has no database \"elsewhere\""), "create it".into()]),
        (
            format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable"),
            [format!("127.0.0.1:{port} wants a password for user \"postgres\""), "password_file".into()],
        ),
    ];
    for (url, sentence) in cases {
        let refused = call_budget(&url, &["budget", "list"]).await;
        refused.refused(3, &[&sentence[0], &sentence[1]]);
        assert!(!refused.stderr.contains("hunter2") && !refused.stderr.contains(password), "{}", refused.stderr);
    }
    tokio::task::spawn_blocking(|| server.stop().unwrap()).await.unwrap();
}

#[tokio::test]
async fn where_no_server_answers_its_address_and_the_stage_are_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = call_budget(&format!("postgresql://me:hunter2@127.0.0.1:{port}/prices"), &["status"]).await;
    let sentence = format!("no connection to 127.0.0.1:{port}: refused: check that PostgreSQL runs there");
    refused.refused(3, &[&sentence, "stage connect, after 0."]);
    assert!(!refused.stderr.contains("hunter2"));
    call_budget("postgresql://me@no-such-host.invalid/prices", &["status"])
        .await
        .refused(3, &["\"no-such-host.invalid\"", "check", "stage dns, after"]);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let started = Instant::now();
    let refused = call_budget(&format!("postgresql://me@127.0.0.1:{port}/prices"), &["status"]).await;
    refused.refused(3, &[&format!("127.0.0.1:{port} is connected and does not answer"), "stage tls, after 5."]);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_url_that_asks_for_what_is_not_there_is_a_usage_error() {
    for (url, sentence) in [
        ("postgresql://me@127.0.0.1/db?sslmode=prefer", "plain text"),
        ("postgresql://me@127.0.0.1/db?sslmod=disable", "did you mean \"sslmode\"?"),
        ("mysql://me@127.0.0.1/db", "must begin with postgresql://"),
    ] {
        call_budget(url, &["status"]).await.refused(2, &[sentence]);
    }
}
