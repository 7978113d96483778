//! `budget` and `class`: what is set, kept and shown.

use serde_json::json;

use crate::support;
use crate::{call_budget, database_with_budget, somebody_waits_for_a_lock, words};

#[tokio::test]
async fn a_new_budget_gets_the_interval_of_the_bound_and_the_defaults() {
    let database = support::database().await;
    let said = call_budget(&database.url, &words("budget set kis-real --limit 18 --window 1s")).await.done();
    assert!(said.contains("61ms 174µs (16.35/s)"), "{said}");
    let shown = call_budget(&database.url, &words("budget show kis-real --json")).await.json();
    for (setting, value) in [
        ("limit", 18),
        ("window_us", 1_000_000),
        ("send_window_us", 50_000),
        ("arrival_jitter_us", 50_000),
        ("max_cost", 1),
        ("interval_us", 61_174),
        ("lookahead_us", 60_000),
        ("version", 1),
    ] {
        assert_eq!(shown[setting], json!(value), "{setting}");
    }
}

#[tokio::test]
async fn what_is_not_given_keeps_its_value_and_the_interval_follows_the_limit() {
    let database = database_with_budget().await;
    let set = async |flags: &str| {
        call_budget(&database.url, &words(&format!("budget set kis-real --json {flags}"))).await.json()
    };
    let lowered = set("--limit 17 --arrival-jitter 30ms").await;
    assert_eq!((&lowered["limit"], &lowered["interval_us"]), (&json!(17), &json!(63_594)));
    assert_eq!(lowered["window_us"], json!(1_000_000));

    let slowed = set("--interval 100ms").await;
    assert_eq!((&slowed["interval_us"], &slowed["arrival_jitter_us"]), (&json!(100_000), &json!(30_000)));
    // A chosen interval stays for as long as it is safe.
    assert_eq!(set("--limit 18").await["interval_us"], json!(100_000));
    assert_eq!(set("--limit 9").await["interval_us"], json!(120_121));
    assert_eq!(set("--limit 9 --max-cost 3").await["interval_us"], json!(154_441));
}

#[tokio::test]
async fn a_change_made_while_another_waits_is_not_undone() {
    let mut database = database_with_budget().await;
    let blocker = database.client.transaction().await.unwrap();
    let other = "SELECT call_budget.call_budget_set('kis-real', 18, 1000000, 50000, 10000, 1, 61174, 60000)";
    blocker.execute(other, &[]).await.unwrap();
    let watcher = support::connect(&database.url).await;
    let (set, ()) =
        tokio::join!(call_budget(&database.url, &["budget", "set", "kis-real", "--limit", "17", "--json"]), async {
            somebody_waits_for_a_lock(&watcher).await;
            blocker.commit().await.unwrap();
        });
    let set = set.json();
    assert_eq!((&set["limit"], &set["arrival_jitter_us"]), (&json!(17), &json!(10_000)));
}

#[tokio::test]
async fn a_class_is_created_changed_and_deleted() {
    let database = database_with_budget().await;
    let run = async |command: &str| call_budget(&database.url, &words(command)).await;
    let changed = run("class set kis-real order --priority 2 --json").await.json();
    assert_eq!((&changed["priority"], &changed["floor_ppm"]), (&json!(2), &json!(250_000)));
    let changed = run("class set kis-real order --floor 0.333333 --json").await.json();
    assert_eq!((&changed["priority"], &changed["floor_ppm"]), (&json!(2), &json!(333_333)));

    run("class delete kis-real eod").await.done();
    let classes = run("class list kis-real --json").await.json();
    assert_eq!(classes.as_array().unwrap().len(), 1);
    assert_eq!(classes[0]["name"], json!("order"));
}

#[tokio::test]
async fn odd_names_are_names_and_none_is_another() {
    let database = support::database().await;
    let longest = "가".repeat(100);
    let names = [r#"say "hi""#, "it's", "한국투자 실전", "🚀", "a;b--", "%s\\n", " ", "Kis-Real", "kis-real", &longest];
    for name in names {
        call_budget(&database.url, &["budget", "set", name, "--limit", "18", "--window", "1s"]).await.done();
        call_budget(&database.url, &["class", "set", name, name, "--priority", "0", "--floor", "1"]).await.done();
        let shown = call_budget(&database.url, &["budget", "show", name, "--json"]).await.json();
        assert_eq!((&shown["name"], &shown["classes"][0]["name"]), (&json!(name), &json!(name)));
        call_budget(&database.url, &["budget", "show", name]).await.done();
    }
    let listed = call_budget(&database.url, &["budget", "list", "--json"]).await.json();
    assert_eq!(listed.as_array().unwrap().len(), names.len());
}

#[tokio::test]
async fn the_same_name_twice_is_one_budget_and_one_class() {
    let database = database_with_budget().await;
    for command in ["budget set kis-real --limit 18 --window 1s", "class set kis-real order --priority 0 --floor 0.25"]
    {
        call_budget(&database.url, &words(command)).await.done();
    }
    let shown = call_budget(&database.url, &words("budget list --json")).await.json();
    assert_eq!(shown.as_array().unwrap().len(), 1);
    let classes = call_budget(&database.url, &words("class list kis-real --json")).await.json();
    assert_eq!(classes.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn lists_line_up_within_80_columns() {
    let database = database_with_budget().await;
    let long = "장".repeat(100);
    call_budget(&database.url, &["budget", "set", &long, "--limit", "1000000", "--window", "24h"]).await.done();
    call_budget(&database.url, &["class", "set", &long, &long, "--priority", "1000"]).await.done();
    for arguments in [words("budget list"), words("class list kis-real"), vec!["class", "list", &long]] {
        for line in call_budget(&database.url, &arguments).await.done().lines() {
            let columns: usize = line.chars().map(|c| if c == '장' { 2 } else { 1 }).sum();
            assert!(columns <= 80, "{line}");
        }
    }
}
