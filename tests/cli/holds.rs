//! What keeps a budget from granting: pause, drain, pushback, fence; and what still leaves.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio_postgres::Client;

use crate::support::{self, TestDatabase};
use crate::{call_budget, database_with_budget, everything, somebody_waits_for_a_lock, words};

#[tokio::test]
async fn a_pause_is_seen_with_its_reason_and_ends() {
    let database = database_with_budget().await;
    let run = async |arguments: &[&str]| call_budget(&database.url, arguments).await;
    let paused = run(&["budget", "pause", "kis-real", "--reason", "점검 \"중\"", "--json"]).await.json();
    assert_eq!((&paused["paused"], &paused["paused_reason"]), (&json!(true), &json!("점검 \"중\"")));
    assert!(run(&["budget", "list"]).await.done().contains("paused"));
    assert!(run(&["status"]).await.done().contains("점검"));
    assert_eq!(run(&["budget", "resume", "kis-real"]).await.done(), "budget \"kis-real\" grants again\n");
    assert_eq!(run(&["budget", "resume", "kis-real"]).await.done(), "budget \"kis-real\" was not paused\n");
    assert_eq!(run(&["budget", "show", "kis-real", "--json"]).await.json()["paused"], json!(false));
}

#[tokio::test]
async fn a_drain_waits_until_nothing_that_was_granted_can_leave() {
    let database = slow_budget_with_a_grant().await;
    let started = Instant::now();
    let left = drained_in(&database.client).await;
    assert!(left > Duration::from_millis(1500), "the grant leaves nothing to wait for: {left:?}");
    let said = call_budget(&database.url, &words("budget drain slow --reason off")).await.done();
    assert!(started.elapsed() >= left, "drained after {:?} of {left:?}", started.elapsed());
    assert_eq!(said, "budget \"slow\" is paused and drained\n");
    assert_eq!(drained_in(&database.client).await, Duration::ZERO);
}

#[tokio::test]
async fn a_drain_that_cannot_end_in_time_says_so_at_once_and_leaves_the_budget_paused() {
    let database = slow_budget_with_a_grant().await;
    let refused = call_budget(&database.url, &words("budget drain slow --within 100ms")).await;
    refused.refused(1, &["\"slow\" is paused", "may still leave for", "--within 100ms"]);
    assert!(drained_in(&database.client).await > Duration::ZERO);
    let shown = call_budget(&database.url, &words("budget show slow --json")).await.json();
    assert_eq!(shown["paused"], json!(true));
}

