//! Secrets are planted wherever one can come in, everything is made to fail, and none comes out: not in answers, not in logs at
//! their most talkative (ours and those of what is beneath), not in what is published.

use std::fmt::Write;
use std::time::Duration;

use call_budget::service::scratch_postgres::{Halt, ScratchPostgres};
use rustix::process::Signal;
use serde_json::json;

use crate::support::{self, eventually};
use crate::wire::{Ask, ask, get, post};
use crate::{How, SURFACES, Serve, call_budget, prepare};

const DATABASE: &str = "planted-database-password-4711";
const WRONG: &str = "planted-wrong-password-4712";
const ADMIN: &str = "planted-admin-token-4713";
const CALLER: &str = "planted-caller-token-4714";
/// As long as KIS's app keys are.
const APP_KEY: &str = "PSplantedAppKey4715PSplantedAppKey47";
const APP_SECRET: &str = "planted-app-secret-4716/planted+app+secret==";
const AUTHORIZATION: &str = "eyJplanted.vendor-token-4717";
const PLANTED: [&str; 7] = [DATABASE, WRONG, ADMIN, CALLER, APP_KEY, APP_SECRET, AUTHORIZATION];

const USER: &str = "planted_user";

/// All that came out, and whence.
#[derive(Default)]
struct Seen(String);

impl Seen {
    async fn ask(&mut self, serve: &Serve, ask: Ask) {
        let answer = serve.ask(ask).await;
        writeln!(self.0, "{}{}", answer.head, answer.body).unwrap();
    }

    #[track_caller]
    fn holds_nothing_planted(&self) {
        for secret in PLANTED {
            if let Some(at) = self.0.find(secret) {
                let from = self.0[..at].rfind('\n').map_or(0, |line| line + 1);
                let line = self.0[from..].lines().next().unwrap();
                panic!("{secret} came out: {line}");
            }
        }
    }
}

fn tokens(how: How) -> How {
    how.file("admin", ADMIN)
        .file("caller", CALLER)
        .argument("--admin-token-file", "admin")
        .argument("--caller-token-file", "caller")
}

