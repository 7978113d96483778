//! `status`: what processes show of their breakers.

use serde_json::json;

use crate::support::{self, TestDatabase};
use crate::{call_budget, database_with_budget, words};

#[tokio::test]
async fn each_breaker_of_each_process_is_shown_with_why_and_until_when() {
    let database = database_with_told_breakers().await;
    let said = call_budget(&database.url, &["status"]).await.done();
    let (_, breakers) = said.split_once("\n\nbreakers\n").unwrap_or_else(|| panic!("{said}"));
    let (breakers, _) = breakers.split_once("\n\nserver").unwrap_or_else(|| panic!("{said}"));
    let lines: Vec<&str> = breakers.lines().collect();
    assert_eq!(lines.len(), 7, "{breakers}");
    assert!(lines[0].starts_with("  kis/real/order  closed  collector 00000000  told "), "{breakers}");
    assert!(lines[0].ends_with(" ago, stale"), "{breakers}");
    assert!(lines[2].starts_with("  kis/real/quote  open, next change in "), "{breakers}");
    assert!(lines[2].contains("  collector 7fffffff  told ") && lines[2].ends_with(" ago"), "{breakers}");
    assert_eq!(
        [lines[1], lines[3], lines[4], lines[6].split(" for ").next().unwrap()],
        [
            "    calls 0 (ok 0, failed 0), rejected 0, failure rate -, slow rate -, rung 0",
            "    why: bad ones in a row",
            "    calls 12 (ok 7, failed 5), rejected 40, failure rate 50%, slow rate 12.5%, rung 2",
            "    surface kis/real/balance held",
        ]
    );
    assert!(
        lines[5].starts_with("    episode for ")
            && lines[5].ends_with(": blocked 4m 50s, reopened 2, probes 3, cause streak")
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 88), "{breakers}");
}

#[tokio::test]
async fn as_json_the_same_is_there_for_programs() {
    let database = database_with_told_breakers().await;
    let report = call_budget(&database.url, &words("status kis-real --json")).await.json();
    assert_eq!(report.get("breakers_unseen"), None);
    let breakers = report["breakers"].as_array().unwrap();
    assert_eq!(breakers.len(), 2);
    let [order, quote] = [&breakers[0], &breakers[1]];
    assert_eq!(
        ["breaker", "process", "application_name", "state", "retry_us", "episode", "stale"]
            .map(|key| order[key].clone()),
        [
            json!("kis/real/order"),
            json!("0000000000000001"),
            json!("collector"),
            json!("closed"),
            json!(null),
            json!(null),
            json!(true)
        ]
    );
    assert_eq!(
        [
            "process",
            "state",
            "failure_rate_ppm",
            "slow_rate_ppm",
            "calls",
            "successes",
            "failures",
            "rejected",
            "rung",
            "stale"
        ]
        .map(|key| quote[key].clone()),
        [
            json!("7fffffffffffffff"),
            json!("open"),
            json!(500_000),
            json!(125_000),
            json!(12),
            json!(7),
            json!(5),
            json!(40),
            json!(2),
            json!(false)
        ]
    );
    let episode = &quote["episode"];
    assert_eq!(
        ["total_open_us", "reopen_count", "probe_count", "cause"].map(|key| episode[key].clone()),
        [json!(290_000_000), json!(2), json!(3), json!("streak")]
    );
    assert!(episode["age_us"].as_i64().unwrap() >= 312_000_000, "{episode}");
    assert_eq!(quote["holds"][0]["why"], json!("EGW00215"));
}

#[tokio::test]
async fn a_schema_without_breakers_and_a_role_that_may_not_see_them_show_the_rest_and_the_way_out() {
    let database = database_with_budget().await;
    let said = call_budget(&database.url, &["status"]).await.done();
    assert!(said.contains("nothing was told within the last hour"), "{said}");

    let mut database = database;
    let role = database.role().await;
    call_budget(&database.url, &["access", &role.name, "--as", "client"]).await.done();
    let revoke = format!("REVOKE SELECT ON call_budget.call_budget_breaker_status FROM \"{}\"", role.name);
    database.client.batch_execute(&revoke).await.unwrap();
    let said = call_budget(&role.url, &["status"]).await.done();
    assert!(said.contains("call-budget access ROLE --as client") && said.contains("order"), "{said}");

    database.client.batch_execute("DROP VIEW call_budget.call_budget_breaker_status").await.unwrap();
    let said = call_budget(&role.url, &["status"]).await.done();
    assert!(said.contains("call-budget migrate") && said.contains("order"), "{said}");
    let report = call_budget(&role.url, &words("status --json")).await.json();
    assert_eq!(report["breakers"], json!([]));
    assert!(report["breakers_unseen"].as_str().unwrap().contains("call-budget migrate"), "{report}");
    database.client.batch_execute(&format!("DROP OWNED BY \"{}\"", role.name)).await.unwrap();
}

/// One process told of an open breaker a moment ago, another of a closed one two minutes ago.
async fn database_with_told_breakers() -> TestDatabase {
    let database = database_with_budget().await;
    let collector = support::connect(&database.url).await;
    let publish = "SELECT call_budget.call_budget_publish_breakers($1, $2::text::jsonb)";
    collector.batch_execute("SET application_name = 'collector'").await.unwrap();
    let closed = json!([{"breaker": "kis/real/order", "state": "closed"}]);
    collector.execute(publish, &[&1_i64, &closed.to_string()]).await.unwrap();
    let ages = "UPDATE call_budget.call_budget_breaker SET published_us = published_us - 120000000";
    collector.execute(ages, &[]).await.unwrap();
    let open = json!([{
        "breaker": "kis/real/quote", "state": "open", "why": "bad ones in a row", "retry_us": 300_000_000, "rung": 2,
        "failure_rate_ppm": 500_000, "slow_rate_ppm": 125_000, "successes": 7, "failures": 5, "rejected": 40,
        "episode_us": 312_000_000, "total_open_us": 290_000_000, "reopen_count": 2, "probe_count": 3, "cause": "streak",
        "holds": [{"scope": "surface kis/real/balance", "why": "EGW00215", "left_us": 400_000_000}]
    }]);
    collector.execute(publish, &[&i64::MAX, &open.to_string()]).await.unwrap();
    database
}