#[tokio::test]
async fn a_drain_notices_that_somebody_resumed() {
    let database = slow_budget_with_a_grant().await;
    let (drain, ()) = tokio::join!(call_budget(&database.url, &["budget", "drain", "slow"]), async {
        let paused = "SELECT paused FROM call_budget.call_budget_status WHERE name = 'slow'";
        while !database.client.query_one(paused, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        database.client.execute("SELECT call_budget.call_budget_resume('slow')", &[]).await.unwrap();
    });
    drain.refused(1, &["\"slow\" was resumed by somebody else"]);
}

#[tokio::test]
async fn who_paused_first_keeps_the_reason_over_a_drain() {
    let database = database_with_budget().await;
    call_budget(&database.url, &words("budget pause kis-real --reason first")).await.done();
    let drained = call_budget(&database.url, &words("budget drain kis-real --reason second --json")).await.json();
    assert_eq!(drained["paused_reason"], json!("first"));
}

#[tokio::test]
async fn a_pushback_is_capped_and_never_a_sum() {
    let database = database_with_budget().await;
    let pushback = async |duration: &str| {
        call_budget(&database.url, &["budget", "pushback", "kis-real", "--for", duration, "--reason", "429"])
            .await
            .done()
    };
    assert!(pushback("30s").await.contains("pushed back for 30s\n"));
    assert!(pushback("1s").await.contains("an earlier pushback lasts longer"));
    assert!(pushback("3h").await.contains("pushed back for 1h (no pushback is longer than that)"));
    let shown = call_budget(&database.url, &words("budget show kis-real --json")).await.json();
    let left = shown["blocked_for_us"].as_i64().unwrap();
    assert!((3_500_000_000..=3_600_000_000).contains(&left), "{left}");
    assert_eq!(shown["blocked_reason"], json!("429"));
}

#[tokio::test]
async fn a_fence_is_one_quiet_moment_of_lookahead_and_interval() {
    let database = database_with_budget().await;
    let said = call_budget(&database.url, &words("fence kis-real")).await.done();
    assert_eq!(said, "budget \"kis-real\" is fenced: nothing new starts for 121ms 174µs\n");
    let shown = call_budget(&database.url, &words("budget show kis-real --json")).await.json();
    assert_eq!(shown["fences"], json!(1));
}

#[tokio::test]
async fn a_budget_is_deleted_once_nothing_that_it_granted_can_still_leave() {
    let database = slow_budget_with_a_grant().await;
    let delete = words("budget delete slow --yes");
    call_budget(&database.url, &delete).await.refused(1, &["can still leave for", "budget drain"]);
    call_budget(&database.url, &words("budget drain slow")).await.done();
    let said = call_budget(&database.url, &delete).await.done();
    assert_eq!(said, "budget \"slow\" deleted\n");
    assert_eq!(everything(&database.client).await, "");
    call_budget(&database.url, &words("budget delete slow --yes")).await.refused(2, &["there is no budget \"slow\""]);
}

#[tokio::test]
async fn settings_that_narrow_wait_until_what_was_granted_under_the_old_ones_is_over() {
    let database = slow_budget_with_a_grant().await;
    let narrow = words("budget set slow --send-window 1s");
    call_budget(&database.url, &narrow).await.refused(1, &["shorter --send-window", "pause it, wait"]);
    call_budget(&database.url, &words("budget set slow --send-window 3s")).await.done();
    call_budget(&database.url, &words("budget drain slow")).await.done();
    call_budget(&database.url, &narrow).await.done();
}

#[tokio::test]
async fn a_budget_that_somebody_holds_fast_is_left_alone_in_time() {
    let mut database = database_with_budget().await;
    let watcher = support::connect(&database.url).await;
    let before = everything(&watcher).await;
    let blocker = database.client.transaction().await.unwrap();
    blocker.execute("SELECT FROM call_budget.call_budget FOR UPDATE", &[]).await.unwrap();
    let started = Instant::now();
    let (refused, ()) =
        tokio::join!(call_budget(&database.url, &["budget", "pause", "kis-real"]), somebody_waits_for_a_lock(&watcher));
    refused.refused(3, &["held the row for too long", "nothing was changed, try again"]);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop(blocker);
    assert_eq!(everything(&watcher).await, before);
}

/// Slots 2.35 s apart that may leave for two seconds: what is granted is out for long enough to see.
async fn slow_budget_with_a_grant() -> TestDatabase {
    let database = support::database().await;
    for command in
        ["budget set slow --limit 1 --window 300ms --send-window 2s", "class set slow only --priority 0 --floor 1"]
    {
        call_budget(&database.url, &words(command)).await.done();
    }
    let acquire = "SELECT cardinality(waits_us), retry_us
                     FROM call_budget.call_budget_acquire('slow', 'only', 1, '{1}', 60000000, 1)";
    for _ in 0..50 {
        let answer = database.client.query_one(acquire, &[]).await.unwrap();
        if answer.get::<_, i32>(0) == 1 {
            return database;
        }
        tokio::time::sleep(Duration::from_micros(answer.get::<_, i64>(1).unsigned_abs())).await;
    }
    panic!("no grant after 50 calls");
}

async fn drained_in(client: &Client) -> Duration {
    let row = client.query_one("SELECT call_budget.call_budget_drained_us('slow')", &[]).await.unwrap();
    Duration::from_micros(row.get::<_, i64>(0).unsigned_abs())
}
