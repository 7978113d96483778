use serde_json::json;

use super::*;

#[tokio::test]
async fn a_token_has_the_shape_of_kis_and_its_end_is_a_date_in_korea() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let answer = wire.ask(&token(TOKEN)).await;
    assert_eq!(answer.status, 200);
    let body = answer.json();
    assert_eq!((&body["token_type"], &body["expires_in"]), (&json!("Bearer"), &json!(86_400)));
    let end: jiff::civil::DateTime = body["access_token_token_expired"].as_str().unwrap().parse().unwrap();
    let end = jiff::tz::offset(9).to_timestamp(end).unwrap();
    let lives = end.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((86_400 - 60..=86_400).contains(&lives), "{lives}");
    assert_eq!(vendor.report().units, 0, "a token falls under its own rules");
    vendor.stop().await;
}

#[tokio::test]
async fn a_second_attempt_within_a_minute_is_refused_also_after_a_failed_one() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let wrong = wire.ask(&token(&TOKEN.replace("mock-app-secret", "wrong"))).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (403, "EGW00105"));
    let soon = wire.ask(&token(TOKEN)).await;
    assert_eq!((soon.status, soon.code().as_str()), (403, "EGW00133"));
    assert!(soon.json()["error_description"].is_string());
    let unknown = wire.ask(&token(&TOKEN.replace("mock-app-key", "other"))).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (403, "EGW00103"));
    vendor.stop().await;
}

#[tokio::test]
async fn the_same_token_comes_back_until_its_time_is_over() {
    let settings = Settings { token_interval: Duration::ZERO, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    let mut issue = async || wire.ask(&token(TOKEN)).await.json()["access_token"].clone();
    let first = issue().await;
    assert_eq!(issue().await, first);
    vendor.set(|settings| settings.token_repeats = Duration::ZERO).unwrap();
    assert_ne!(issue().await, first);
    vendor.stop().await;
}

#[tokio::test]
async fn calls_need_no_token_unless_tokens_are_checked() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    assert_eq!(price_codes(&mut wire, &["appkey: fake\r\n"]).await, ["MCA00000"]);
    vendor.set(|settings| settings.check_tokens = true).unwrap();

    let issued = wire.ask(&token(TOKEN)).await.json()["access_token"].as_str().unwrap().to_owned();
    let right = format!("appkey: mock-app-key\r\nauthorization: Bearer {issued}\r\n");
    let calls = [
        right.as_str(),
        "appkey: mock-app-key\r\n",
        "appkey: mock-app-key\r\nauthorization: Bearer made-up\r\n",
        &right.replace("mock-app-key", "other"),
    ];
    assert_eq!(price_codes(&mut wire, &calls).await, ["MCA00000", "EGW00122", "EGW00121", "EGW00121"]);

    vendor.set(|settings| settings.token_life = Duration::ZERO).unwrap();
    let expired = wire.ask(&price(&right)).await;
    assert_eq!((expired.status, expired.code().as_str()), (500, "EGW00123"));
    vendor.stop().await;
}

#[tokio::test]
async fn a_request_that_is_no_token_request_is_told_so() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    for body in ["", "{}", &TOKEN.replace("client_credentials", "password")] {
        assert_eq!(wire.ask(&token(body)).await.status, 400, "{body}");
    }
    vendor.stop().await;
}
