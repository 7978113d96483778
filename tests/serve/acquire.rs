//! `POST /v1/acquire`: leave on the caller's own clock, or a no with its reason.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;
use call_budget::service::mock_vendor::{self, MockVendor};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::{self, eventually};
use crate::wire::{Wire, get, post, within};
use crate::{How, Serve, call_budget, database, granted, prepare};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Until when the caller that asked then may send, by its own clock.
pub fn deadline(asked: Instant, leave: &Value) -> Instant {
    let part = |name: &str| Duration::from_secs_f64(leave[name].as_f64().unwrap() / 1000.0);
    asked + part("held_ms") + part("remaining_ms")
}

/// One caller that keeps to the contract: sends to the vendor while it may, and not a moment later. How often it sent and how
/// often it had to leave it.
pub async fn honest_caller(serve: std::net::SocketAddr, vendor: std::net::SocketAddr, until: Instant) -> (u64, u64) {
    let body = json!({"budget": "kis-real", "class": "minute", "max_wait_ms": 20_000});
    let mut connection = Wire::to(serve).await;
    let (mut sent, mut left) = (0, 0);
    while SystemClock.now() < until {
        let asked = SystemClock.now();
        // Whoever serves it may be killed: no whole answer means not to send.
        connection.send(&post("/v1/acquire", &body).bytes()).await;
        let Ok(answer) = connection.read().await else { break };
        if answer.status != 200 {
            assert!(matches!(answer.status, 429 | 503), "{}{}", answer.head, answer.body);
            continue;
        }
        let leave = answer.json();
        let deadline = deadline(asked, &leave);
        if SystemClock.now() > deadline {
            left += 1;
            continue;
        }
        send(vendor, &leave, deadline).await;
        sent += 1;
    }
    (sent, left)
}

async fn send(vendor: std::net::SocketAddr, leave: &Value, closes: Instant) {
    let call = get("/uapi/domestic-stock/v1/quotations/inquire-price")
        .header("tr_id", "FHKST01010100")
        .header("x-call-budget-nonce", leave["nonce"].as_str().unwrap())
        .header("x-call-budget-closes-us", &closes.since_boot().as_micros().to_string());
    let bytes = call.bytes();
    let mut wire = Wire(tokio::io::BufReader::new(within(TcpStream::connect(vendor)).await.unwrap()));
    wire.send(&bytes).await;
    let answer = wire.read().await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_callers_who_keep_to_the_contract_are_never_late_and_never_over_the_limit() {
    let database = database().await;
    let vendor = MockVendor::start(mock_vendor::Settings { limit: 40, ..Default::default() }).await.unwrap();
    let serve = Serve::start(&database.url, How::on()).await;
    let (address, until) = (vendor.addr(), SystemClock.now() + ms(6000));
    let callers: JoinSet<_> = (0..50).map(|_| honest_caller(serve.address, address, until)).collect();
    let (sent, left) = callers.join_all().await.into_iter().fold((0, 0), |sum, (s, l)| (sum.0 + s, sum.1 + l));
    let report = vendor.report();
    println!("{sent} sent, {left} left, worst window {}, late {}", report.worst_window, report.late);
    assert!(sent > 60, "they hardly sent: {sent} sent, {left} left");
    assert_eq!((report.arrivals, report.duplicate_nonces, report.refused_below_limit), (sent, 0, 0));
    assert!(report.late == 0 || !report.stalls.is_empty(), "{} late", report.late);
    assert!(report.over_limit_windows == 0 || report.violation_during_stall, "{report:?}");
    assert!(granted(&database).await >= sent.cast_signed(), "more was sent than was granted");
}

#[tokio::test]
async fn what_a_caller_is_told_never_leads_past_the_closing_of_its_slot_in_the_stores_own_time() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    let body = json!({"budget": "kis-real", "class": "order"});
    for _ in 0..10 {
        let asked = SystemClock.now();
        let leave = serve.acquire(body.clone()).await.done();
        let (read, wall) = (SystemClock.now(), SystemClock.wall());
        // The store's clock is this machine's: the slot and its send window are known to the microsecond.
        let sql = "SELECT last_slot_us + send_window_us, send_window_us FROM call_budget.call_budget_class
                     JOIN call_budget.call_budget ON call_budget.name = call_budget_class.budget
                    WHERE budget = 'kis-real' AND call_budget_class.name = 'order'";
        let row = database.client.query_one(sql, &[]).await.unwrap();
        let (closes_us, window_us): (i64, i64) = (row.get(0), row.get(1));
        let deadline = deadline(asked, &leave);
        let told_us = wall.unix_us() + deadline.saturating_since(read).as_micros().cast_signed() as i64
            - read.saturating_since(deadline).as_micros() as i64;
        assert!(told_us <= closes_us, "told {} us too long: {leave}", told_us - closes_us);
        let remaining_us = leave["remaining_ms"].as_f64().unwrap() * 1000.0;
        assert!(remaining_us <= window_us as f64, "{leave}");
        assert!(leave["governed"] == true && leave["nonce"].as_str().unwrap().parse::<u64>().is_ok(), "{leave}");
    }
}

