//! An order book that can be shown whatever happens: KIS, else a second source that is 15 minutes late, else simulated
//! data; and whoever looks at it is told which one it is. A mock vendor plays KIS, another server the second source, both
//! over real HTTP.
//!
//! ```text
//! cargo run --example order_book
//! ```

#[path = "support/server.rs"]
mod server;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use call_budget::clock::{Clock, SystemClock};
use call_budget::fallback::{Delay, Fallback, Found, Miss, NoSource, Sourced};
use call_budget::policy::Wall;
use call_budget::reqwest::SendThrough;
use call_budget::service::mock_vendor::{self, BlackHole, MockVendor};
use call_budget::test_util::{Limit, MemoryStore};
use call_budget::{Answered, CallBudget, CallError, Credential, Settings};
use jiff::Timestamp;
use jiff::tz::offset;
use serde::Serialize;
use serde_json::Value;

use server::{Reply, Server};

/// The breakers are the presets; only their waits are short, so that the example is.
const SETTINGS: &str = r#"
[breaker.kis-book]
preset = "rate-kis"
schedule = ["3s"]

[breaker.second-source]
preset = "rate-yahoo"
schedule = ["3s"]

[retry.book]
waits = ["50ms", "50ms"]
on = "transport"

[surface."kis/real/book"]
budget = "kis-real"
class = "quote"
vendor = "kis"
breaker = "kis-book"
retry = "book"
idempotent = true
attempt_timeout = "2s"

[surface."delayed/public/book"]
budget = "delayed"
class = "quote"
vendor = "http-shared-key"
breaker = "second-source"
idempotent = true
attempt_timeout = "2s"
"#;

const QUARTER: Delay = Delay::Late(Duration::from_secs(15 * 60));
const LIVE_NOTE: &str = "KIS 실시간 호가입니다.";
const LATE_NOTE: &str = "KIS 실시간 호가 일시 불가. 15분 지연 데이터를 표시합니다.";
const SIMULATED_NOTE: &str = "KIS 실시간 호가와 15분 지연 호가 모두 일시 불가. 실제 시세가 아닌 모의 데이터입니다.";

const KIS_BOOK: &str =
    "/uapi/domestic-stock/v1/quotations/inquire-asking-price-exp-ccn?FID_COND_MRKT_DIV_CODE=J&FID_INPUT_ISCD=005930";

type Budgets = CallBudget<SystemClock, MemoryStore<SystemClock>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let kis = MockVendor::start(mock_vendor::Settings { limit: 200, ..mock_vendor::Settings::default() }).await?;
    let second_works = Arc::new(AtomicBool::new(true));
    let second = second_source(Arc::clone(&second_works)).await?;
    let shop = Shop {
        budgets: budgets()?,
        client: reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()?,
        kis: format!("http://{}{KIS_BOOK}", kis.addr()),
        second: second.url("/book/005930"),
    };

    println!("== 1. KIS 정상");
    shop.show().await?;

    println!("\n== 2. KIS 연결이 끊긴다: 세 번 시도한 뒤 둘째 공급자");
    kis.set(|settings| settings.black_hole = Some(BlackHole::Reset))?;
    shop.show().await?;

    println!("\n== 3. 실패가 이어져 KIS 차단기가 열린다: KIS에는 보내지 않고 바로 둘째 공급자");
    shop.until_open("kis/real/book").await?;
    shop.show().await?;

    println!("\n== 4. 둘째 공급자도 고장: 모의 데이터");
    second_works.store(false, Ordering::Relaxed);
    shop.until_open("delayed/public/book").await?;
    shop.show().await?;

    println!("\n== 5. 둘 다 회복: 탐침이 성공하면 다시 KIS");
    kis.set(|settings| settings.black_hole = None)?;
    second_works.store(true, Ordering::Relaxed);
    shop.until_closed("kis/real/book").await?;
    shop.show().await?;
    kis.stop().await;
    Ok(())
}

/// Budgets in memory, wide enough that the example does not wait for them.
fn budgets() -> Result<Budgets, Box<dyn Error>> {
    let store = MemoryStore::new(SystemClock);
    let ms_50 = Duration::from_millis(50);
    let limit =
        Limit { units: 100, window: Duration::from_secs(1), send_window: ms_50, arrival_jitter: ms_50, max_cost: 1 };
    for budget in ["kis-real", "delayed"] {
        store.set_budget(budget, limit);
        store.set_class(budget, "quote", 0, 0.0);
    }
    Ok(CallBudget::with_store(&Settings::of_toml(SETTINGS, Path::new("."))?, SystemClock, store)?)
}

/// Another provider, whose data is 15 minutes old.
async fn second_source(works: Arc<AtomicBool>) -> std::io::Result<Server> {
    Server::start(move |_| {
        let book = r#"{"symbol":"005930","bids":[[69800,120],[69700,340]],"asks":[[69900,90],[70000,410]]}"#;
        let (status, body) =
            if works.load(Ordering::Relaxed) { (200, book) } else { (502, "<html>Bad Gateway</html>") };
        Reply { status, headers: String::new(), body: body.to_owned() }
    })
    .await
}

/// Whoever shows order books.
struct Shop {
    budgets: Budgets,
    client: reqwest::Client,
    kis: String,
    second: String,
}

#[derive(Serialize)]
struct Book {
    bids: Vec<Level>,
    asks: Vec<Level>,
}