/// Everything that can be asked, right and wrong, with secrets in every place where callers put them by mistake.
async fn ask_everything(serve: &Serve, seen: &mut Seen) {
    let call = post(
        "/v1/calls",
        &json!({"surface": "kis/real/quote", "credential": "desk-1", "revision": 4715, "max_wait_ms": 3000}),
    );
    for outcome in [
        json!({"status": 500, "code": APP_KEY, "text": APP_SECRET}),
        json!({"status": 403, "code": "EGW00103", "text": format!("appsecret {APP_SECRET} is wrong")}),
        json!({"status": 200, "code": APP_SECRET, "text": AUTHORIZATION, "elapsed_ms": 5}),
    ] {
        let begun = serve.ask(call.clone().token(CALLER)).await;
        writeln!(seen.0, "{}", begun.body).unwrap();
        if begun.status == 200 {
            let id = begun.json()["id"].as_str().unwrap().to_owned();
            let settle = format!("/v1/calls/{id}/settle");
            let wrong = json!({"status": APP_SECRET, "code": {"appkey": APP_KEY}});
            seen.ask(serve, post(&settle, &wrong).token(CALLER)).await;
            seen.ask(serve, post(&settle, &json!({"error": AUTHORIZATION})).token(CALLER)).await;
            seen.ask(serve, post(&settle, &outcome).token(CALLER)).await;
        }
    }
    for path in ["/v1/acquire", "/v1/calls", "/v1/calls/x/settle", "/v1/admin/pause", "/v1/admin/breaker", "/nowhere"] {
        for body in [
            format!("{{\"budget\": \"{APP_SECRET}"),
            format!("{{\"appsecret\": \"{APP_SECRET}\"}}"),
            format!("{{\"budget\": {{\"appkey\": \"{APP_KEY}\"}}}}"),
            format!("{{\"cost\": \"{APP_SECRET}\"}}"),
            format!("[\"{APP_KEY}\", \"{APP_SECRET}\"]"),
            format!("\"{APP_SECRET}\""),
            format!("appkey={APP_KEY}&appsecret={APP_SECRET}"),
        ] {
            seen.ask(serve, ask("POST", path).body(&body).token(ADMIN)).await;
            seen.ask(serve, ask("POST", path).plain(&body).token(ADMIN)).await;
            seen.ask(serve, ask("POST", path).body(&body).token(AUTHORIZATION)).await;
        }
    }
    for path in [
        "/v1/status",
        "/v1/budgets",
        "/v1/budgets/x",
        "/v1/breakers",
        "/metrics",
        "/readyz",
        "/livez",
        "/",
        "/v1/nowhere",
    ] {
        for token in [ADMIN, CALLER, AUTHORIZATION] {
            seen.ask(serve, get(path).token(token)).await;
            let path = format!("{path}?appkey={APP_KEY}&token={AUTHORIZATION}");
            seen.ask(serve, get(&path).token(token).header("appsecret", APP_SECRET).header("Cookie", AUTHORIZATION))
                .await;
        }
    }
    seen.ask(serve, get("/v1/status").host(APP_KEY)).await;
    seen.ask(serve, get(&format!("/nowhere/{APP_SECRET}"))).await;
    let acquire = json!({"budget": "kis-real", "class": "order", "max_wait_ms": 3000});
    seen.ask(serve, post("/v1/acquire", &acquire).token(CALLER)).await;
    for order in ["fence", "resume"] {
        let path = format!("/v1/admin/{order}");
        seen.ask(serve, post(&path, &json!({"budget": "kis-real"})).token(ADMIN)).await;
    }
    let mut events = serve.wire().await;
    events.send(&get("/v1/events").token(ADMIN).bytes()).await;
    for _ in 0..2 {
        write!(seen.0, "{:?}", events.event().await.unwrap()).unwrap();
    }
    // Nonsense, too, is logged by somebody.
    let mut wire = serve.wire().await;
    wire.send(&format!("GET /{APP_SECRET} HTTP/9\r\nAuthorization: Bearer {ADMIN}\r\n\r\n")).await;
    wire.ended().await;
}

/// A server with a role whose password is planted.
async fn server() -> ScratchPostgres {
    let server = support::server();
    let url = server.url("postgres");
    let client = support::connect_and_migrate(&url).await;
    client.batch_execute(&format!("CREATE ROLE {USER} LOGIN PASSWORD '{DATABASE}'")).await.unwrap();
    prepare(&url).await;
    call_budget(&url, &["access", USER, "--as", "admin"]).await;
    server
}

