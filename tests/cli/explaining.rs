//! `explain` and `status`: the figures that operators decide by.

use serde_json::json;

use crate::support;
use crate::{call_budget, database_with_budget, words};

#[tokio::test]
async fn explain_shows_the_bound_in_the_numbers_of_the_design() {
    let database = database_with_budget().await;
    let explained = call_budget(&database.url, &words("explain kis-real --json")).await.json();
    assert_eq!(explained["interval_us"], json!(61_174));
    assert_eq!(explained["safe_interval_us"], json!(61_174));
    assert_eq!(explained["room_us"], json!(18 * 61_174));
    assert_eq!(explained["spread_with_clocks_us"], json!(1_101_100));
    assert_eq!(explained["safe"], json!(true));
    assert_eq!(explained["worst_window"], json!(18));
    assert_eq!(explained["lowered_limit_in_force_after_us"], json!(1_110_000));
    let near = |value: &serde_json::Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 0.005;
    assert!(near(&explained["rate_per_s"], 16.35), "{explained}");
    assert!(near(&explained["vendor_rate_per_s"], 18.0), "{explained}");
    assert!(near(&explained["share_of_vendor_rate"], 0.908), "{explained}");
    let classes = explained["classes"].as_array().unwrap();
    assert!(near(&classes[0]["floor_per_s"], 4.09), "{explained}");
    assert_eq!((&classes[0]["can_starve"], &classes[1]["can_starve"]), (&json!(false), &json!(true)));

    let text = call_budget(&database.url, &words("explain kis-real")).await.done();
    for words in
        ["61ms 174µs", "16.35/s, 90.8% of the vendor's 18/s", "18 units of 18", "1s 110ms", "4.09/s", "can starve"]
    {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[tokio::test]
async fn explain_counts_the_largest_cost_and_a_slower_interval() {
    let database = database_with_budget().await;
    call_budget(&database.url, &words("budget set kis-real --max-cost 3 --interval 200ms")).await.done();
    let explained = call_budget(&database.url, &words("explain kis-real --json")).await.json();
    assert_eq!(explained["safe_interval_us"], json!(68_820));
    // Six slots fit into 1.1 s, and the last of them may cost 3.
    assert_eq!(explained["worst_window"], json!(8));
    assert_eq!(explained["rate_per_s"], json!(5.0));
}

#[tokio::test]
async fn status_counts_grants_and_waits_by_class() {
    let database = database_with_budget().await;
    // Slots a minute apart: whoever waits is due back after the longest nap of 5 s, not before we have looked.
    call_budget(&database.url, &words("budget set kis-real --limit 1 --window 60s")).await.done();
    for (class, lane) in [("order", 1), ("eod", 2)] {
        // The first call of all finds no marker and is fenced: both wait.
        let acquire = format!(
            "SELECT cardinality(waits_us) FROM call_budget.call_budget_acquire('kis-real', '{class}', {lane}, '{{1,1}}', 600000000, 7)"
        );
        assert_eq!(database.client.query_one(&acquire, &[]).await.unwrap().get::<_, i32>(0), 0);
    }
    let status = call_budget(&database.url, &words("status kis-real --json")).await.json();
    let budget = &status["budgets"][0];
    assert_eq!(budget["fences"], json!(1));
    for class in budget["classes"].as_array().unwrap() {
        assert_eq!((&class["waiting_lanes"], &class["waiting_units"]), (&json!(1), &json!(2)), "{class}");
        assert_eq!((&class["granted"], &class["share"]), (&json!(0), &json!(null)));
    }

    database
        .client
        .execute("UPDATE call_budget.call_budget_class SET granted = CASE name WHEN 'order' THEN 30 ELSE 10 END", &[])
        .await
        .unwrap();
    let status = call_budget(&database.url, &words("status --json")).await.json();
    assert_eq!(status["budgets"][0]["classes"][0]["share"], json!(0.75));
    let text = call_budget(&database.url, &words("status")).await.done();
    assert!(text.contains("75.0%") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[tokio::test]
async fn status_shows_the_server_its_processes_and_the_oldest_snapshot() {
    let database = database_with_budget().await;
    let report = support::connect(&database.url).await;
    report
        .batch_execute("SET application_name = 'long report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    let server = call_budget(&database.url, &words("status --json")).await.json()["server"].clone();
    assert_eq!(server["oldest_snapshot"]["application_name"], json!("long report"));
    assert!(server["oldest_snapshot"]["age_us"].as_i64().unwrap() > 0);
    let processes = server["processes"].as_array().unwrap();
    assert!(processes.contains(&json!({"application_name": "long report", "sessions": 1})), "{server}");
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        let shown: String = database.client.query_one(&format!("SHOW {setting}"), &[]).await.unwrap().get(0);
        assert_eq!(server[setting], json!(shown));
    }
    report.batch_execute("ROLLBACK").await.unwrap();
    assert!(call_budget(&database.url, &words("status")).await.done().contains("none held"));
}
