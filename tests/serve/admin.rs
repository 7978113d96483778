//! `POST /v1/admin/...`: orders, and who may give them.

use serde_json::{Value, json};

use crate::support::eventually;
use crate::wire::{Answer, ask, get, post};
use crate::{ADMIN, CALLER, How, SURFACES, Serve, call_budget, database};

const PATHS: [&str; 5] =
    ["/v1/admin/pause", "/v1/admin/resume", "/v1/admin/pushback", "/v1/admin/fence", "/v1/admin/breaker"];

async fn order(serve: &Serve, what: &str, body: Value) -> Answer {
    serve.ask(post(&format!("/v1/admin/{what}"), &body).token(ADMIN)).await
}

#[tokio::test]
async fn only_the_admin_token_gives_orders() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::with_tokens()).await;
    let body = json!({"budget": "kis-real"});
    for path in PATHS {
        for given in [None, Some(CALLER), Some("not-a-real-admin-tokem"), Some(""), Some("not-a-real-admin-token2")] {
            let order = post(path, &body);
            let order = given.map_or_else(|| order.clone(), |token| order.clone().token(token));
            let answer = serve.ask(order).await;
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{path} {given:?}");
            answer.refused(401, "CALL_BUDGET_UNAUTHORIZED");
        }
        let basic = post(path, &body).header("Authorization", &format!("Basic {ADMIN}"));
        serve.ask(basic).await.refused(401, "CALL_BUDGET_UNAUTHORIZED");
    }
    assert_eq!(serve.ask(get("/v1/budgets/kis-real").token(ADMIN)).await.done()["paused"], false);
}

#[tokio::test]
async fn without_an_admin_token_nobody_gives_orders() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on()).await;
    for path in PATHS {
        let body = json!({"budget": "kis-real"});
        serve.ask(post(path, &body).token(ADMIN)).await.refused(403, "CALL_BUDGET_NO_ADMIN_TOKEN");
        serve.ask(post(path, &body)).await.refused(403, "CALL_BUDGET_NO_ADMIN_TOKEN");
    }
    assert_eq!(serve.status().await["service"]["admin"], false);
}

#[tokio::test]
async fn callers_need_a_token_where_one_is_set_and_either_is_good() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::with_tokens()).await;
    let acquire = post("/v1/acquire", &json!({"budget": "kis-real", "class": "order"}));
    let begin = post("/v1/calls", &json!({"surface": "x"}));
    let settle = post("/v1/calls/1/settle", &json!({"status": 200}));
    let looking = ["/v1/budgets", "/v1/budgets/x", "/v1/breakers", "/v1/status", "/v1/events"].map(get);
    for request in [acquire.clone(), begin, settle].into_iter().chain(looking) {
        for given in [None, Some("wrong-token-wrong-token"), Some("")] {
            let request = given.map_or_else(|| request.clone(), |token| request.clone().token(token));
            serve.ask(request).await.refused(401, "CALL_BUDGET_UNAUTHORIZED");
        }
    }
    for token in [CALLER, ADMIN] {
        serve.ask(acquire.clone().token(token)).await.done();
        serve.ask(acquire.clone().header("authorization", &format!("bEaReR  {token} "))).await.done();
    }
    for open in ["/", "/page.js", "/page.css", "/livez", "/readyz", "/v1/openapi.json"] {
        assert_eq!(serve.ask(get(open)).await.status, 200, "{open}");
    }
}

