//! What the mock vendor promises, over real HTTP.

mod answers;
mod black_hole;
mod control;
mod counting;
mod faults;
mod limits;
mod script;
mod tokens;

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::service::mock_vendor::{MockVendor, Settings};

use crate::wire::{Wire, request};

/// Long enough that no test lives to see it end.
const ENDLESS: Duration = Duration::from_secs(3600);
const TOKEN: &str = r#"{"grant_type":"client_credentials","appkey":"mock-app-key","appsecret":"mock-app-secret"}"#;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn now_us() -> u64 {
    u64::try_from(SystemClock.now().since_boot().as_micros()).unwrap()
}

async fn vendor(settings: Settings) -> (MockVendor, Wire) {
    let vendor = MockVendor::start(settings).await.unwrap();
    let wire = Wire::to(vendor.addr()).await;
    (vendor, wire)
}

fn price(headers: &str) -> String {
    let path = "/uapi/domestic-stock/v1/quotations/inquire-price";
    request("GET", path, &format!("tr_id: FHKST01010100\r\n{headers}"), "")
}

fn balance(query: &str, headers: &str) -> String {
    request("GET", &format!("/uapi/domestic-stock/v1/trading/inquire-balance{query}"), headers, "")
}

fn order(headers: &str) -> String {
    request("POST", "/uapi/domestic-stock/v1/trading/order-cash", headers, "{}")
}

fn token(body: &str) -> String {
    request("POST", "/oauth2/tokenP", "", body)
}

async fn price_codes(wire: &mut Wire, headers: &[&str]) -> Vec<String> {
    let mut codes = Vec::new();
    for headers in headers {
        codes.push(wire.ask(&price(headers)).await.code());
    }
    codes
}
