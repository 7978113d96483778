//! What processes show of their breakers: who may, how often, how much, and for how long it is seen.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::store::{BUDGET, KIS, START_US, Store};
use crate::support;

#[tokio::test]
async fn a_client_role_may_publish_and_see_what_was_published_and_touch_nothing_else() {
    let mut database = support::database().await;
    let role = database.role().await;
    let grants = format!(
        "GRANT USAGE ON SCHEMA call_budget TO \"{0}\";
         GRANT EXECUTE ON FUNCTION call_budget.call_budget_publish_breakers TO \"{0}\";
         GRANT SELECT ON call_budget.call_budget_breaker_status TO \"{0}\"",
        role.name
    );
    database.client.batch_execute(&grants).await.unwrap();
    let client = support::connect(&role.url).await;
    assert_eq!(publish(&client, 1, json!([open("a"), open("b")])).await.unwrap(), 0);
    assert_eq!(shown(&client).await.len(), 2);
    for refused in [
        "SELECT FROM call_budget.call_budget_breaker",
        "DELETE FROM call_budget.call_budget_breaker",
        "UPDATE call_budget.call_budget_breaker SET why = ''",
        "SELECT call_budget.call_budget_one_line('')",
        "SELECT FROM call_budget.call_budget_status",
    ] {
        let error = client.query(refused, &[]).await.expect_err(refused);
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{refused}: {error:?}");
    }
    drop(client);
    database.client.batch_execute(&format!("DROP OWNED BY \"{}\"", role.name)).await.unwrap();
}

#[tokio::test]
async fn a_process_is_heard_once_a_second_and_told_how_long_that_takes() {
    let store = Store::new(KIS).await;
    let publish_at = async |process: i64, at_us: i64, breaker: &str| {
        store.at(at_us).await;
        publish(store.client(), process, json!([open(breaker)])).await.unwrap()
    };
    assert_eq!(publish_at(1, START_US, "first").await, 0);
    assert_eq!(publish_at(1, START_US, "refused").await, 1_000_000);
    assert_eq!(publish_at(1, START_US + 999_999, "refused").await, 1);
    assert_eq!(publish_at(2, START_US, "another's").await, 0, "each process has its own second");
    assert_eq!(names(store.client(), 1).await, ["first"], "a refusal changes nothing");
    assert_eq!(publish_at(1, START_US + 1_000_000, "second").await, 0);
    assert_eq!(names(store.client(), 1).await, ["second"], "what it does not name any longer is gone");
    assert_eq!(names(store.client(), 2).await, ["another's"]);
    assert_eq!(
        publish_at(1, START_US - 3_600_000_000, "earlier").await,
        0,
        "a clock that went back keeps nobody silent"
    );
}

#[tokio::test]
async fn of_calls_of_one_process_at_once_no_two_count_within_a_second() {
    let database = support::database().await;
    publish(&database.client, 1, json!([open("a"), open("b")])).await.unwrap();
    let clients = futures_util::future::join_all((0..8).map(|_| support::connect(&database.url))).await;
    database.client.batch_execute("UPDATE call_budget.call_budget_breaker SET published_us = 1").await.unwrap();
    let calls = clients.iter().map(|client| publish(client, 1, json!([open("b"), open("c"), open("a")])));
    let waits: Vec<i64> =
        futures_util::future::join_all(calls).await.into_iter().map(|wait| wait.expect("no deadlock")).collect();
    assert_eq!(waits.iter().filter(|wait| **wait == 0).count(), 1, "{waits:?}");
    assert!(waits.iter().all(|wait| (0..=1_000_000).contains(wait)), "{waits:?}");
}

