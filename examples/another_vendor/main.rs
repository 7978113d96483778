//! A vendor that is not KIS: its calls have weights, and its 429 says how long to wait. What its answers mean stands in
//! `weights.toml`, without code; the budget is in a real, throw-away PostgreSQL, shared by two programs.
//!
//! ```text
//! cargo run --example another_vendor
//! ```

#[path = "../support/server.rs"]
mod server;
mod vendor;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use call_budget::policy::spacing::Limit;
use call_budget::reqwest::SendThrough;
use call_budget::service::scratch_postgres::ScratchPostgres;
use call_budget::store::operation::Operation;
use call_budget::store::{admin, migrate, status};
use call_budget::{CallBudget, CallError, CallOptions, Credential, Settings};
use futures_util::future::{join_all, try_join_all};
use tokio_postgres::{Client, NoTls};

use vendor::WeighingVendor;

const BUDGET: &str = "weights";
const SECOND: Duration = Duration::from_secs(1);

/// The vendor allows a weight of 20 in any second, and no call weighs more than 5.
const LIMIT: Limit = Limit {
    units: 20,
    window: SECOND,
    send_window: Duration::from_millis(50),
    arrival_jitter: Duration::from_millis(50),
    max_cost: 5,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let vendor = Arc::new(WeighingVendor::start(LIMIT.units, LIMIT.window).await?);
    let server = tokio::task::spawn_blocking(|| ScratchPostgres::start(&[])).await??;
    let (mut operator, connection) = tokio_postgres::connect(&server.url("postgres"), NoTls).await?;
    tokio::spawn(connection);
    set_budget(&mut operator).await?;

    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/another_vendor/settings.toml");
    let settings = Settings::layered(Some(&place))?.at(server.url("postgres"));
    // Two programs with one key: each has lanes and connections of its own, and both share the budget.
    let programs = [Program::new(&settings, &vendor)?, Program::new(&settings, &vendor)?];

    println!("== 1. 두 프로그램이 무게 1인 호출 12건과 무게 5인 호출 3건을 한꺼번에 보낸다");
    let calls = (0..15).map(|n| programs[n % 2].call(if n % 5 == 4 { "depth" } else { "price" }));
    let statuses = try_join_all(calls).await?;
    let (weight, worst) = (vendor.weight(), vendor.worst_window());
    println!("200으로 답한 호출: {}건", answered_well(&statuses));
    println!("벤더가 센 무게: {weight}, 가장 무거운 1초: {worst} (한도 {})", LIMIT.units);

    println!("\n== 2. 예산을 모르는 프로그램이 같은 키로 한도를 다 써 버린다");
    tokio::time::sleep(LIMIT.window + Duration::from_millis(100)).await;
    let url = vendor.url("price");
    join_all((0..20).map(|_| reqwest::get(&url))).await;
    let refused = programs[0].call("depth").await?;
    println!("우리 호출의 답: {refused}, Retry-After 2초");
    // The report goes to the store beside the answer; then everybody knows.
    let (left, why) = pushed_back(&mut operator).await?;
    println!("예산이 모두에게 알린 것: {:.1}초 쉬기, 이유 {why}", left.as_secs_f64());
    let statuses = try_join_all((0..6).map(|n| programs[n % 2].call("price"))).await?;
    let (quiet, ignored) = (vendor.quiet_after_refusal(), vendor.arrived_while_banned());
    println!("기다렸다가 200을 받은 다음 호출: {}건", answered_well(&statuses));
    println!("429 뒤 다음 호출이 도착하기까지: {:.2}초, 그 사이에 도착한 호출: {ignored}건", quiet.as_secs_f64());
    for report in programs[0].budgets.breakers() {
        let view = report.view;
        println!(
            "차단기 {}: {}, 실패 {}건 (429는 벤더의 장애가 아니다)",
            report.name,
            view.shown.as_str(),
            view.failures
        );
    }
    drop((programs, operator));
    tokio::task::spawn_blocking(move || server.stop()).await??;
    Ok(())
}

struct Program {
    budgets: CallBudget,
    client: reqwest::Client,
    vendor: Arc<WeighingVendor>,
}

impl Program {
    fn new(settings: &Settings, vendor: &Arc<WeighingVendor>) -> Result<Self, Box<dyn Error>> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()?;
        Ok(Self { budgets: CallBudget::new(settings)?, client, vendor: Arc::clone(vendor) })
    }

    /// The status that a call of this kind is answered with. Its weight is its cost.
    async fn call(&self, kind: &str) -> Result<u16, CallError> {
        let options = CallOptions { cost: vendor::weight_of(kind), ..CallOptions::default() };
        let request = self.client.get(self.vendor.url(kind));
        let key = Credential::new("shared-key");
        let answered =
            request.send_through_with(&self.budgets, &format!("weights/public/{kind}"), &key, options).await?;
        Ok(answered.answer.status().as_u16())
    }
}

fn answered_well(statuses: &[u16]) -> usize {
    statuses.iter().filter(|status| **status == 200).count()
}

/// What is left of the budget's pushback once there is one, and why: what `call-budget status` shows.
async fn pushed_back(operator: &mut Client) -> Result<(Duration, String), Box<dyn Error>> {
    for _ in 0..2_000 {
        let operation = Operation::begin(operator).await?;
        let budgets = status::budgets(&operation, Some(BUDGET)).await?;
        operation.commit().await?;
        if let Some(budget) = budgets.into_iter().find(|budget| budget.blocked_for_us > 0) {
            let left = Duration::from_micros(budget.blocked_for_us.unsigned_abs());
            return Ok((left, budget.blocked_reason.unwrap_or_default()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err("nobody was told of the 429".into())
}

/// What an operator does once: `call-budget migrate`, `budget set` and `class set`.
async fn set_budget(operator: &mut Client) -> Result<(), Box<dyn Error>> {
    migrate::migrate(operator).await?;
    let us = |duration: Duration| i64::try_from(duration.as_micros());
    let interval = LIMIT.interval().map_err(|why| format!("no interval is safe: {why:?}"))?;
    let settings = admin::Settings {
        limit: i32::try_from(LIMIT.units)?,
        window_us: us(LIMIT.window)?,
        send_window_us: us(LIMIT.send_window)?,
        arrival_jitter_us: us(LIMIT.arrival_jitter)?,
        max_cost: i32::try_from(LIMIT.max_cost)?,
        interval_us: us(interval)?,
        lookahead_us: 60_000,
    };
    let operation = Operation::begin(operator).await?;
    admin::set(&operation, BUDGET, &settings).await?;
    admin::class_set(&operation, BUDGET, "market", 0, 0).await?;
    operation.commit().await?;
    Ok(())
}
