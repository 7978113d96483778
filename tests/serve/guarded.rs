//! `POST /v1/calls` and what came of them.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::support::eventually;
use crate::wire::{get, post};
use crate::{How, SURFACES, Serve, database, granted};

fn how() -> How {
    How::on().settings(SURFACES)
}

fn bad() -> Value {
    json!({"status": 502})
}

async fn refused(serve: &Serve, surface: &str, code: &str) -> Value {
    serve.ask(post("/v1/calls", &json!({"surface": surface, "max_wait_ms": 10_000}))).await.refused(503, code)
}

async fn here(serve: &Serve, breaker: &str) -> Value {
    let breakers = serve.ask(get("/v1/breakers")).await.done();
    let here = breakers["here"].as_array().unwrap().iter().find(|here| here["breaker"] == breaker).cloned();
    here.unwrap_or_else(|| panic!("no {breaker} in {breakers}"))
}

#[tokio::test]
async fn five_bad_ones_open_the_breaker_and_then_a_call_costs_no_slot() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    for _ in 0..5 {
        let call = serve.begin("kis/real/quote").await;
        assert!(call["governed"] == true && call["attempt_timeout_ms"] == 10_000.0, "{call}");
        let settled = serve.settle(&call, bad()).await.done();
        assert!(settled["verdict"] == "bad" && settled["outcome_unknown"] == true, "{settled}");
    }
    let spent = granted(&database).await;
    let problem = refused(&serve, "kis/real/quote", "CALL_BUDGET_CIRCUIT_OPEN").await;
    let after = problem["retry_after_ms"].as_f64().unwrap();
    // 30 s, and up to a tenth more.
    assert!((20_000.0..=33_000.0).contains(&after), "{problem}");
    assert!(problem["may_have_spent"] == false && !problem["detail"].as_str().unwrap().starts_with("CALL_BUDGET"));
    assert_eq!(granted(&database).await, spent);
    let here = here(&serve, "kis/real/quote").await;
    assert!(here["state"] == "open" && here["rejected"] == 1 && here["episode"]["cause"] == "streak", "{here}");
    // Its neighbour has no breaker.
    let call = serve.begin("kis/real/balance").await;
    serve.settle(&call, json!({"status": 200})).await.done();
    eventually("the fleet sees it", async || {
        let seen = serve.ask(get("/v1/breakers")).await.done();
        seen["fleet"].as_array().unwrap().iter().any(|told| told["state"] == "open")
    })
    .await;
}

/// Opens `mine/real/prices` and waits until it is due.
async fn until_due(serve: &Serve) {
    for _ in 0..2 {
        let call = serve.begin("mine/real/prices").await;
        serve.settle(&call, json!({"error": "timed_out"})).await.done();
    }
    refused(serve, "mine/real/prices", "CALL_BUDGET_CIRCUIT_OPEN").await;
    tokio::time::sleep(Duration::from_millis(250)).await;
}

#[tokio::test]
async fn one_probe_goes_through_at_a_time_and_a_good_one_closes_the_breaker() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    until_due(&serve).await;
    let probe = serve.begin("mine/real/prices").await;
    refused(&serve, "mine/real/prices", "CALL_BUDGET_CIRCUIT_OPEN").await;
    let settled = serve.settle(&probe, json!({"status": 200, "elapsed_ms": 12.5})).await.done();
    assert_eq!(settled["verdict"], "good");
    assert_eq!(here(&serve, "mine/real/prices").await["state"], "closed");
    let call = serve.begin("mine/real/prices").await;
    serve.settle(&call, json!({"status": 200})).await.done();
}

#[tokio::test]
async fn a_probe_that_was_not_sent_says_nothing_and_gives_its_place_to_the_next() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    until_due(&serve).await;
    let before = here(&serve, "mine/real/prices").await;
    let probe = serve.begin("mine/real/prices").await;
    let settled = serve.settle(&probe, json!({"error": "not_sent", "elapsed_ms": 3})).await.done();
    assert_eq!([&settled["verdict"], &settled["outcome_unknown"]], [&json!("none"), &json!(false)]);
    let after = here(&serve, "mine/real/prices").await;
    for what in ["successes", "failures", "calls"] {
        assert_eq!(before[what], after[what], "{what}");
    }
    let probe = serve.begin("mine/real/prices").await;
    serve.settle(&probe, json!({"status": 200})).await.done();
    assert_eq!(here(&serve, "mine/real/prices").await["state"], "closed");
}