#[tokio::test]
async fn a_caller_whose_question_or_answer_was_long_on_its_way_is_told_not_to_send() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    let body = json!({"budget": "kis-real", "class": "order"});
    for (before, after) in [(ms(400), ms(0)), (ms(0), ms(400))] {
        let mut wire = serve.wire().await;
        let asked = SystemClock.now();
        tokio::time::sleep(before).await;
        let leave = wire.ask(&post("/v1/acquire", &body)).await.done();
        tokio::time::sleep(after).await;
        assert!(SystemClock.now() > deadline(asked, &leave), "{before:?} {after:?}: {leave}");
    }
}

#[tokio::test]
async fn the_time_that_a_caller_waits_for_its_slot_is_in_what_it_is_told() {
    let database = database().await;
    call_budget(&database.url, &["budget", "pushback", "kis-real", "--for", "700ms"]).await;
    let serve = Serve::start(&database.url, How::on()).await;
    let asked = SystemClock.now();
    let leave = serve.acquire(json!({"budget": "kis-real", "class": "order"})).await.done();
    let took = SystemClock.now().saturating_since(asked).as_secs_f64() * 1000.0;
    let held = leave["held_ms"].as_f64().unwrap();
    assert!(held > 100.0 && held <= took, "{leave} {took}");
}

#[tokio::test]
async fn who_cannot_be_served_within_its_patience_is_told_when_to_come_back() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    call_budget(&database.url, &["budget", "pushback", "kis-real", "--for", "20s"]).await;
    for max_wait in [0, 2000] {
        let body = json!({"budget": "kis-real", "class": "order", "max_wait_ms": max_wait});
        let problem = serve.acquire(body).await.refused(429, "CALL_BUDGET_WAIT_EXCEEDED");
        let known = problem["retry_after_ms"].as_f64().unwrap();
        // With no patience at all nobody is asked.
        assert!(if max_wait == 0 { known == 1000.0 } else { (10_000.0..=20_100.0).contains(&known) }, "{problem}");
        assert_eq!(problem["may_have_spent"], false, "{problem}");
    }
    assert_eq!(granted(&database).await, 0);
}

#[tokio::test]
async fn what_is_paused_or_not_there_is_said_by_its_code() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    let unknown = json!({"budget": "kis-reel", "class": "order"});
    serve.acquire(unknown).await.refused(404, "CALL_BUDGET_UNKNOWN_BUDGET");
    let unknown = json!({"budget": "kis-real", "class": "ordre"});
    serve.acquire(unknown).await.refused(404, "CALL_BUDGET_UNKNOWN_CLASS");
    let dear = json!({"budget": "kis-real", "class": "order", "cost": 2});
    let problem = serve.acquire(dear).await.refused(400, "CALL_BUDGET_BAD_REQUEST");
    assert!(problem["detail"].as_str().unwrap().contains("cost"), "{problem}");
    call_budget(&database.url, &["budget", "pause", "kis-real", "--reason", "the vendor's migration"]).await;
    let paused = json!({"budget": "kis-real", "class": "order"});
    serve.acquire(paused).await.refused(503, "CALL_BUDGET_PAUSED");
    assert_eq!(granted(&database).await, 0);
}

