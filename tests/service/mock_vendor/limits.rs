use call_budget::service::mock_vendor::{Arrival, Kind};
use serde_json::json;
use tokio::time::sleep;

use super::*;

#[tokio::test]
async fn a_call_over_the_limit_is_refused_as_kis_refuses() {
    let (vendor, mut wire) = vendor(Settings { limit: 2, window: ENDLESS, ..Settings::default() }).await;
    assert_eq!(price_codes(&mut wire, &["appkey: a\r\n", "appkey: b\r\n"]).await, ["MCA00000", "MCA00000"]);
    let refusal = wire.ask(&price("appkey: c\r\n")).await;
    assert_eq!(refusal.status, 500);
    let expected = json!({"rt_cd": "1", "msg_cd": "EGW00201", "msg1": "초당 거래건수를 초과하였습니다."});
    assert_eq!(refusal.json(), expected);

    vendor.set(|settings| settings.refusal_status = 200).unwrap();
    let refusal = wire.ask(&price("")).await;
    assert_eq!((refusal.status, refusal.json()), (200, expected));
    vendor.stop().await;
}

#[tokio::test]
async fn costs_are_counted_in_units() {
    let (vendor, mut wire) = vendor(Settings { limit: 3, window: ENDLESS, ..Settings::default() }).await;
    let codes = price_codes(&mut wire, &["x-call-budget-cost: 2\r\n", "", ""]).await;
    assert_eq!(codes, ["MCA00000", "MCA00000", "EGW00201"]);
    vendor.stop().await;
}

#[tokio::test]
async fn app_keys_share_the_limit_unless_counted_by_themselves() {
    let settings = Settings { limit: 1, window: ENDLESS, per_key: true, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    let calls = ["appkey: a\r\n", "appkey: b\r\n", "appkey: a\r\n"];
    assert_eq!(price_codes(&mut wire, &calls).await, ["MCA00000", "MCA00000", "EGW00201"]);
    let report = vendor.report();
    assert_eq!((report.worst_window, report.over_limit_windows), (2, 1));
    vendor.stop().await;
}

#[tokio::test]
async fn the_limit_changes_while_calls_come_and_each_call_is_judged_by_the_limit_of_its_time() {
    let (vendor, mut wire) = vendor(Settings { limit: 2, window: ENDLESS, ..Settings::default() }).await;
    assert_eq!(price_codes(&mut wire, &["", ""]).await, ["MCA00000", "MCA00000"]);
    let changed = wire.ask(&request("POST", "/mock/settings", "", r#"{"limit": 1}"#)).await;
    assert_eq!((changed.status, vendor.report().over_limit_windows), (204, 0));
    assert_eq!(price_codes(&mut wire, &[""]).await, ["EGW00201"]);
    assert_eq!((vendor.report().limit, vendor.report().over_limit_windows), (1, 1));
    vendor.stop().await;
}

#[tokio::test]
async fn refusals_below_the_limit_come_with_their_probability_and_are_counted_apart() {
    let settings = Settings { limit: 1_000, refuse_below_limit: 0.5, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    price_codes(&mut wire, &[""; 100]).await;
    let report = vendor.report();
    assert_eq!(report.over_limit_windows, 0);
    assert_eq!(report.refused, report.refused_below_limit);
    // One run in more than ten million falls outside.
    assert!((24..=76).contains(&report.refused), "{}", report.refused);
    vendor.stop().await;
}

#[tokio::test]
async fn a_sliding_vendor_refuses_exactly_the_calls_that_end_a_window_over_the_limit() {
    let verdicts = two_bursts(Kind::Sliding).await;
    assert!(verdicts[..3].iter().all(|arrival| !arrival.refused));
    assert!(verdicts[3..].iter().all(|arrival| arrival.refused));
}

#[tokio::test]
async fn a_fixed_vendor_lets_twice_the_limit_through_around_a_boundary() {
    let verdicts = two_bursts(Kind::Fixed).await;
    assert!(verdicts[..6].iter().all(|arrival| !arrival.refused));
    assert!(verdicts[6].refused);
}

#[tokio::test]
async fn a_first_call_vendor_does_not_care_for_the_boundary() {
    let settings = Settings { limit: 3, window: ms(1_500), kind: Kind::FirstCall, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    price_codes(&mut wire, &[""]).await;
    let opened = vendor.arrivals()[0].at_us;
    until_us(opened + 1_000_000).await;
    price_codes(&mut wire, &["", "", ""]).await;
    until_us(opened + 1_500_000).await;
    price_codes(&mut wire, &["", "", "", ""]).await;
    let arrivals = vendor.arrivals();
    assert!(arrivals[3].at_us < opened + 1_500_000, "this machine is too slow to tell");
    let refused: Vec<_> = arrivals.iter().map(|arrival| arrival.refused).collect();
    assert_eq!(refused, [false, false, false, true, false, false, false, true]);
    assert!(vendor.report().over_limit_windows > 2);
    vendor.stop().await;
}

/// Three calls shortly before a boundary of fixed windows, four shortly after it, at a limit of three.
async fn two_bursts(kind: Kind) -> Vec<Arrival> {
    const WINDOW_US: u64 = 2_000_000;
    let settings = Settings { limit: 3, window: Duration::from_micros(WINDOW_US), kind, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    let boundary = (now_us() + 600_000).next_multiple_of(WINDOW_US);
    until_us(boundary - 500_000).await;
    price_codes(&mut wire, &["", "", ""]).await;
    until_us(boundary).await;
    price_codes(&mut wire, &["", "", "", ""]).await;
    let arrivals = vendor.arrivals();
    assert!(arrivals[2].at_us < boundary && arrivals[6].at_us < boundary + 1_000_000, "too slow to tell");
    assert_eq!((vendor.report().worst_window, vendor.report().over_limit_windows), (7, 4));
    vendor.stop().await;
    arrivals
}

async fn until_us(at: u64) {
    while now_us() < at {
        sleep(Duration::from_micros(at - now_us().min(at))).await;
    }
}

#[tokio::test]
async fn balances_meet_the_ledger_cap_that_is_not_the_customers_rate() {
    let settings = Settings { ledger_cap: Some(1), window: ENDLESS, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    assert_eq!(wire.ask(&balance("", "tr_id: TTTC8434R\r\n")).await.status, 200);
    let refusal = wire.ask(&balance("", "tr_id: TTTC8434R\r\n")).await;
    assert_eq!((refusal.status, refusal.code().as_str()), (500, "EGW00215"));
    assert_eq!(price_codes(&mut wire, &[""]).await, ["MCA00000"]);
    assert_eq!(vendor.report().refused, 0);
    vendor.stop().await;
}