#[tokio::test]
async fn pause_resume_pushback_and_fence_take_effect_and_show_the_budget_as_it_is_then() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on().admin()).await;
    let acquire = json!({"budget": "kis-real", "class": "order", "max_wait_ms": 3000});
    let named = json!({"budget": "kis-real"});

    let view = order(&serve, "pause", json!({"budget": "kis-real", "reason": "점검"})).await.done();
    assert_eq!(
        [&view["name"], &view["paused"], &view["paused_reason"]],
        [&json!("kis-real"), &json!(true), &json!("점검")]
    );
    assert_eq!(view["classes"].as_array().unwrap().len(), 2);
    serve.acquire(acquire.clone()).await.refused(503, "CALL_BUDGET_PAUSED");
    // The same as the command shows.
    let shown: Value =
        serde_json::from_str(&call_budget(&database.url, &["status", "kis-real", "--json"]).await).unwrap();
    assert_eq!(shown["budgets"][0]["paused_reason"], "점검");

    let view = order(&serve, "resume", named.clone()).await.done();
    assert_eq!([&view["paused"], &view["paused_reason"]], [&json!(false), &Value::Null]);
    eventually("callers are served", async || serve.acquire(acquire.clone()).await.status == 200).await;

    let pushback = json!({"budget": "kis-real", "duration_ms": 20_000, "reason": "they asked"});
    let view = order(&serve, "pushback", pushback).await.done();
    let left = view["blocked_for_us"].as_i64().unwrap();
    assert!((10_000_000..=20_000_000).contains(&left) && view["blocked_reason"] == "they asked", "{view}");
    serve.acquire(acquire.clone()).await.refused(429, "CALL_BUDGET_WAIT_EXCEEDED");

    let fences = view["fences"].as_i64().unwrap();
    let view = order(&serve, "fence", named).await.done();
    assert!(view["fences"].as_i64().unwrap() > fences && view["fenced_for_us"].as_i64().unwrap() > 0, "{view}");
    eventually("all four are in the log", async || {
        let said = serve.said();
        ["paused", "resumed", "pushed_back", "fenced_by_hand"]
            .iter()
            .all(|w| said.contains(&format!("call_budget_{w} ")))
    })
    .await;
}

#[tokio::test]
async fn an_order_that_cannot_be_changes_nothing_and_names_what_is_wrong() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on().admin().settings(SURFACES)).await;
    let long = "x".repeat(201);
    for (what, body, named) in [
        ("pause", json!({"budget": "kis-real", "reason": long}), "reason"),
        ("pause", json!({"budget": "kis-real", "reason": "two\nlines"}), "reason"),
        ("pause", json!({"budget": ""}), "budget"),
        ("pause", json!({"budget": "x".repeat(101)}), "budget"),
        ("pause", json!({"budget": 7}), "budget"),
        ("pause", json!({}), "budget"),
        ("resume", json!({"budget": "kis-real", "reason": "x"}), "reason"),
        ("pushback", json!({"budget": "kis-real", "duration_ms": 0}), "duration_ms"),
        ("pushback", json!({"budget": "kis-real", "duration_ms": 3_600_001}), "duration_ms"),
        ("pushback", json!({"budget": "kis-real", "duration_ms": -1}), "duration_ms"),
        ("pushback", json!({"budget": "kis-real", "duration_ms": 1.5}), "duration_ms"),
        ("pushback", json!({"budget": "kis-real"}), "duration_ms"),
        ("breaker", json!({"breaker": "mine/real/prices", "order": "open", "who": "a", "why": "b"}), "order"),
        ("breaker", json!({"breaker": "mine/real/prices", "order": "reset", "who": " ", "why": "b"}), "who"),
        ("breaker", json!({"breaker": "mine/real/prices", "order": "reset", "who": "a", "why": ""}), "why"),
        ("breaker", json!({"breaker": "mine/real/prices", "order": "reset", "who": "a", "why": "\u{7}"}), "why"),
        (
            "breaker",
            json!({"breaker": "mine/real/prices", "order": "reset", "who": "a", "why": "b", "for_ms": 1000}),
            "for_ms",
        ),
        (
            "breaker",
            json!({"breaker": "mine/real/prices", "order": "bypass", "who": "a", "why": "b", "for_ms": 0}),
            "for_ms",
        ),
    ] {
        let problem = order(&serve, what, body.clone()).await.refused(400, "CALL_BUDGET_BAD_REQUEST");
        assert!(problem["detail"].as_str().unwrap().contains(named), "{body}: {problem}");
    }
    for what in ["pause", "resume", "fence"] {
        order(&serve, what, json!({"budget": "nobody"})).await.refused(404, "CALL_BUDGET_UNKNOWN_BUDGET");
    }
    let unknown = json!({"breaker": "mine/real/price", "order": "reset", "who": "a", "why": "b"});
    order(&serve, "breaker", unknown).await.refused(404, "CALL_BUDGET_UNKNOWN_BREAKER");
    serve.ask(ask("POST", "/v1/admin/pause").plain("{}").token(ADMIN)).await.refused(415, "CALL_BUDGET_NOT_JSON");
    let view = serve.ask(get("/v1/budgets/kis-real")).await.done();
    assert_eq!([&view["paused"], &view["blocked_for_us"], &view["fences"]], [&json!(false), &json!(0), &json!(0)]);
}

