//! Calls on real parts: a PostgreSQL, a vendor over HTTP, and a client that sees the bytes. Judged at the vendor and in the
//! database.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use call_budget::policy::breaker::Shown;
use call_budget::policy::verdict::{Broken, Verdict};
use call_budget::service::mock_vendor::{self, MockVendor};
use call_budget::{Answered, Attempt, CallBudget, CallError, Credential, Failed, Settings, Token};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::{Reply, ms};
use crate::support::{self, TestDatabase};

const SURFACES: &str = r#"
    [class.token]
    may_probe = true

    [class.minute]
    may_probe = true

    [surface."kis/real/token"]
    budget = "kis-token"
    class = "token"
    vendor = "kis"
    breaker = "escalating"

    [surface."kis/real/quote"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "escalating"
    token = "kis/real/token"
    attempt_timeout = "2s"

    [surface."kis/real/brief"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "escalating"
    attempt_timeout = "300ms"
"#;

const KEY: &str = r#"{"grant_type":"client_credentials","appkey":"mock-app-key","appsecret":"mock-app-secret"}"#;
const PRICE: &str = "FHKST01010100";

struct Ground {
    database: TestDatabase,
    vendor: MockVendor,
    budgets: CallBudget,
}

impl Ground {
    async fn new(vendor: mock_vendor::Settings) -> Self {
        let database = support::database().await;
        let fast = |budget| {
            format!(
                "SELECT call_budget.call_budget_set('{budget}', 10000, 1000000, 1000000, 1000000, 1, 400, 1000000);
                 SELECT call_budget.call_budget_class_set('{budget}', 'minute', 0, 0);
                 SELECT call_budget.call_budget_class_set('{budget}', 'token', 0, 0);"
            )
        };
        database.client.batch_execute(&(fast("kis-real") + &fast("kis-token"))).await.unwrap();
        let vendor = MockVendor::start(mock_vendor::Settings { limit: 10_000, ..vendor }).await.unwrap();
        let mut settings = Settings::of_toml(SURFACES, Path::new("")).unwrap().at(database.url.as_str());
        (settings.enabled, settings.rtt_max) = (true, ms(900));
        Self { budgets: CallBudget::new(&settings).unwrap(), database, vendor }
    }

    async fn price(&self, surface: &str) -> Result<Answered<Reply>, CallError> {
        let addr = self.vendor.addr();
        self.budgets.call(surface, &Credential::new("desk"), move |attempt| price(addr, attempt)).await
    }

    fn arrived(&self, tr_id: &str) -> usize {
        self.vendor.arrivals().iter().filter(|arrival| arrival.tr_id == tr_id).count()
    }
}

async fn price(addr: SocketAddr, attempt: Attempt) -> Result<Reply, Failed> {
    let token = attempt.token.as_ref().map_or("", |token| token.as_str());
    let nonce = attempt.nonce.expect("the switch is on");
    let head = format!(
        "GET /uapi/domestic-stock/v1/quotations/inquire-price HTTP/1.1\r\nHost: mock\r\nContent-Length: 0\r\n\
         tr_id: {PRICE}\r\nappkey: mock-app-key\r\nauthorization: Bearer {token}\r\nx-call-budget-nonce: {nonce}\r\n\r\n"
    );
    exchange(addr, &head, &attempt).await
}

async fn exchange(addr: SocketAddr, request: &str, attempt: &Attempt) -> Result<Reply, Failed> {
    let broken = |how| move |source: std::io::Error| Failed::Broken { how, source: source.into() };
    let mut stream = TcpStream::connect(addr).await.map_err(broken(Broken::NotConnected))?;
    let interrupted = broken(Broken::Interrupted);
    stream.write_all(request.as_bytes()).await.map_err(interrupted)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.map_err(interrupted)?);
    }
    attempt.heard();
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.map_err(interrupted)?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok(Reply { status, headers: Vec::new(), body: String::from_utf8(body).unwrap() })
}

fn source(
    addr: SocketAddr,
) -> impl Fn(CallBudget, Credential) -> futures_util::future::BoxFuture<'static, Result<Token, CallError>> {
    move |budgets, credential| {
        Box::pin(async move {
            let answered = budgets
                .call("kis/real/token", &credential, async |attempt| {
                    let length = KEY.len();
                    let request =
                        format!("POST /oauth2/tokenP HTTP/1.1\r\nHost: mock\r\nContent-Length: {length}\r\n\r\n{KEY}");
                    exchange(addr, &request, &attempt).await
                })
                .await?;
            let body: Value = serde_json::from_str(&answered.answer.body).unwrap();
            let token = body["access_token"].as_str().unwrap_or_else(|| panic!("{body}"));
            let valid_for = Duration::from_secs(body["expires_in"].as_u64().unwrap());
            Ok(Token { value: token.into(), valid_for })
        })
    }
}