#[tokio::test]
async fn what_is_too_much_is_refused_and_a_text_is_cut_to_one_line() {
    let database = support::database().await;
    let client = &database.client;
    let refused = async |process: i64, breakers: Value| {
        let error = publish(client, process, breakers.clone()).await.expect_err(&breakers.to_string());
        let refusal = error.as_db_error().expect("the server says why");
        (refusal.code().code().to_owned(), refusal.constraint().unwrap_or_default().to_owned())
    };
    let with = |key: &str, value: Value| {
        let mut breaker = open("a");
        breaker[key] = value;
        json!([breaker])
    };
    let many: Vec<Value> = (0..101).map(|n| open(&format!("{n}"))).collect();
    for (process, breakers) in [(1, json!([])), (1, json!({})), (1, json!(many)), (-1, json!([open("a")]))] {
        assert_eq!(refused(process, breakers).await.0, "CB001");
    }
    let count = "a count is between 0 and a quadrillion";
    for (key, value, sentence) in [
        ("breaker", json!("x".repeat(101)), "a name has 1 to 100 characters and no control character"),
        ("breaker", json!("a\nb"), "a name has 1 to 100 characters and no control character"),
        ("state", json!("x".repeat(31)), "a state and a cause are words of a to z, 30 characters at most"),
        ("cause", json!("\u{1b}[2J"), "a state and a cause are words of a to z, 30 characters at most"),
        ("failure_rate_ppm", json!(1_000_001), "a rate is between 0 and 1,000,000 parts"),
        ("slow_rate_ppm", json!(-1), "a rate is between 0 and 1,000,000 parts"),
        ("retry_us", json!(315_576_000_000_001_i64), "a duration is between 0 and 10 years"),
        ("rejected", json!(1_000_000_000_000_001_i64), count),
        ("rung", json!(-1), count),
        ("cause", json!(null), "an episode is told as a whole or not at all"),
    ] {
        assert_eq!(refused(1, with(key, value.clone())).await, ("23514".into(), sentence.into()), "{key} {value}");
    }
    for (key, value) in [("retry_us", json!("soon")), ("holds", json!({"scope": "a"})), ("holds", json!([1]))] {
        assert!(refused(1, with(key, value)).await.0.starts_with("22"), "{key}");
    }
    assert_eq!(shown(client).await.len(), 0, "what is refused leaves nothing behind");

    let mut long = open(&"가".repeat(100));
    long["why"] = json!("bad\u{1b}\n".repeat(1000));
    long["holds"] =
        json!(vec![json!({"scope": "s\u{7}".repeat(1000), "why": "나".repeat(300), "left_us": i64::MAX}); 50]);
    let many: Vec<Value> = (0..99).map(|n| open(&format!("{n}"))).chain([long]).collect();
    assert_eq!(publish(client, 1, json!(many)).await.unwrap(), 0);
    let shown = shown(client).await;
    let long = shown.last().unwrap();
    assert_eq!((shown.len(), long["why"].as_str().unwrap()), (100, &*"bad  ".repeat(40)));
    let holds = long["holds"].as_array().unwrap();
    assert_eq!((holds.len(), holds[0]["scope"].as_str().unwrap()), (20, &*"s ".repeat(100)));
    assert_eq!(holds[0]["why"].as_str().unwrap(), "나".repeat(200));
}

#[tokio::test]
async fn what_is_left_and_what_has_passed_is_reckoned_to_now() {
    let database = support::database().await;
    let client = &database.client;
    client.batch_execute("SET application_name = 'collector'").await.unwrap();
    publish(client, 7, json!([open("a"), {"breaker": "b", "state": "closed"}])).await.unwrap();
    grows_older(client, 10_000_000).await;
    let breakers = shown(client).await;
    let a = &breakers[0];
    // A slow machine may add up to 9 s.
    let within = |key: &str, from: i64| {
        let us = a[key].as_i64().unwrap();
        assert!((from..from + 9_000_000).contains(&us), "{key} {us}");
    };
    within("age_us", 10_000_000);
    within("episode_age_us", 17_000_000);
    within("retry_us", 23_000_000 - 10_000_000 - 9_000_000);
    let left_us = a["holds"][0]["left_us"].as_i64().unwrap();
    assert!((1..50_000_000).contains(&left_us), "{left_us}");
    assert_eq!(a["holds"][1]["left_us"], json!(0));
    assert_eq!(
        ["application_name", "state", "why", "calls", "total_open_us", "stale"].map(|key| a[key].clone()),
        [json!("collector"), json!("open"), json!("said so"), json!(7), json!(3_000_000), json!(false)]
    );
    let b = &breakers[1];
    assert_eq!(
        ["retry_us", "episode_age_us", "failure_rate_ppm"].map(|key| b[key].clone()),
        [Value::Null, Value::Null, Value::Null]
    );
    assert_eq!(b["holds"], json!([]));
}

