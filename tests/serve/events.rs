//! `GET /v1/events`: the whole picture once a second.

use call_budget::clock::{Clock, SystemClock};
use rustix::process::Signal;
use serde_json::json;

use crate::support::{self, eventually};
use crate::wire::{Wire, get, within};
use crate::{CALLER, How, Serve, database, prepare};

async fn stream(serve: &Serve) -> Wire {
    let mut wire = serve.wire().await;
    wire.send(&get("/v1/events").token(CALLER).bytes()).await;
    let head = wire.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: text/event-stream"), "{head}");
    wire
}

#[tokio::test]
async fn history_comes_first_and_then_how_it_is_again_and_again() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    serve.acquire(json!({"budget": "kis-real", "class": "order"})).await.done();
    let seen = json!(1);
    eventually("it was sampled", async || serve.status().await["budgets"][0]["classes"][0]["granted"] == seen).await;
    let mut events = stream(&serve).await;
    let (name, history) = events.event().await.unwrap();
    let last = history["samples"].as_array().unwrap().last().unwrap().clone();
    assert!(name == "history" && last["granted"]["kis-real"] == json!({"minute": 0, "order": 1}), "{name} {history}");
    let mut before = 0;
    for _ in 0..3 {
        let (name, status) = events.event().await.unwrap();
        assert!(name == "status" && status["store"]["reachable"] == true, "{name} {status}");
        let now = status["unix_ms"].as_i64().unwrap();
        assert!(before == 0 || (500..20_000).contains(&(now - before)), "{before} {now}");
        before = now;
    }
}

#[tokio::test]
async fn it_goes_on_while_the_store_is_out_and_says_how_old_the_figures_are() {
    let mut server = support::server();
    let url = server.url("postgres");
    support::connect_and_migrate(&url).await;
    prepare(&url).await;
    let serve = Serve::start(&url, How::on()).await;
    let mut events = stream(&serve).await;
    events.event().await.unwrap();
    while events.event().await.unwrap().1["store"]["reachable"] != true {}
    let server = tokio::task::spawn_blocking(move || {
        server.halt(call_budget::service::scratch_postgres::Halt::Immediate).unwrap();
        server
    });
    let _server = server.await.unwrap();
    let mut ages = Vec::new();
    while ages.len() < 3 {
        let (_, status) = within(events.event()).await.unwrap();
        if status["store"]["reachable"] == false {
            assert!(status["store"]["why"].is_string() && status["budgets"][0]["name"] == "kis-real", "{status}");
            ages.push(status["store"]["age_ms"].as_f64().unwrap());
        }
    }
    assert!(ages.is_sorted_by(|a, b| a < b), "{ages:?}");
}

#[tokio::test]
async fn it_ends_when_the_service_stops() {
    let database = database().await;
    let mut serve = Serve::start(&database.url, How::on()).await;
    let mut events = stream(&serve).await;
    events.event().await.unwrap();
    events.event().await.unwrap();
    let began = SystemClock.now();
    serve.signal(Signal::TERM);
    while events.event().await.is_ok() {}
    let took = SystemClock.now().saturating_since(began);
    assert!(took.as_millis() < 3500, "it ends by itself, not by force: {took:?}");
    assert_eq!(serve.ended().await.code(), Some(0));
}
