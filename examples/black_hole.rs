//! The five minutes after the opening, replayed: at 09:00 connections to KIS break and then hang, until shortly before
//! 09:05. A mock vendor plays KIS over real HTTP, and the clock runs 60 times as fast. What is printed is the log.
//!
//! The breaker's calendar expects trouble from 09:00 to 09:05: the wait that would end after it ends with it, so that the
//! last probe goes out at 09:05:00. With `--without-calendar` the same breaker finds out at 09:09.
//!
//! ```text
//! cargo run --example black_hole
//! cargo run --example black_hole -- --without-calendar
//! ```

#[path = "support/fast_clock.rs"]
mod fast_clock;

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use call_budget::clock::Clock;
use call_budget::policy::{Instant, Wall};
use call_budget::reqwest::SendThrough;
use call_budget::service::mock_vendor::{self, BlackHole, MockVendor, Span};
use call_budget::test_util::{Limit, MemoryStore};
use call_budget::{CallBudget, CallError, Credential, Settings};
use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use jiff::tz::{Offset, offset};
use tokio::task::JoinSet;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use fast_clock::FastClock;

const SPEED: u32 = 60;
const KST: Offset = offset(9);
const SECOND: Duration = Duration::from_secs(1);
const SURFACE: &str = "kis/real/quote";

/// Everything here is in the time of the fast clock: of a machine that takes a millisecond, it sees 60.
const SETTINGS: &str = r#"
rtt_max = "2s"
statement_timeout = "30s"
store_outage_max = "5m"

[calendar.krx-open]
tz = "Asia/Seoul"
days = "mon-fri"
from = "09:00"
to = "09:05"
mode = "expect"

[breaker.opening]
preset = "escalating"
jitter = 0.0
calendar = "krx-open"

[breaker.no-calendar]
preset = "escalating"
jitter = 0.0

[surface."kis/real/quote"]
budget = "kis-real"
class = "quote"
vendor = "kis"
breaker = "BREAKER"
idempotent = true
attempt_timeout = "10s"
"#;

type Budgets = CallBudget<FastClock, MemoryStore<FastClock>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (breaker, last) = match std::env::args().nth(1).as_deref() {
        None => ("opening", kst(9, 5, 10)),
        Some("--without-calendar") => ("no-calendar", kst(9, 9, 20)),
        Some(other) => return Err(format!("{other} means nothing here; there is --without-calendar").into()),
    };
    // Connections are reset at first; then requests are taken and never answered.
    let (begins, hangs, ends) = (kst(9, 0, 2) + SECOND / 2, kst(9, 0, 8), kst(9, 4, 55));
    let opening = kst(8, 59, 50);
    let real = |moment: Wall| moment.saturating_since(opening) / SPEED;
    let spans = vec![
        Span { from: real(begins), to: real(hangs), how: BlackHole::Reset },
        Span { from: real(hangs), to: real(ends), how: BlackHole::Silent },
    ];
    // Its second is a real one, in which the fast clock lives a minute.
    let vendor = mock_vendor::Settings { limit: 10_000, black_hole_spans: spans, ..mock_vendor::Settings::default() };
    let vendor = MockVendor::start(vendor).await?;
    let clock = FastClock::start(opening, SPEED);

    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("call_budget::breaker=info"))
        .with_timer(InKorea(clock))
        .with_target(false)
        .with_ansi(false)
        .with_writer(std::io::stdout)
        .init();
    println!("개장 직후 블랙홀 재현: {SPEED}배속, 시각은 모두 KST\n");

    let budgets = budgets(clock, &SETTINGS.replace("BREAKER", breaker))?;
    call_every_second(&budgets, clock, &vendor, opening, last).await?;

    // Judged by whoever received it: the mock's own log of arrivals.
    let arrivals: Vec<Wall> = vendor.arrivals().iter().map(|arrival| clock.wall_at(machine_time(arrival))).collect();
    let inside = arrivals.iter().filter(|at| (begins..ends).contains(at)).count() as u64;
    let reached = inside + vendor.report().turned_away;
    let probes: Vec<String> = arrivals
        .iter()
        .filter(|at| **at >= hangs)
        // Those that vanished, and the first that was answered.
        .take(arrivals.iter().filter(|at| (hangs..ends).contains(at)).count() + 1)
        .map(|at| in_korea(*at, "%H:%M:%S"))
        .collect();
    println!("\n09:00:02부터 09:04:55까지 KIS에 닿은 요청: {reached}건");
    println!("차단기가 열린 뒤 KIS에 닿은 탐침: {}", probes.join(", "));
    let counters = budgets.counters();
    println!("전체 호출 {}건 중 보내지 않고 바로 거절: {}건", counters.calls, counters.refused_by_breaker);
    vendor.stop().await;
    Ok(())
}

