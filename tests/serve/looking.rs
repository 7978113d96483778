//! `/v1/status`, `/v1/budgets`, `/v1/breakers`: what there is to see.

use serde_json::{Value, json};

use crate::support::{self, eventually};
use crate::wire::{get, post};
use crate::{ADMIN, How, SURFACES, Serve, call_budget, database};

#[tokio::test]
async fn a_budget_of_any_name_is_found_by_it() {
    let database = database().await;
    let names = ["국내 주식/실전", "a b", "a%2Fb", "100%", "%ff", "?x=1#y", "..", "a+b", "😀"];
    for name in names {
        call_budget(&database.url, &["budget", "set", name, "--limit", "5", "--window", "1s"]).await;
    }
    let serve = Serve::start(&database.url, How::on()).await;
    for name in names {
        let path: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(serve.ask(get(&format!("/v1/budgets/{path}"))).await.done()["name"], name, "{path}");
    }
    let problem = serve.ask(get("/v1/budgets/kis%20real")).await.refused(404, "CALL_BUDGET_UNKNOWN_BUDGET");
    assert!(problem["detail"].as_str().unwrap().contains("kis real"), "{problem}");
    for wrong in ["%ff", "%c3%28", "%zz", "a%2", "%"] {
        serve.ask(get(&format!("/v1/budgets/{wrong}"))).await.refused(400, "CALL_BUDGET_BAD_REQUEST");
    }
    let all = serve.ask(get("/v1/budgets")).await.done();
    assert_eq!(all["budgets"].as_array().unwrap().len(), names.len() + 2);
}

#[tokio::test]
async fn the_status_shows_what_the_command_shows_and_how_the_service_is() {
    let database = database().await;
    let serve = Serve::start(&database.url, How::on().admin().settings(SURFACES)).await;
    let call = serve.begin("kis/real/quote").await;
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    let status = serve.status().await;
    let service = &status["service"];
    assert_eq!(service["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        ["enabled", "stopping", "admin", "waiting", "open_calls"].map(|key| service[key].clone()),
        [json!(true), json!(false), json!(true), json!(0), json!(1)]
    );
    assert!(service["uptime_s"].as_f64().unwrap() > 0.0 && status["unix_ms"].as_i64().unwrap() > 1_700_000_000_000);
    assert!(status["store"]["reachable"] == true && status["store"]["why"] == Value::Null, "{status}");
    let command: Value = serde_json::from_str(&call_budget(&database.url, &["status", "--json"]).await).unwrap();
    assert_eq!(keys(&status["budgets"][0]), keys(&command["budgets"][0]));
    assert_eq!(keys(&status["budgets"][0]["classes"][0]), keys(&command["budgets"][0]["classes"][0]));
    assert_eq!(keys(&status["server"]), keys(&command["server"]));
    let budgets = serve.ask(get("/v1/budgets")).await.done();
    assert_eq!(keys(&budgets["budgets"][0]), keys(&command["budgets"][0]));
    let here: Vec<_> = status["breakers_here"].as_array().unwrap().iter().map(|b| b["breaker"].clone()).collect();
    assert_eq!(here, ["kis/real/quote", "mine/real/prices"]);
    serve.settle(&call, json!({"status": 200})).await.done();
    assert_eq!(serve.status().await["service"]["open_calls"], 0);
}

#[tokio::test]
async fn what_waiting_does_not_mend_is_told_as_such_with_the_way_out() {
    let database = support::empty_database().await;
    let serve = Serve::start(&database.url, How::on().admin()).await;
    let missing = database.url.replace(&database.name, "call_budget_test_missing");
    let nowhere = Serve::start(&missing, How::on().admin()).await;
    for (serve, word) in [(&serve, "call-budget migrate"), (&nowhere, "database")] {
        let order = post("/v1/admin/fence", &json!({"budget": "b"})).token(ADMIN);
        for ask in [get("/v1/budgets"), get("/v1/budgets/b"), order] {
            let problem = serve.ask(ask).await.refused(500, "CALL_BUDGET_MISCONFIGURED");
            assert!(problem["detail"].as_str().unwrap().contains(word), "{problem}");
        }
    }
}

#[tokio::test]
async fn a_store_that_is_out_is_in_the_log_before_a_caller_comes() {
    let mut server = support::server();
    let url = server.url("postgres");
    support::connect_and_migrate(&url).await;
    let serve = Serve::start(&url, How::on().variable("RUST_LOG", "call_budget=info")).await;
    eventually("it is ready", async || serve.ask(get("/readyz")).await.status == 200).await;
    let told = |event: &str| serve.said().matches(event).count();
    let server = tokio::task::spawn_blocking(move || {
        server.halt(call_budget::service::scratch_postgres::Halt::Immediate).unwrap();
        server
    });
    let mut server = server.await.unwrap();
    eventually("it is told", async || told("call_budget_status_unreadable error=") == 1).await;
    // Once, however often it is looked for.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let server = tokio::task::spawn_blocking(move || {
        server.resume().unwrap();
        server
    });
    let _server = server.await.unwrap();
    eventually("that it is over, too", async || told("call_budget_status_readable") == 1).await;
    assert_eq!(told("call_budget_status_unreadable"), 1, "{}", serve.said());
}

fn keys(object: &Value) -> Vec<&String> {
    let mut keys: Vec<_> = object.as_object().unwrap_or_else(|| panic!("{object}")).keys().collect();
    keys.sort();
    keys
}
