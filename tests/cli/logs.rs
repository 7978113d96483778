//! How events are written: as lines for people, or as objects for programs.

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::{self, TestDatabase};

/// A database at whose every login the server warns, as of a changed collation.
async fn warning_database() -> TestDatabase {
    let database = support::database().await;
    let sql = "UPDATE pg_database SET datcollversion = 'another' WHERE datname = current_database()";
    database.client.batch_execute(sql).await.unwrap();
    database
}

/// `call-budget ARGUMENTS status` with these variables; all events of the program are asked for.
async fn status(database: &TestDatabase, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_call-budget"))
        .args(arguments)
        .arg("status")
        .env("DATABASE_URL", &database.url)
        .env("RUST_LOG", "call_budget=info")
        .env_remove("CALL_BUDGET_LOG_FORMAT")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output();
    tokio::time::timeout(std::time::Duration::from_secs(30), run).await.expect("it ends").unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn json_is_one_object_a_line_with_name_level_moment_in_utc_and_the_fields_beside() {
    let database = warning_database().await;
    let lines = lines(&status(&database, &["--log-format", "json"], &[]).await);
    let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warned = events.iter().find(|event| event["message"] == "call_budget_store_warning");
    let warned = warned.unwrap_or_else(|| panic!("it warns: {lines:#?}"));
    assert_eq!(warned["level"], "INFO");
    assert_eq!(warned["sqlstate"], "01000");
    assert!(warned["notice"].as_str().unwrap().contains("collation"), "{warned}");
    let moment = warned["timestamp"].as_str().unwrap();
    assert!(moment.len() >= 20 && &moment[10..11] == "T" && moment.ends_with('Z'), "{moment}");
    assert_eq!(warned["target"], "call_budget::store::session");
}

#[tokio::test]
async fn the_command_line_counts_over_the_variable_and_that_over_the_file() {
    let database = warning_database().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.toml");
    std::fs::write(&file, "log_format = \"json\"").unwrap();
    let file = file.to_str().unwrap();
    let text = [("CALL_BUDGET_LOG_FORMAT", "text"), ("CALL_BUDGET_CONFIG", file)];
    for (arguments, variables, json) in [
        (&[][..], &[][..], false),
        (&[], &[("CALL_BUDGET_CONFIG", file)], true),
        (&[], &text, false),
        (&["--log-format", "json"], &text, true),
        (&[], &[("CALL_BUDGET_LOG_FORMAT", "json")], true),
    ] {
        let lines = lines(&status(&database, arguments, variables).await);
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line.starts_with('{') == json),
            "{variables:?}: {lines:?}"
        );
    }
    let own = tokio::process::Command::new(env!("CARGO_BIN_EXE_call-budget"))
        .args(["status", "--config", file])
        .env("DATABASE_URL", &database.url)
        .env("RUST_LOG", "call_budget=info")
        .output();
    let own = lines(&own.await.unwrap());
    assert!(!own.is_empty() && own.iter().all(|line| line.starts_with('{')), "{own:?}");
}

#[tokio::test]
async fn another_format_is_refused_with_the_known_ones() {
    let database = support::database().await;
    let refused = status(&database, &["--log-format", "xml"], &[]).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("xml") && said.contains("text, json"), "{said}");
}