#[tokio::test]
async fn a_store_that_is_out_is_told_with_its_stage_and_is_used_again_when_it_is_back() {
    let mut server = support::server();
    let url = server.url("postgres");
    support::connect_and_migrate(&url).await;
    prepare(&url).await;
    let serve = Serve::start(&url, How::on().settings("store_outage_max = \"500ms\"\n")).await;
    let body = json!({"budget": "kis-real", "class": "order", "max_wait_ms": 5000});
    serve.acquire(body.clone()).await.done();
    serve.ask(get("/readyz")).await.done();

    let server = tokio::task::spawn_blocking(move || {
        server.halt(call_budget::service::scratch_postgres::Halt::Immediate).unwrap();
        server
    });
    let mut server = server.await.unwrap();
    let answer = serve.acquire(body.clone()).await;
    let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
    // In the very moment an answer may have been lost.
    let problem = match code.as_str() {
        "CALL_BUDGET_UNCERTAIN" => serve.acquire(body.clone()).await,
        _ => answer,
    };
    let problem = problem.refused(503, "CALL_BUDGET_STORE_UNAVAILABLE");
    assert!(problem["stage"].is_string(), "{problem}");
    serve.ask(get("/livez")).await.done();
    eventually("it is not ready", async || serve.ask(get("/readyz")).await.status == 503).await;
    let ready = serve.ask(get("/readyz")).await;
    assert_eq!(ready.header("retry-after"), Some("1"));
    let ready = ready.json();
    let why = ready["why"].as_str().unwrap();
    assert!(ready["ready"] == false && !why.contains("127.0.0.1") && !why.contains("(stage"), "{ready}");
    serve.ask(get("/v1/budgets")).await.refused(503, "CALL_BUDGET_STORE_UNAVAILABLE");
    serve.ask(get("/v1/budgets/kis-real")).await.refused(503, "CALL_BUDGET_STORE_UNAVAILABLE");
    let status = serve.status().await;
    assert!(status["store"]["reachable"] == false && status["store"]["why"].is_string(), "{status}");
    assert_eq!(status["budgets"][0]["name"], "kis-real", "what was seen last is shown: {status}");

    let server = tokio::task::spawn_blocking(move || {
        server.resume().unwrap();
        server
    });
    let _server = server.await.unwrap();
    eventually("it is ready again", async || serve.ask(get("/readyz")).await.status == 200).await;
    eventually("callers are served again", async || serve.acquire(body.clone()).await.status == 200).await;
    assert_eq!(serve.status().await["store"]["reachable"], true);
}

#[tokio::test]
async fn a_role_without_rights_is_a_matter_for_operators_and_not_for_waiting() {
    let mut database = database().await;
    let role = database.role().await;
    let serve = Serve::start(&role.url, How::on()).await;
    let body = json!({"budget": "kis-real", "class": "order"});
    serve.acquire(body.clone()).await.refused(500, "CALL_BUDGET_MISCONFIGURED");
    for path in ["/v1/budgets", "/v1/budgets/kis-real"] {
        let problem = serve.ask(get(path)).await.refused(500, "CALL_BUDGET_MISCONFIGURED");
        assert!(problem["detail"].as_str().unwrap().contains("--as client"), "{problem}");
    }
    call_budget(&database.url, &["access", &role.name, "--as", "client"]).await;
    eventually("the client's rights are enough", async || serve.acquire(body.clone()).await.status == 200).await;
    eventually("and for being ready", async || serve.ask(get("/readyz")).await.status == 200).await;
    database.client.batch_execute(&format!("DROP OWNED BY \"{}\"", role.name)).await.unwrap();
}

#[tokio::test]
async fn a_caller_who_hangs_up_takes_no_slot_and_leaves_nothing() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    call_budget(&database.url, &["budget", "pushback", "kis-real", "--for", "3s"]).await;
    let body = json!({"budget": "kis-real", "class": "order", "max_wait_ms": 60_000});
    let call = json!({"surface": "kis/real/quote", "max_wait_ms": 60_000});
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut wire = serve.wire().await;
        wire.send(&post("/v1/acquire", &body).bytes()).await;
        waiting.push(wire);
    }
    eventually("five wait", async || serve.status().await["service"]["waiting"] == 5).await;
    drop(waiting);
    eventually("nobody waits", async || serve.status().await["service"]["waiting"] == 0).await;
    // No surface of that name here: the service without settings has none.
    serve.ask(post("/v1/calls", &call)).await.refused(404, "CALL_BUDGET_UNKNOWN_SURFACE");
    let free = "SELECT blocked_until_us < call_budget.call_budget_now_us() FROM call_budget.call_budget
                 WHERE name = 'kis-real'";
    let free = free.replace("call_budget.call_budget_now_us()", "(extract(epoch FROM clock_timestamp()) * 1000000)");
    eventually("the pushback is over", async || database.client.query_one(&free, &[]).await.unwrap().get::<_, bool>(0))
        .await;
    // Long enough for any that was still wanted.
    tokio::time::sleep(ms(700)).await;
    assert_eq!(granted(&database).await, 0);
    eventually("nobody is waited for", async || {
        let view = serve.ask(get("/v1/budgets/kis-real")).await.done();
        view["classes"].as_array().unwrap().iter().all(|class| class["waiting_units"] == 0)
    })
    .await;
}

