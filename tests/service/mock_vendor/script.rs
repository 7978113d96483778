use std::io::ErrorKind;

use call_budget::service::mock_vendor::{Fault, Scripted};
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::wire::within;

async fn scripted(script: Vec<Scripted>) -> (MockVendor, Wire) {
    vendor(Settings { script, ..Settings::default() }).await
}

#[tokio::test]
async fn each_code_of_kis_comes_in_its_shape_with_its_usual_status() {
    let (vendor, mut wire) = scripted(Vec::new()).await;
    for (code, status) in [
        ("EGW00201", 500),
        ("EGW00202", 500),
        ("EGW00203", 500),
        ("EGW00215", 500),
        ("EGW00121", 500),
        ("EGW00122", 500),
        ("EGW00123", 500),
        ("EGW00103", 403),
        ("EGW00105", 403),
        ("EGW00304", 403),
        ("EGW00300", 500),
        ("EGW00316", 500),
        ("EGW00301", 500),
        ("EGW00302", 500),
        ("EGW02004", 500),
        ("EGW00213", 500),
        ("OPSQ2001", 200),
    ] {
        vendor.set(|settings| settings.script = vec![Scripted::code(code)]).unwrap();
        let answer = wire.ask(&price("")).await;
        assert_eq!((answer.code().as_str(), answer.status), (code, status));
        assert!(answer.head.contains("\r\ngt_uid: "), "{}", answer.head);
    }
    vendor.set(|settings| settings.script = vec![Scripted::code("EGW00133").path("tokenP")]).unwrap();
    let answer = wire.ask(&token(TOKEN)).await;
    assert_eq!((answer.status, answer.json()["error_code"].as_str()), (403, Some("EGW00133")));
    assert_eq!(price_codes(&mut wire, &[""]).await, ["MCA00000"]);
    vendor.stop().await;
}

#[tokio::test]
async fn a_script_is_played_once_by_those_it_fits_and_the_rest_is_as_ever() {
    let script = json!({"script": [
        {"code": "EGW00301", "tr_id": "TTTC0012U"},
        {"code": "EGW00201", "text": "원장의 초당 거래건수를 초과하였습니다.", "status": 200, "times": 2},
    ]});
    let (vendor, mut wire) = scripted(Vec::new()).await;
    assert_eq!(wire.ask(&request("POST", "/mock/settings", "", &script.to_string())).await.status, 204);
    let answer = wire.ask(&price("")).await;
    assert_eq!((answer.status, answer.json()["msg1"].as_str().unwrap().starts_with("원장")), (200, true));
    assert_eq!(price_codes(&mut wire, &["", ""]).await, ["EGW00201", "MCA00000"]);
    assert_eq!(wire.ask(&order("tr_id: TTTC0012U\r\n")).await.code(), "EGW00301");
    assert_eq!(wire.ask(&order("tr_id: TTTC0012U\r\n")).await.code(), "MCA00000");
    let report = vendor.report();
    assert_eq!((report.arrivals, report.refused, report.refused_below_limit), (5, 2, 2));
    vendor.stop().await;
}

#[tokio::test]
async fn a_raw_answer_has_the_very_status_headers_and_body_that_it_was_given() {
    let page = "<html><body>Bad Gateway</body></html>";
    let raw = Scripted::raw(502, page).header("Content-Type", "text/html").header("Retry-After", "7");
    let (vendor, mut wire) = scripted(vec![raw, Scripted::raw(200, "")]).await;
    let answer = wire.ask(&price("")).await;
    assert_eq!((answer.status, answer.body.as_str()), (502, page));
    assert!(answer.head.contains("\r\nContent-Type: text/html\r\n"), "{}", answer.head);
    assert!(answer.head.contains("\r\nRetry-After: 7\r\n"), "{}", answer.head);
    assert_eq!(answer.header("gt_uid"), None);
    let answer = wire.ask(&price("")).await;
    assert_eq!((answer.status, answer.body.as_str(), answer.header("content-type")), (200, "", None));
    vendor.stop().await;
}

#[tokio::test]
async fn a_code_may_come_with_headers_of_its_own() {
    let (vendor, mut wire) = scripted(vec![Scripted::code("EGW00201").status(429).header("Retry-After", "2")]).await;
    let answer = wire.ask(&price("")).await;
    assert_eq!((answer.status, answer.code().as_str(), answer.header("retry-after")), (429, "EGW00201", Some("2")));
    vendor.stop().await;
}

#[tokio::test]
async fn a_cut_answer_announces_its_whole_length_and_ends_where_it_was_cut() {
    for cut in [0, 1, 30] {
        let (vendor, mut wire) = scripted(vec![Scripted::raw(200, &"x".repeat(98)).cut_after(cut)]).await;
        wire.send(&price("")).await;
        let mut bytes = Vec::new();
        within(tokio::io::AsyncReadExt::read_to_end(&mut wire.0, &mut bytes)).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body.len(), cut, "{text}");
        let length: usize = head.split("Content-Length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        assert_eq!(length, 98, "{text}");
        vendor.stop().await;
    }
}

#[tokio::test]
async fn a_script_may_end_requests_without_an_answer() {
    let script = vec![Scripted::fault(Fault::Reset), Scripted::fault(Fault::Hang)];
    let (vendor, mut wire) = scripted(script).await;
    wire.send(&price("")).await;
    assert_eq!(wire.read().await.err().unwrap().kind(), ErrorKind::ConnectionReset);
    let mut hanging = Wire::to(vendor.addr()).await;
    hanging.send(&price("")).await;
    within(async {
        while vendor.report().arrivals < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(timeout(ms(200), hanging.0.readable()).await.is_err(), "a hanging call was answered");
    let mut next = Wire::to(vendor.addr()).await;
    assert_eq!(price_codes(&mut next, &[""]).await, ["MCA00000"]);
    vendor.stop().await;
}

#[tokio::test]
async fn tokens_that_were_made_to_expire_are_refused_at_once() {
    let settings = Settings { check_tokens: true, token_interval: Duration::ZERO, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    let mut issue = async || wire.ask(&token(TOKEN)).await.json()["access_token"].as_str().unwrap().to_owned();
    let (first, again) = (issue().await, issue().await);
    assert_eq!(first, again);
    let call = |token: &str| price(&format!("appkey: mock-app-key\r\nauthorization: Bearer {token}\r\n"));
    assert_eq!(wire.ask(&call(&first)).await.code(), "MCA00000");
    assert_eq!(wire.ask(&request("POST", "/mock/expire-tokens", "", "")).await.status, 204);
    assert_eq!(wire.ask(&call(&first)).await.code(), "EGW00123");
    let new = wire.ask(&token(TOKEN)).await.json()["access_token"].as_str().unwrap().to_owned();
    assert_ne!(new, first);
    assert_eq!(wire.ask(&call(&new)).await.code(), "MCA00000");
    vendor.stop().await;
}