#[tokio::test]
async fn a_probe_that_stays_out_longer_than_a_minute_is_lost_and_another_may_go() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    until_due(&serve).await;
    let probe = serve.begin("mine/real/prices").await;
    let began = SystemClock.now();
    assert_eq!(serve.status().await["service"]["open_calls"], 1);
    while serve.status().await["service"]["open_calls"] == 1 {
        assert!(SystemClock.now().saturating_since(began) < Duration::from_secs(90), "it is never given up");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(SystemClock.now().saturating_since(began) > Duration::from_secs(59), "too early");
    serve.settle(&probe, json!({"status": 200})).await.refused(404, "CALL_BUDGET_UNKNOWN_CALL");
    eventually("the next probe goes", async || {
        let call = serve.ask(post("/v1/calls", &json!({"surface": "mine/real/prices", "max_wait_ms": 5000}))).await;
        call.status == 200
    })
    .await;
    assert!(serve.said().contains("call_budget_calls_lost"), "{}", serve.said());
}

#[tokio::test]
async fn too_many_calls_pushes_the_budget_back_for_everybody() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    let other = Serve::start(&database.url, how()).await;
    let call = serve.begin("kis/real/quote").await;
    let settled = serve.settle(&call, json!({"status": 500, "code": "EGW00201"})).await.done();
    assert_eq!(
        [&settled["verdict"], &settled["code"], &settled["throttled"]],
        [&json!("none"), &json!("EGW00201"), &json!(true)]
    );
    eventually("the budget is blocked, seen from another process", async || {
        let view = other.ask(get("/v1/budgets/kis-real")).await.done();
        view["blocked_reason"].as_str().is_some_and(|why| why.contains("EGW00201"))
    })
    .await;
}

#[tokio::test]
async fn a_retry_after_is_obeyed_and_no_longer_than_the_table_allows() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    let call = serve.begin("kis/real/balance").await;
    // More than any vendor means, and more digits than a clock has.
    serve.settle(&call, json!({"status": 503, "retry_after_ms": 9_007_199_254_740_991_u64})).await.done();
    let problem = refused(&serve, "kis/real/balance", "CALL_BUDGET_HELD").await;
    let after = problem["retry_after_ms"].as_f64().unwrap();
    assert!((200_000.0..=300_000.0).contains(&after), "KIS's table caps it at 5 min: {problem}");
    // One of nothing asks for nothing.
    let call = serve.begin("mine/real/prices").await;
    serve.settle(&call, json!({"status": 200, "retry_after_ms": 0})).await.done();
}

#[tokio::test]
async fn a_refused_key_holds_its_credential_and_nobody_elses_until_it_changes() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    let with = |credential: &str, revision: u64| json!({"surface": "kis/real/balance", "credential": credential, "revision": revision, "max_wait_ms": 10_000});
    let call = serve.ask(post("/v1/calls", &with("desk-1", 1))).await.done();
    serve.settle(&call, json!({"status": 403, "code": "EGW00103"})).await.done();
    let spent = granted(&database).await;
    serve.ask(post("/v1/calls", &with("desk-1", 1))).await.refused(503, "CALL_BUDGET_HELD");
    assert_eq!(granted(&database).await, spent);
    for (credential, revision) in [("desk-2", 1), ("desk-1", 2)] {
        let call = serve.ask(post("/v1/calls", &with(credential, revision))).await.done();
        serve.settle(&call, json!({"status": 200})).await.done();
    }
}

