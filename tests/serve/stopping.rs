//! SIGTERM: in order, and within 5 s whatever hangs.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use rustix::process::Signal;
use serde_json::json;

use crate::support::eventually;
use crate::wire::{get, post};
use crate::{How, SURFACES, Serve, call_budget, database, dead_store};

/// The promise is 5 s; a busy machine gets some more.
const SOON: Duration = Duration::from_millis(5500);

#[tokio::test]
async fn callers_who_wait_are_refused_at_once_and_a_call_that_is_out_can_be_settled() {
    let database = database().await;
    let mut serve = Serve::start(&database.url, How::on().settings(SURFACES)).await;
    let call = serve.begin("mine/real/prices").await;
    call_budget(&database.url, &["budget", "pushback", "kis-real", "--for", "60s"]).await;
    let body = json!({"budget": "kis-real", "class": "order", "max_wait_ms": 80_000});
    let surface = json!({"surface": "kis/real/quote", "max_wait_ms": 80_000});
    let mut waiting = Vec::new();
    for request in [post("/v1/acquire", &body), post("/v1/acquire", &body), post("/v1/calls", &surface)] {
        let mut wire = serve.wire().await;
        wire.send(&request.bytes()).await;
        waiting.push(wire);
    }
    eventually("three wait", async || serve.status().await["service"]["waiting"] == 3).await;
    let began = SystemClock.now();
    serve.signal(Signal::TERM);
    for mut wire in waiting {
        wire.read().await.unwrap().refused(503, "CALL_BUDGET_STOPPING");
    }
    assert!(SystemClock.now().saturating_since(began) < Duration::from_secs(3));
    // Whoever comes now is sent to another; who was told that it may send says what came of it.
    serve.acquire(body).await.refused(503, "CALL_BUDGET_STOPPING");
    let ready = serve.ask(get("/readyz")).await;
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &json!(false)));
    assert_eq!(serve.status().await["service"]["stopping"], true);
    let settled = serve.settle(&call, json!({"status": 200})).await.done();
    assert_eq!(settled["verdict"], "good");
    assert_eq!(serve.ended().await.code(), Some(0));
    assert!(SystemClock.now().saturating_since(began) < Duration::from_secs(4), "it waits for nobody");
}

#[tokio::test]
async fn nothing_that_hangs_keeps_it_longer_than_five_seconds() {
    let (_silent, url) = dead_store().await;
    let mut serve = Serve::start(&url, How::on().admin().settings(SURFACES)).await;
    let mut idle = serve.wire().await;
    idle.ask(&get("/livez")).await.done();
    let (mut half, mut fresh) = (serve.wire().await, serve.wire().await);
    half.send("POST /v1/acquire HTTP/1.1\r\nHost: local").await;
    let mut body = serve.wire().await;
    body.send(
        "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    )
    .await;
    let mut events = serve.wire().await;
    events.send(&get("/v1/events").bytes()).await;
    events.event().await.unwrap();
    let mut waiting = serve.wire().await;
    waiting.send(&post("/v1/acquire", &json!({"budget": "b", "class": "c"})).bytes()).await;
    let mut order = serve.wire().await;
    order.send(&post("/v1/admin/fence", &json!({"budget": "b"})).token(crate::ADMIN).bytes()).await;
    eventually("one waits", async || serve.status().await["service"]["waiting"] == 1).await;
    let began = SystemClock.now();
    serve.signal(Signal::TERM);
    waiting.read().await.unwrap().refused(503, "CALL_BUDGET_STOPPING");
    assert_eq!(serve.ended().await.code(), Some(0), "{}", serve.said());
    let took = SystemClock.now().saturating_since(began);
    assert!(took < SOON, "{took:?}");
    tokio::join!(idle.ended(), half.ended(), fresh.ended(), events.ended());
}

#[tokio::test]
async fn what_is_no_whole_request_keeps_it_not_at_all() {
    let database = database().await;
    let mut serve = Serve::start(&database.url, How::on()).await;
    let (mut head, mut body) = (serve.wire().await, serve.wire().await);
    head.send("POST /v1/acquire HTTP/1.1\r\nHost: local").await;
    body.send(
        "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    )
    .await;
    serve.ask(get("/livez")).await.done();
    let began = SystemClock.now();
    serve.signal(Signal::TERM);
    body.read().await.unwrap().refused(503, "CALL_BUDGET_STOPPING");
    head.ended().await;
    assert_eq!(serve.ended().await.code(), Some(0));
    let took = SystemClock.now().saturating_since(began);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_call_that_nobody_settles_keeps_it_no_longer_either() {
    let database = database().await;
    let mut serve = Serve::start(&database.url, How::on().settings(SURFACES)).await;
    serve.begin("mine/real/prices").await;
    let began = SystemClock.now();
    serve.signal(Signal::INT);
    assert_eq!(serve.ended().await.code(), Some(0));
    let took = SystemClock.now().saturating_since(began);
    assert!(took > Duration::from_secs(3) && took < SOON, "{took:?}");
}

#[tokio::test]
async fn with_nobody_there_it_stops_at_once() {
    let database = database().await;
    let mut serve = Serve::start(&database.url, How::on()).await;
    let mut idle = serve.wire().await;
    idle.ask(&get("/livez")).await.done();
    let began = SystemClock.now();
    serve.signal(Signal::TERM);
    assert_eq!(serve.ended().await.code(), Some(0));
    assert!(SystemClock.now().saturating_since(began) < Duration::from_secs(3));
}
