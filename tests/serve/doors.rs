//! What comes to the door and is not what it should be: refused, bounded, and never in anybody's way.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use serde_json::json;

use crate::support::{self, eventually};
use crate::wire::{ask, get, post};
use crate::{ADMIN, How, Serve, database};

/// Where no store is needed, there is none.
async fn off() -> Serve {
    Serve::start("", How::default().admin().settings("polite_interval = \"0s\"\n")).await
}

#[tokio::test]
async fn a_page_of_somebody_elses_name_is_not_answered() {
    let how = How::default()
        .admin()
        .argument("--allow-host", "Budget.internal")
        .settings("[serve]\nallowed_hosts = [\"other.internal\"]\n");
    let serve = Serve::start("", how).await;
    for host in [
        "127.0.0.1",
        "127.0.0.1:8181",
        "[::1]:80",
        "localhost",
        "LocalHost:1",
        "budget.internal:8181",
        "other.internal",
    ] {
        serve.ask(get("/livez").host(host)).await.done();
    }
    for path in ["/", "/livez", "/v1/status", "/v1/events", "/nowhere"] {
        for host in ["evil.example", "evil.example:8181", "127.0.0.1.evil.example", "", "localhost.evil.example"] {
            serve.ask(get(path).host(host)).await.refused(421, "CALL_BUDGET_WRONG_HOST");
        }
    }
    let twice = get("/v1/status").header("Host", "evil.example");
    serve.ask(twice).await.refused(421, "CALL_BUDGET_WRONG_HOST");
    let order = post("/v1/admin/fence", &json!({"budget": "x"})).token(ADMIN).host("evil.example");
    serve.ask(order).await.refused(421, "CALL_BUDGET_WRONG_HOST");
    let mut old = serve.wire().await;
    old.send("GET /livez HTTP/1.0\r\n\r\n").await;
    old.read().await.unwrap().refused(421, "CALL_BUDGET_WRONG_HOST");
}

#[tokio::test]
async fn a_body_that_is_not_said_to_be_json_is_not_read() {
    let serve = off().await;
    let body = r#"{"budget": "b", "class": "c"}"#;
    let acquire = || ask("POST", "/v1/acquire").plain(body);
    serve.ask(acquire()).await.refused(415, "CALL_BUDGET_NOT_JSON");
    for wrong in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "text/json", ""] {
        serve.ask(acquire().header("Content-Type", wrong)).await.refused(415, "CALL_BUDGET_NOT_JSON");
    }
    for right in ["application/json", "Application/JSON; charset=utf-8", "application/json;x"] {
        serve.ask(acquire().header("Content-Type", right)).await.done();
    }
}

#[tokio::test]
async fn a_body_has_at_most_64_kib_and_who_sends_more_can_read_why_not() {
    let serve = off().await;
    let of = |length: usize| {
        let start = r#"{"budget": "b", "class": "c"}"#;
        ask("POST", "/v1/acquire").body(&format!("{start}{}", " ".repeat(length - start.len())))
    };
    serve.ask(of(65_536)).await.done();
    for length in [65_537, 200_000, 1_000_000] {
        let mut wire = serve.wire().await;
        wire.send(&of(length).bytes()).await;
        // Whoever is slow to read finds it, too.
        tokio::time::sleep(Duration::from_millis(300)).await;
        wire.read().await.unwrap().refused(413, "CALL_BUDGET_TOO_LARGE");
    }
    // In pieces, too: no length is announced.
    let mut wire = serve.wire().await;
    let head = "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    wire.send(head).await;
    for _ in 0..70 {
        wire.send(&format!("400\r\n{}\r\n", " ".repeat(1024))).await;
    }
    wire.send("0\r\n\r\n").await;
    wire.read().await.unwrap().refused(413, "CALL_BUDGET_TOO_LARGE");
}