/// Limit and windows are wide, since a millisecond of the machine is 60 here.
fn budgets(clock: FastClock, settings: &str) -> Result<Budgets, Box<dyn Error>> {
    let store = MemoryStore::new(clock);
    let send_window = 3 * SECOND;
    let limit = Limit { units: 20, window: SECOND, send_window, arrival_jitter: Duration::ZERO, max_cost: 1 };
    store.set_budget("kis-real", limit);
    store.set_class("kis-real", "quote", 0, 0.0);
    Ok(CallBudget::with_store(&Settings::of_toml(settings, Path::new("."))?, clock, store)?)
}

/// One call a second, each by itself: one that hangs delays no other. Ends when the last second is over and the episode too.
async fn call_every_second(
    budgets: &Budgets,
    clock: FastClock,
    vendor: &MockVendor,
    from: Wall,
    last: Wall,
) -> Result<(), Box<dyn Error>> {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .build()?;
    let url: Arc<str> = format!("http://{}/uapi/domestic-stock/v1/quotations/inquire-price", vendor.addr()).into();
    let breaker = budgets.breaker(SURFACE).ok_or("the surface has a breaker")?;
    let (mut calls, mut next) = (JoinSet::new(), from);
    // Far beyond what can happen: the example ends by itself.
    let at_the_latest = last + 20 * 60 * SECOND;
    while next <= last || (breaker.view().episode.is_some() && next <= at_the_latest) {
        clock.sleep_until(clock.at(next)).await;
        next = next + SECOND;
        let (budgets, client, url) = (budgets.clone(), client.clone(), Arc::clone(&url));
        calls.spawn(async move {
            // What a refusal is good for: it says when to come back. Whoever is told "within this second" does.
            if let Err(CallError::CircuitOpen { retry_after, .. }) = quote(&budgets, &client, &url).await
                && retry_after < SECOND
            {
                clock.sleep_until(clock.now() + retry_after).await;
                // It is refused again where somebody else was quicker.
                let _ = quote(&budgets, &client, &url).await;
            }
        });
    }
    calls.join_all().await;
    Ok(())
}

async fn quote(budgets: &Budgets, client: &reqwest::Client, url: &str) -> Result<(), CallError> {
    let request = client.get(url).header("tr_id", "FHKST01010100");
    request.send_through(budgets, SURFACE, &Credential::new("desk-1")).await.map(drop)
}

fn kst(hour: i8, minute: i8, second: i8) -> Wall {
    let local: DateTime = date(2026, 7, 8).at(hour, minute, second, 0);
    let moment = KST.to_timestamp(local).expect("a day of this century has a timestamp");
    Wall::from_unix_us(moment.as_microsecond())
}

fn in_korea(moment: Wall, form: &str) -> String {
    match Timestamp::from_microsecond(moment.unix_us()) {
        Ok(moment) => KST.to_datetime(moment).strftime(form).to_string(),
        Err(error) => error.to_string(),
    }
}

fn machine_time(arrival: &mock_vendor::Arrival) -> Instant {
    Instant::from_boot(Duration::from_micros(arrival.at_us))
}

/// Log lines carry the fast clock's time.
struct InKorea(FastClock);

impl FormatTime for InKorea {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&in_korea(self.0.wall(), "%Y-%m-%d %H:%M:%S"))
    }
}