#[tokio::test]
async fn egw00201_on_the_wire_blocks_the_budget_in_the_database_and_opens_nothing() {
    let ground = Ground::new(mock_vendor::Settings { refuse_below_limit: 1.0, ..Default::default() }).await;
    let answered = ground.price("kis/real/quote").await.unwrap();
    assert_eq!((answered.answer.status, answered.finding.verdict), (500, Verdict::None));
    assert_eq!(answered.finding.code.as_deref(), Some("EGW00201"));
    let blocked = "SELECT blocked_reason, blocked_by = session_user FROM call_budget.call_budget
                   WHERE name = 'kis-real' AND blocked_until_us > 0";
    support::eventually("the store was told", async || {
        ground.database.client.query_opt(blocked, &[]).await.unwrap().is_some()
    })
    .await;
    let row = ground.database.client.query_one(blocked, &[]).await.unwrap();
    assert_eq!((row.get::<_, String>(0).as_str(), row.get::<_, bool>(1)), ("EGW00201", true));
    let view = ground.budgets.breaker("kis/real/quote").unwrap().view();
    assert_eq!((view.shown, view.failures), (Shown::Closed, 0));
    assert_eq!(ground.budgets.throttled()["EGW00201"], 1);
    assert_eq!(ground.arrived(PRICE), 1);
}

#[tokio::test]
async fn a_token_that_the_vendor_no_longer_takes_is_fetched_anew_once() {
    let ground =
        Ground::new(mock_vendor::Settings { check_tokens: true, token_interval: Duration::ZERO, ..Default::default() })
            .await;
    ground.budgets.tokens_from("kis/real/token", source(ground.vendor.addr())).unwrap();
    for _ in 0..3 {
        assert_eq!(ground.price("kis/real/quote").await.unwrap().finding.verdict, Verdict::Good);
    }
    assert_eq!((ground.arrived(PRICE), ground.vendor.arrivals().len()), (3, 4), "one token for all");
    // Every token is old at once: the one in use fails, and so does the new one.
    ground.vendor.set(|settings| settings.token_life = Duration::from_nanos(1)).unwrap();
    let answered = ground.price("kis/real/quote").await.unwrap();
    assert_eq!((answered.attempts, answered.finding.code.as_deref()), (2, Some("EGW00123")));
    assert_eq!(
        (ground.arrived(PRICE), ground.vendor.arrivals().len()),
        (5, 7),
        "two calls, and one token between them"
    );
    let error = ground.price("kis/real/quote").await.unwrap_err();
    assert_eq!((error.code(), ground.vendor.arrivals().len()), ("CALL_BUDGET_HELD", 7));
    assert_eq!(ground.budgets.breaker("kis/real/quote").unwrap().view().failures, 0);
}

#[tokio::test]
async fn a_vendor_that_resets_and_hangs_opens_the_breaker_which_the_store_shows_and_then_nothing_arrives() {
    let ground = Ground::new(mock_vendor::Settings { reset: 1.0, ..Default::default() }).await;
    for _ in 0..3 {
        let error = ground.price("kis/real/brief").await.unwrap_err();
        assert_eq!((error.code(), error.may_have_been_sent()), ("CALL_BUDGET_INTERRUPTED", true), "{error:?}");
    }
    ground.vendor.set(|settings| (settings.reset, settings.hang) = (0.0, 1.0)).unwrap();
    for _ in 0..2 {
        let error = ground.price("kis/real/brief").await.unwrap_err();
        assert_eq!(error.code(), "CALL_BUDGET_ATTEMPT_TIMEOUT");
    }
    ground.vendor.set(|settings| settings.hang = 0.0).unwrap();
    let error = ground.price("kis/real/brief").await.unwrap_err();
    assert_eq!((error.code(), ground.arrived(PRICE)), ("CALL_BUDGET_CIRCUIT_OPEN", 5));
    let nonces: std::collections::BTreeSet<_> =
        ground.vendor.arrivals().iter().map(|arrival| arrival.note.nonce).collect();
    assert_eq!(nonces.len(), 5, "each attempt has a slot of its own");
    let shown = "SELECT count(*) FROM call_budget.call_budget_breaker WHERE breaker = 'kis/real/brief'";
    support::eventually("the store shows it", async || {
        ground.database.client.query_one(shown, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    assert_eq!(ground.price("kis/real/quote").await.unwrap().finding.verdict, Verdict::Good, "another breaker");
}
