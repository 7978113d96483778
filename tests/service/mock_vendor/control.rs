use std::io::ErrorKind;

use super::*;

#[tokio::test]
async fn control_requests_are_not_counted() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    for (method, path, status) in
        [("GET", "/mock/report", 200), ("GET", "/mock/arrivals", 200), ("GET", "/mock/nothing", 404)]
    {
        assert_eq!(wire.ask(&request(method, path, "", "")).await.status, status, "{path}");
    }
    assert_eq!(vendor.report().arrivals, 0);
    vendor.stop().await;
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_with_a_sentence_and_change_nothing() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    for (body, named) in [(r#"{"limit": 3, "limitt": 3}"#, "limitt"), (r#"{"limit": 0}"#, "limit is 0"), ("", "JSON")] {
        let answer = wire.ask(&request("POST", "/mock/settings", "", body)).await;
        assert_eq!(answer.status, 400, "{body}");
        let sentence = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(sentence.contains(named) && !sentence.contains('\n'), "{sentence}");
    }
    assert_eq!(vendor.report().limit, 18);
    assert!(vendor.set(|settings| settings.hang = 2.0).unwrap_err().contains("hang is 2"));
    assert_eq!(price_codes(&mut wire, &[""]).await, ["MCA00000"]);
    vendor.stop().await;
}

#[tokio::test]
async fn a_reset_forgets_the_log_and_not_the_limit() {
    let (vendor, mut wire) = vendor(Settings { limit: 1, window: ENDLESS, ..Settings::default() }).await;
    price_codes(&mut wire, &["", ""]).await;
    assert_eq!(wire.ask(&request("POST", "/mock/reset", "", "")).await.status, 204);
    let report = vendor.report();
    assert_eq!((report.arrivals, report.worst_window, report.first_arrival_us), (0, 0, None));
    assert_eq!(price_codes(&mut wire, &[""]).await, ["EGW00201"]);
    vendor.stop().await;
}

#[tokio::test]
async fn a_vendor_does_not_start_with_settings_that_make_no_sense() {
    let error = MockVendor::start(Settings { limit: 0, ..Settings::default() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