#[tokio::test]
async fn a_breaker_is_ordered_about_and_says_by_whom_and_why() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on().admin().settings(SURFACES)).await;
    let breaker = |order: &str| json!({"breaker": "mine/real/prices", "order": order, "who": "kim", "why": "the vendor said so", "for_ms": 60_000});
    let begin = post("/v1/calls", &json!({"surface": "mine/real/prices", "max_wait_ms": 10_000}));

    let shown = order(&serve, "breaker", breaker("force_open")).await.done();
    assert!(shown["why"].as_str().unwrap().contains("kim"), "{shown}");
    serve.ask(begin.clone()).await.refused(503, "CALL_BUDGET_CIRCUIT_OPEN");

    order(&serve, "breaker", breaker("bypass")).await.done();
    for _ in 0..3 {
        let call = serve.ask(begin.clone()).await.done();
        serve.settle(&call, json!({"status": 502})).await.done();
    }
    serve.ask(begin.clone()).await.done();

    order(&serve, "breaker", breaker("observe")).await.done();
    serve.ask(begin.clone()).await.done();

    let reset = json!({"breaker": "mine/real/prices", "order": "reset", "who": "kim", "why": "it is well"});
    let shown = order(&serve, "breaker", reset).await.done();
    assert_eq!([&shown["state"], &shown["failures"]], [&json!("closed"), &json!(0)], "{shown}");
    serve.ask(begin).await.done();
}

#[tokio::test]
async fn a_role_that_may_not_change_anything_is_told_which_rights_it_wants() {
    let mut database = database().await;
    let role = database.role().await;
    call_budget(&database.url, &["access", &role.name, "--as", "client"]).await;
    let serve = Serve::start(&role.url, How::on().admin()).await;
    let problem = order(&serve, "pause", json!({"budget": "kis-real"})).await.refused(500, "CALL_BUDGET_MISCONFIGURED");
    assert!(problem["detail"].as_str().unwrap().contains("--as admin"), "{problem}");
    database.client.batch_execute(&format!("DROP OWNED BY \"{}\"", role.name)).await.unwrap();
}

#[tokio::test]
async fn a_schema_of_another_contract_is_left_as_it_is() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on().admin()).await;
    for (contract, way_out) in [(0, "call-budget migrate"), (999, "newer call-budget")] {
        let other = format!(
            "CREATE OR REPLACE FUNCTION call_budget.call_budget_contract() RETURNS integer LANGUAGE sql IMMUTABLE
                 AS 'SELECT {contract}'"
        );
        database.client.batch_execute(&other).await.unwrap();
        for (what, body) in [
            ("pause", json!({"budget": "kis-real"})),
            ("resume", json!({"budget": "kis-real"})),
            ("fence", json!({"budget": "kis-real"})),
            ("pushback", json!({"budget": "kis-real", "duration_ms": 1000})),
        ] {
            let problem = order(&serve, what, body).await.refused(500, "CALL_BUDGET_MISCONFIGURED");
            let detail = problem["detail"].as_str().unwrap();
            let ours = format!("speaks {}", call_budget::store::CONTRACT);
            for word in [&format!("contract {contract}"), &ours, way_out] {
                assert!(detail.contains(word), "{detail} does not say {word}");
            }
        }
        // Who looks is told the same.
        eventually("looking says it", async || {
            let answer = serve.ask(get("/v1/budgets")).await;
            answer.status == 500
                && answer.refused(500, "CALL_BUDGET_MISCONFIGURED")["detail"].as_str().unwrap().contains(way_out)
        })
        .await;
    }
    let untouched = "SELECT NOT paused AND fences = 0 FROM call_budget.call_budget
                      WHERE name = 'kis-real'";
    assert!(database.client.query_one(untouched, &[]).await.unwrap().get::<_, bool>(0));
}