#[tokio::test]
async fn after_a_minute_it_is_stale_and_after_an_hour_it_is_seen_no_more() {
    let database = support::database().await;
    let client = &database.client;
    publish(client, 1, json!([open("a")])).await.unwrap();
    let stale = async || shown(client).await.first().map(|breaker| breaker["stale"].as_bool().unwrap());
    grows_older(client, 30_000_000).await;
    assert_eq!(stale().await, Some(false));
    grows_older(client, 31_000_000).await;
    assert_eq!(stale().await, Some(true));
    grows_older(client, 3_500_000_000).await;
    assert_eq!(stale().await, Some(true));
    grows_older(client, 100_000_000).await;
    assert_eq!(stale().await, None);
    // A clock that was set back makes it no younger.
    grows_older(client, -7_200_000_000).await;
    assert_eq!(stale().await, Some(true));
}

#[tokio::test]
async fn whoever_comes_takes_away_what_is_an_hour_old() {
    let database = support::database().await;
    let client = &database.client;
    for process in 1..=3 {
        publish(client, process, json!([open("a")])).await.unwrap();
    }
    grows_older(client, 3_601_000_000).await;
    publish(client, 4, json!([open("a")])).await.unwrap();
    let left = "SELECT array_agg(process ORDER BY process) FROM call_budget.call_budget_breaker";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, Vec<i64>>(0), [4]);
}

#[tokio::test]
async fn it_waits_for_no_budget_and_is_written_to_no_log() {
    let mut store = Store::new(KIS).await;
    let other = store.connect().await;
    let blocker = store.client_mut().transaction().await.unwrap();
    blocker.execute("SELECT FROM call_budget.call_budget WHERE name = $1 FOR UPDATE", &[&BUDGET]).await.unwrap();
    other.batch_execute("SET contract.now_us = 0").await.unwrap();
    let published = timeout(Duration::from_secs(10), publish(&other, 1, json!([open("a")]))).await;
    assert_eq!(published.expect("it waits for the budget's lock").unwrap(), 0);
    drop(blocker);
    let sql = "SELECT relpersistence::text FROM pg_class WHERE oid = 'call_budget.call_budget_breaker'::regclass";
    let persistence: String = store.client().query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(persistence, "u");
}

fn open(breaker: &str) -> Value {
    json!({
        "breaker": breaker, "state": "open", "why": "said so", "retry_us": 23_000_000, "rung": 2,
        "failure_rate_ppm": 500_000, "successes": 2, "failures": 5, "rejected": 40,
        "episode_us": 7_000_000, "total_open_us": 3_000_000, "reopen_count": 1, "probe_count": 2, "cause": "streak",
        "holds": [{"scope": "credential \"alice\"", "why": "401", "left_us": 60_000_000}, {"scope": "a", "why": "b"}]
    })
}

/// How long the process has to wait; 0 where it was heard.
async fn publish(client: &Client, process: i64, breakers: Value) -> Result<i64, Error> {
    let sql = "SELECT call_budget.call_budget_publish_breakers($1, $2::text::jsonb)";
    client.query_one(sql, &[&process, &breakers.to_string()]).await.map(|row| row.get(0))
}

/// The view, by name.
async fn shown(client: &Client) -> Vec<Value> {
    let sql =
        "SELECT to_jsonb(s)::text FROM call_budget.call_budget_breaker_status AS s ORDER BY breaker COLLATE \"C\"";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
}

async fn names(client: &Client, process: i64) -> Vec<String> {
    let sql = "SELECT breaker::text FROM call_budget.call_budget_breaker WHERE process = $1 ORDER BY breaker";
    client.query(sql, &[&process]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn grows_older(client: &Client, by_us: i64) {
    let sql = "UPDATE call_budget.call_budget_breaker SET published_us = published_us - $1";
    assert!(client.execute(sql, &[&by_us]).await.unwrap() > 0);
}