#[tokio::test]
async fn a_body_that_does_not_come_in_is_not_waited_for_longer_than_ten_seconds() {
    let serve = off().await;
    let mut wire = serve.wire().await;
    let began = SystemClock.now();
    wire.send("POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{\"bud").await;
    wire.read().await.unwrap().refused(408, "CALL_BUDGET_BODY_TIMEOUT");
    let took = SystemClock.now().saturating_since(began);
    assert!((9..30).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test]
async fn a_head_that_does_not_come_in_and_a_connection_nobody_uses_are_closed() {
    let serve = off().await;
    let began = SystemClock.now();
    let (mut half, mut idle, mut used) = (serve.wire().await, serve.wire().await, serve.wire().await);
    half.send("GET /livez HTTP/1.1\r\nHost: local").await;
    used.ask(&get("/livez")).await.done();
    tokio::join!(half.ended(), idle.ended(), used.ended());
    let took = SystemClock.now().saturating_since(began);
    assert!((25..55).contains(&took.as_secs()), "{took:?}");
    serve.ask(get("/livez")).await.done();
}

#[tokio::test]
async fn what_is_not_there_and_what_does_not_go_that_way_are_told_apart() {
    let serve = off().await;
    for path in [
        "/v1",
        "/v1/",
        "/v1/acquire/",
        "/v1/acquire/x",
        "/admin",
        "/v1/admin/",
        "/v1/calls/x",
        "/%00",
        "//livez",
        "/../x",
        "/가",
    ] {
        serve.ask(get(path)).await.refused(404, "CALL_BUDGET_NO_SUCH_PATH");
    }
    for (method, path, allowed) in [
        ("GET", "/v1/acquire", "POST"),
        ("PUT", "/v1/calls", "POST"),
        ("DELETE", "/v1/budgets/x", "GET,HEAD"),
        ("GET", "/v1/admin/pause", "POST"),
        ("POST", "/livez", "GET,HEAD"),
        ("OPTIONS", "/v1/status", "GET,HEAD"),
        ("TRACE", "/v1/status", "GET,HEAD"),
        ("BREW", "/", "GET,HEAD"),
    ] {
        let answer = serve.ask(ask(method, path)).await;
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
        answer.refused(405, "CALL_BUDGET_NO_SUCH_METHOD");
    }
    let preflight = ask("OPTIONS", "/v1/acquire")
        .header("Origin", "http://evil.example")
        .header("Access-Control-Request-Method", "POST");
    let answer = serve.ask(preflight).await;
    assert!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
}

#[tokio::test]
async fn names_and_numbers_that_cannot_be_are_refused_before_anything_is_asked() {
    let serve = off().await;
    for (body, named) in [
        (json!({"budget": "", "class": "c"}), "budget"),
        (json!({"budget": "b", "class": "x".repeat(101)}), "class"),
        (json!({"budget": "b\u{0}", "class": "c"}), "budget"),
        (json!({"budget": "b", "class": "c", "cost": 0}), "cost"),
        (json!({"budget": "b", "class": "c", "cost": 2_147_483_648_u64}), "cost"),
        (json!({"budget": "b", "class": "c", "cost": 5_000_000_000_u64}), "cost"),
        (json!({"budget": "b", "class": "c", "max_wait_ms": 86_400_001}), "max_wait_ms"),
        (json!({"budget": "b", "class": "c", "max_wait_ms": -1}), "max_wait_ms"),
        (json!({"budget": "b", "class": "c", "max_wait": 1}), "max_wait_ms"),
        (json!({"budget": "b"}), "class"),
        (json!(["b", "c", 1, null]), "object"),
        (json!("b"), "object"),
        (json!(null), "object"),
    ] {
        let problem = serve.acquire(body.clone()).await.refused(400, "CALL_BUDGET_BAD_REQUEST");
        assert!(problem["detail"].as_str().unwrap().contains(named), "{body}: {problem}");
    }
    // A hundred characters, whatever they take.
    serve.acquire(json!({"budget": "예".repeat(100), "class": "c"})).await.done();
    for (body, named) in [
        (json!({"surface": ""}), "surface"),
        (json!({"surface": "s", "credential": "x".repeat(101)}), "credential"),
        (json!({"surface": "s", "class": ""}), "class"),
        (json!({"surface": "s", "revision": -1}), "revision"),
    ] {
        let problem = serve.ask(post("/v1/calls", &body)).await.refused(400, "CALL_BUDGET_BAD_REQUEST");
        assert!(problem["detail"].as_str().unwrap().contains(named), "{body}: {problem}");
    }
}

#[tokio::test]
async fn more_connections_than_there_may_be_wait_and_none_is_lost() {
    let serve = Serve::start("", How::default().argument("--max-connections", "2")).await;
    let (mut first, mut second) = (serve.wire().await, serve.wire().await);
    first.ask(&get("/livez")).await.done();
    second.ask(&get("/livez")).await.done();
    let mut more = Vec::new();
    for _ in 0..10 {
        let mut wire = serve.wire().await;
        wire.send(&get("/livez").header("Connection", "close").bytes()).await;
        more.push(wire);
    }
    let early = tokio::time::timeout(Duration::from_millis(500), more[0].read()).await;
    assert!(early.is_err(), "a third was served");
    drop(first);
    for mut wire in more {
        wire.read().await.unwrap().done();
    }
    second.ask(&get("/livez")).await.done();
}

#[tokio::test]
async fn it_takes_the_descriptors_that_it_may_have() {
    let serve = Serve::start("", How::default().descriptors(64, 1024).argument("--max-connections", "200")).await;
    let mut kept = Vec::new();
    for _ in 0..150 {
        let mut wire = serve.wire().await;
        wire.ask(&get("/livez")).await.done();
        kept.push(wire);
    }
    assert!(!serve.said().contains("call_budget_connections_lowered"), "{}", serve.said());
}

#[tokio::test]
async fn callers_never_take_the_descriptors_that_the_store_needs() {
    let mut server = support::server();
    let url = server.url("postgres");
    support::connect_and_migrate(&url).await;
    crate::prepare(&url).await;
    let serve = Serve::start(&url, How::on().descriptors(64, 128)).await;
    let lowered = "call_budget_connections_lowered";
    eventually("it says so", async || serve.said().contains(lowered)).await;
    // More than there may be: the rest wait.
    let mut crowd = Vec::new();
    for _ in 0..120 {
        crowd.push(serve.wire().await);
    }
    let first = &mut crowd[0];
    let server = tokio::task::spawn_blocking(move || {
        server.halt(call_budget::service::scratch_postgres::Halt::Immediate).unwrap();
        server.resume().unwrap();
        server
    });
    let _server = server.await.unwrap();
    let acquire = post("/v1/acquire", &json!({"budget": "kis-real", "class": "order", "max_wait_ms": 20_000}));
    let mut served = false;
    for _ in 0..100 {
        served = first.ask(&acquire).await.status == 200;
        if served {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(served && !serve.said().contains("call_budget_accept_failed"), "{}", serve.said());
}

#[tokio::test]
async fn a_caller_whose_machine_vanished_is_noticed_within_half_a_minute() {
    let serve = off().await;
    let mut wire = serve.wire().await;
    wire.ask(&get("/livez")).await.done();
    // Nothing here can make a machine vanish: the kernel tells which timer runs for the connection. 2: it asks whether
    // somebody is there, and in how many hundredths of a second.
    let (ours, theirs) = (serve.address.port(), wire.0.get_ref().local_addr().unwrap().port());
    let Ok(connections) = std::fs::read_to_string("/proc/net/tcp") else { return };
    let ends = format!("0100007F:{ours:04X} 0100007F:{theirs:04X}");
    let line = connections.lines().find(|line| line.contains(&ends)).unwrap_or_else(|| panic!("{ends}: {connections}"));
    let timer = line.split_whitespace().nth(5).unwrap();
    let hundredths = timer.strip_prefix("02:").map(|at| u32::from_str_radix(at, 16).unwrap());
    assert!(hundredths.is_some_and(|at| at <= 1500), "{line}");
}

#[tokio::test]
async fn nonsense_on_the_wire_ends_its_own_connection_and_nothing_else() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    for nonsense in [
        "\r\n\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}",
        "GET /\r\n\r\n",
        "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: x\r\n\r\n",
        "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let mut wire = serve.wire().await;
        wire.send(nonsense).await;
        drop(wire);
    }
    let mut wire = serve.wire().await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(1_000_000));
    // It may hang up before all of it is there.
    let _ = tokio::io::AsyncWriteExt::write_all(&mut wire.0, long.as_bytes()).await;
    wire.ended().await;
    eventually("nobody waits", async || serve.status().await["service"]["waiting"] == 0).await;
    assert!(!serve.said().contains("panicked"), "{}", serve.said());
}

#[tokio::test]
async fn one_connection_serves_many_calls_one_after_the_other() {
    let database = support::database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    let mut wire = serve.wire().await;
    for _ in 0..20 {
        wire.ask(&get("/livez")).await.done();
        wire.ask(&get("/nowhere")).await.refused(404, "CALL_BUDGET_NO_SUCH_PATH");
        let unknown = json!({"budget": "nobody", "class": "c"});
        wire.ask(&post("/v1/acquire", &unknown)).await.refused(404, "CALL_BUDGET_UNKNOWN_BUDGET");
    }
    // Sent before the answer to the one before is there.
    wire.send(&(get("/livez").bytes() + &get("/nowhere").bytes())).await;
    assert_eq!([wire.read().await.unwrap().status, wire.read().await.unwrap().status], [200, 404]);
}