#[tokio::test]
async fn a_caller_who_is_gone_is_noticed_whatever_he_sent_after_his_request() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    call_budget(&database.url, &["budget", "pushback", "kis-real", "--for", "60s"]).await;
    let request = post("/v1/acquire", &json!({"budget": "kis-real", "class": "order", "max_wait_ms": 86_400_000}));
    for (after, reset) in [("\r\n".to_owned(), false), (request.bytes(), false), (request.bytes(), true)] {
        let mut wire = serve.wire().await;
        wire.send(&(request.bytes() + &after)).await;
        eventually("it waits", async || serve.status().await["service"]["waiting"] == 1).await;
        if reset {
            rustix::net::sockopt::set_socket_linger(wire.0.get_ref(), Some(Duration::ZERO)).unwrap();
        }
        drop(wire);
        eventually("nobody waits", async || serve.status().await["service"]["waiting"] == 0).await;
    }
    assert_eq!(granted(&database).await, 0);
}

#[tokio::test]
async fn callers_who_wait_leave_room_for_everybody_else() {
    let database = database().await;
    let how = How::on().admin().settings(crate::SURFACES).argument("--max-connections", "5");
    let serve = Serve::start(&database.url, how).await;
    let call = serve.begin("mine/real/prices").await;
    call_budget(&database.url, &["budget", "pushback", "kis-real", "--for", "60s"]).await;
    let acquire = post("/v1/acquire", &json!({"budget": "kis-real", "class": "order", "max_wait_ms": 80_000}));
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut wire = serve.wire().await;
        wire.send(&acquire.bytes()).await;
        waiting.push(wire);
    }
    eventually("four wait", async || serve.status().await["service"]["waiting"] == 4).await;
    for more in [acquire, post("/v1/calls", &json!({"surface": "kis/real/quote", "max_wait_ms": 80_000}))] {
        // Whoever would keep the connection does not keep the last one.
        let mut wire = serve.wire().await;
        wire.ask(&more).await.refused(503, "CALL_BUDGET_BUSY");
        wire.ended().await;
    }
    let listens = serve.address.to_string();
    call_budget(&database.url, &["serve", "--check", "--listen", &listens]).await;
    serve.settle(&call, json!({"status": 200})).await.done();
    let pause = post("/v1/admin/pause", &json!({"budget": "kis-real"})).token(crate::ADMIN);
    assert_eq!(serve.ask(pause).await.done()["paused"], true);
}

#[tokio::test]
async fn while_the_switch_is_off_it_paces_itself_and_leaves_the_store_alone() {
    let database = database().await;
    let off = How::default().settings("polite_interval = \"1ms\"\n").settings(crate::SURFACES);
    let serve = Serve::start(&database.url, off).await;
    for _ in 0..3 {
        let leave = serve.acquire(json!({"budget": "kis-real", "class": "order"})).await.done();
        assert_eq!(
            [&leave["governed"], &leave["nonce"], &leave["remaining_ms"]],
            [&json!(false), &json!(null), &json!(null)]
        );
        let call = serve.begin("kis/real/quote").await;
        assert_eq!([&call["governed"], &call["remaining_ms"]], [&json!(false), &json!(null)]);
        serve.settle(&call, json!({"status": 200})).await.done();
    }
    serve.ask(get("/readyz")).await.done();
    assert_eq!(granted(&database).await, 0);
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let sessions = async || database.client.query_one(others, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(sessions().await, 0);
    // Whoever looks all the same asks the store, and leaves nothing there.
    serve.ask(get("/v1/budgets")).await.done();
    assert_eq!(sessions().await, 1);
    tokio::time::sleep(ms(6000)).await;
    eventually("the store is left alone again", async || sessions().await == 0).await;
    assert!(serve.said().contains("call_budget_switch_off"), "{}", serve.said());
    // Nothing has to say where the store is.
    let serve = Serve::start("", How::default()).await;
    serve.acquire(json!({"budget": "any", "class": "thing"})).await.done();
    let status = serve.status().await;
    assert!(status["store"]["reachable"] == false && status["server"] == Value::Null, "{status}");
}