#[derive(Serialize)]
struct Level {
    price: u64,
    quantity: u64,
}

/// What the reader's screen gets.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    stock_id: u32,
    symbol: &'static str,
    source: String,
    source_note: String,
    as_of: Option<String>,
    delay_seconds: Option<u64>,
    passed_over: Vec<String>,
    #[serde(flatten)]
    book: Book,
}

impl Shop {
    async fn order_book(&self) -> Result<Sourced<Book>, NoSource> {
        Fallback::new()
            .source("KIS_REALTIME", Delay::None, LIVE_NOTE, async || Found::read(self.ask_kis().await, of_kis))
            .source("DELAYED_15_MIN", QUARTER, LATE_NOTE, async || Found::read(self.ask_second().await, of_second))
            .source("SIMULATED", Delay::Simulated, SIMULATED_NOTE, async || Ok(Found::new(simulated())))
            .first()
            .await
    }

    async fn ask_kis(&self) -> Result<Answered<http::Response<Bytes>>, CallError> {
        let request = self.client.get(&self.kis).header("tr_id", "FHKST01010200");
        request.send_through(&self.budgets, "kis/real/book", &Credential::new("desk-1")).await
    }

    async fn ask_second(&self) -> Result<Answered<http::Response<Bytes>>, CallError> {
        let key = Credential::new("shared-key");
        self.client.get(&self.second).send_through(&self.budgets, "delayed/public/book", &key).await
    }

    async fn show(&self) -> Result<(), Box<dyn Error>> {
        let found = self.order_book().await?;
        let shown = Shown {
            stock_id: 1,
            symbol: "005930",
            source: found.source,
            source_note: found.note,
            as_of: found.as_of.map(in_korea),
            delay_seconds: match found.delayed {
                Delay::None => Some(0),
                Delay::Late(by) => Some(by.as_secs()),
                Delay::Simulated => None,
            },
            passed_over: found.reason.iter().map(ToString::to_string).collect(),
            book: found.value,
        };
        println!("{}", serde_json::to_string_pretty(&shown)?);
        for report in self.budgets.breakers() {
            println!("차단기 {}: {}", report.name, report.view.shown.as_str());
        }
        Ok(())
    }

    /// Readers go on asking; nobody has to know that a breaker is about to open.
    async fn until_open(&self, surface: &str) -> Result<(), Box<dyn Error>> {
        let breaker = self.budgets.breaker(surface).ok_or("the surface has a breaker")?;
        for _ in 0..50 {
            // Open, or open and due: a call of this reader may have been the probe.
            if breaker.view().episode.is_some() && breaker.view().shown.as_str() == "open" {
                return Ok(());
            }
            self.order_book().await?;
        }
        Err(format!("the breaker of {surface} does not open").into())
    }

    async fn until_closed(&self, surface: &str) -> Result<(), Box<dyn Error>> {
        let breaker = self.budgets.breaker(surface).ok_or("the surface has a breaker")?;
        for _ in 0..50 {
            match breaker.view() {
                view if view.shown.as_str() == "closed" => return Ok(()),
                view => {
                    if let Some(at) = view.retry_at {
                        SystemClock.sleep_until(at).await;
                    }
                    self.order_book().await?;
                }
            }
        }
        Err(format!("the breaker of {surface} does not close").into())
    }
}

/// KIS writes ten levels a side, each in two fields.
fn of_kis(answered: Answered<http::Response<Bytes>>) -> Result<Book, Miss> {
    let answer: Value = serde_json::from_slice(answered.answer.body()).map_err(Miss::stop)?;
    if answer["rt_cd"] != "0" {
        return Err(Miss::stop(format!("KIS: {}", answer["msg1"])));
    }
    let number = |name: String| answer["output1"][name].as_str().and_then(|text| text.parse().ok());
    let side = |side: &str| -> Option<Vec<Level>> {
        let level =
            |n| Some(Level { price: number(format!("{side}p{n}"))?, quantity: number(format!("{side}p_rsqn{n}"))? });
        (1..=2).map(level).collect()
    };
    match (side("bid"), side("ask")) {
        (Some(bids), Some(asks)) => Ok(Book { bids, asks }),
        _ => Err(Miss::no_data("the book is empty")),
    }
}

fn of_second(answered: Answered<http::Response<Bytes>>) -> Result<Book, Miss> {
    let answer: Value = serde_json::from_slice(answered.answer.body()).map_err(Miss::stop)?;
    let side = |side: &str| -> Option<Vec<Level>> {
        let level = |pair: &Value| Some(Level { price: pair[0].as_u64()?, quantity: pair[1].as_u64()? });
        answer[side].as_array()?.iter().map(level).collect()
    };
    match (side("bids"), side("asks")) {
        (Some(bids), Some(asks)) => Ok(Book { bids, asks }),
        _ => Err(Miss::no_data("no levels")),
    }
}

fn simulated() -> Book {
    let level = |price| Level { price, quantity: 100 };
    Book { bids: vec![level(69_900), level(69_800)], asks: vec![level(70_000), level(70_100)] }
}

fn in_korea(wall: Wall) -> String {
    match Timestamp::from_microsecond(wall.unix_us()) {
        Ok(moment) => moment.display_with_offset(offset(9)).to_string(),
        Err(error) => error.to_string(),
    }
}