#[tokio::test]
async fn a_call_is_settled_once_and_where_it_began() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    let other = Serve::start(&database.url, how()).await;
    let call = serve.begin("kis/real/quote").await;
    other.settle(&call, json!({"status": 200})).await.refused(404, "CALL_BUDGET_UNKNOWN_CALL");
    serve.settle(&call, json!({"status": 200})).await.done();
    serve.settle(&call, json!({"status": 200})).await.refused(404, "CALL_BUDGET_UNKNOWN_CALL");
    for id in ["x", "0", "%20", "00000000000000000000000000000000", "가"] {
        let settle = post(&format!("/v1/calls/{id}/settle"), &json!({"status": 200}));
        serve.ask(settle).await.refused(404, "CALL_BUDGET_UNKNOWN_CALL");
    }
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_its_name_and_the_call_can_still_be_settled() {
    let database = database().await;
    let serve = Serve::start(&database.url, how()).await;
    let call = serve.begin("kis/real/quote").await;
    let path = format!("/v1/calls/{}/settle", call["id"].as_str().unwrap());
    for (body, named) in [
        (r#"{"status": 200, "elapsed_ms": NaN}"#, "not JSON"),
        (r#"{"status": 200, "elapsed_ms": -1}"#, "elapsed_ms"),
        (r#"{"status": 200, "elapsed_ms": 1e300}"#, "elapsed_ms"),
        (r#"{"status": 200, "elapsed_ms": 1e999}"#, "not JSON"),
        (r#"{"status": 200, "elapsed_ms": "5"}"#, "elapsed_ms"),
        (r#"{"status": 99}"#, "status"),
        (r#"{"status": 600}"#, "status"),
        (r#"{"status": 70000}"#, "status"),
        (r#"{"status": "200"}"#, "status"),
        (r#"{"status": 200, "error": "timed_out"}"#, "either status"),
        (r#"{"error": "not_sent", "code": "X"}"#, "code"),
        (r#"{"error": "lost"}"#, "error"),
        (r#"{"status": 200, "retry_after_ms": -5}"#, "retry_after_ms"),
        (r#"{"status": 200, "retry_after_ms": 18446744073709551615}"#, "retry_after_ms"),
        (r#"{"status": 200, "txet": "x"}"#, "did you mean \\\"text\\\""),
        (r#"{}"#, "either status"),
        (r#"[200]"#, "object"),
    ] {
        let problem =
            serve.ask(crate::wire::ask("POST", &path).body(body)).await.refused(400, "CALL_BUDGET_BAD_REQUEST");
        assert!(problem.to_string().contains(named), "{body}: {problem}");
    }
    serve.settle(&call, json!({"status": 200})).await.done();
}

#[tokio::test]
async fn nobodys_clock_makes_an_attempt_longer_than_it_can_have_been() {
    let database = database().await;
    let slow = "[breaker.slow]\nstreak = false\nslow = { limit = \"10s\", last = 2, min = 2, at_least = 0.5 }\n\
                [surface.\"kis/real/chart\"]\nbudget = \"kis-real\"\nclass = \"minute\"\nvendor = \"kis\"\n\
                breaker = \"slow\"\nidempotent = true\n";
    let serve = Serve::start(&database.url, How::on().settings(slow)).await;
    for elapsed in [json!(86_400_000), json!(9.0e15)] {
        let call = serve.begin("kis/real/chart").await;
        serve.settle(&call, json!({"status": 200, "elapsed_ms": elapsed})).await.done();
    }
    assert_eq!(here(&serve, "kis/real/chart").await["state"], "closed", "an hour that was none opened it");
}

#[tokio::test]
async fn every_call_is_counted_under_its_surface() {
    let serve = Serve::start("", How::default().settings("polite_interval = \"0s\"\n").settings(SURFACES)).await;
    for _ in 0..2 {
        let call = serve.begin("mine/real/prices").await;
        serve.settle(&call, json!({"status": 200})).await.done();
    }
    let unknown = post("/v1/calls", &json!({"surface": "mine/real/nothing"}));
    serve.ask(unknown).await.refused(404, "CALL_BUDGET_UNKNOWN_SURFACE");
    let text = serve.ask(get("/metrics")).await.body;
    for line in ["surface=\"mine/real/prices\"} 2", "surface=\"\"} 1"] {
        assert!(text.lines().any(|have| have == format!("call_budget_calls_total{{{line}")), "{line}: {text}");
    }
}