#[tokio::test]
async fn nothing_planted_comes_out_whatever_fails() {
    let mut server = server().await;
    let port = server.port();
    let owner = server.url("postgres");
    let place = format!(
        "host = \"localhost\"\nport = {port}\nuser = \"{USER}\"\ndbname = \"postgres\"\nsslmode = \"disable\"\n"
    );
    let url = format!("database_url = \"postgres://{USER}:{DATABASE}@127.0.0.1:{port}/postgres?sslmode=disable\"\n");
    let talkative = |how: How, log: &str| {
        let how = tokens(how.settings("store_outage_max = \"500ms\"\n"));
        how.settings(SURFACES).variable("RUST_LOG", "trace").variable("CALL_BUDGET_LOG_FORMAT", log)
    };
    let command = format!("password_command = \"echo {DATABASE}\"\n");
    let mut services = Vec::new();
    for how in [
        talkative(How::on().settings(&url), "text"),
        talkative(How::on().settings(&url), "json"),
        talkative(
            How::on().settings(&place).settings("password_file = \"password\"\n").file("password", DATABASE),
            "text",
        ),
        talkative(How::on().settings(&place).settings(&command), "json"),
        talkative(
            How::on().settings(&place).settings("password_file = \"password\"\n").file("password", WRONG),
            "text",
        ),
        talkative(
            How::on().settings(&place).settings(&format!("password_command = \"echo {WRONG} && exit 3\"\n")),
            "json",
        ),
        talkative(How::on().settings(&place).settings(&format!("password = \"{WRONG}\"\n")), "text"),
    ] {
        services.push(Serve::start("", how).await);
    }
    let mut seen = Seen::default();
    for serve in &services {
        ask_everything(serve, &mut seen).await;
    }
    // What is published, and what other commands show of it.
    let client = support::connect(&owner).await;
    eventually("a breaker is told to the fleet", async || {
        let sql = "SELECT coalesce(string_agg(b::text, E'\n'), '') FROM call_budget.call_budget_breaker AS b";
        let published: String = client.query_one(sql, &[]).await.unwrap().get(0);
        let told = published.contains("kis/real/quote");
        seen.0 += &published;
        told
    })
    .await;
    seen.0 += &call_budget(&owner, &["status", "--json"]).await;
    seen.0 += &call_budget(&owner, &["status"]).await;
    let halted = tokio::task::spawn_blocking(move || server.halt(Halt::Immediate).unwrap());
    halted.await.unwrap();
    for serve in &services {
        ask_everything(serve, &mut seen).await;
    }
    for serve in &mut services {
        serve.signal(Signal::TERM);
        assert_eq!(serve.ended().await.code(), Some(0));
    }
    // Until the last line is there.
    tokio::time::sleep(Duration::from_millis(200)).await;
    for serve in &services {
        let said = serve.said();
        assert!(said.contains("INFO"), "this log is not talkative: {said}");
        seen.0 += &said;
    }
    assert!(
        seen.0.len() > 100_000 && seen.0.contains("CALL_BUDGET_STORE_UNAVAILABLE") && seen.0.contains("\"verdict\"")
    );
    seen.holds_nothing_planted();
}

#[tokio::test]
async fn a_start_that_fails_shows_no_secret_of_its_settings() {
    let url = format!("postgres://{USER}:{DATABASE}@127.0.0.1:1/none");
    let mut seen = Seen::default();
    for how in [
        tokens(How::on().settings(&format!("database_url = \"{url}?sslmode=nonsense\"\n"))),
        tokens(How::on().settings(&format!("database_url = \"{url}\"\nzzz = \"{APP_SECRET}\"\n"))),
        tokens(How::on().settings(&format!("database_url = \"{url}\"\n[serve]\nadmin_token = \"{ADMIN}\"\n"))),
        tokens(How::on().settings(&format!("database_url = \"{url}\"\n[serve]\nlisten = \"{ADMIN}\"\n"))),
        tokens(How::on().settings(&format!("database_url = \"{url}\"\n[serve]\nmax_connections = \"{ADMIN}\"\n"))),
        tokens(
            How::on().settings(&format!("database_url = \"{url}\"\n[serve]\nallowed_hosts = {{ a = \"{ADMIN}\" }}\n")),
        ),
        tokens(How::on().settings(&format!("database_url = \"{url}\"\n[serve]\n\"{ADMIN}"))),
        How::default().file("caller", &format!("{CALLER} and {ADMIN}")).argument("--caller-token-file", "caller"),
        tokens(How::default().variable("CALL_BUDGET_SERVE_LISTEN", ADMIN)),
        tokens(How::default().variable("CALL_BUDGET_SERVE_CALLER_TOKEN", CALLER)),
        tokens(How::default().argument("--listen", "127.0.0.1:1").settings("[serve]\nmax_connections = 0\n")),
    ] {
        let (exit, said) = how.variable("RUST_LOG", "trace").fails("").await;
        assert!(exit == 2 || exit == 1, "{said}");
        seen.0 += &said;
    }
    assert!(seen.0.contains("[serve]"), "{}", seen.0);
    seen.holds_nothing_planted();
}

#[test]
#[should_panic(expected = "planted-admin-token-4713 came out: b planted-admin-token-4713")]
fn a_secret_that_came_out_would_be_seen() {
    Seen(format!("a\nb {ADMIN}\nc")).holds_nothing_planted();
}
