use serde_json::json;

use super::*;
use crate::wire::Answer;

#[tokio::test]
async fn header_names_have_the_very_case_that_kis_sends() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    for bytes in [price(""), balance("", "tr_id: VTTC8434R\r\n"), token(TOKEN)] {
        let answer = wire.ask(&bytes).await;
        for name in ["Content-Type", "Content-Length", "tr_cont", "gt_uid"] {
            assert!(answer.head.contains(&format!("\r\n{name}: ")), "{name} is not in {}", answer.head);
        }
    }
    let answer = wire.ask(&price("")).await;
    assert!(answer.head.contains("\r\ntr_id: FHKST01010100\r\n"), "{}", answer.head);
    assert!(answer.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", answer.head);
    vendor.stop().await;
}

#[tokio::test]
async fn every_call_of_the_table_is_answered_with_strings() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let minute = "/uapi/domestic-stock/v1/quotations/inquire-time-itemchartprice";
    for bytes in [
        price(""),
        request("GET", minute, "tr_id: FHKST03010200\r\n", ""),
        balance("", "tr_id: TTTC8434R\r\n"),
        order("tr_id: TTTC0012U\r\n"),
        order("tr_id: TTTC0011U\r\n"),
    ] {
        let answer = wire.ask(&bytes).await;
        assert_eq!((answer.status, &answer.json()["rt_cd"]), (200, &json!("0")), "{bytes}");
    }
    vendor.stop().await;
}

#[tokio::test]
async fn a_tr_id_of_the_other_side_is_refused() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let mut codes = async |paper| {
        vendor.set(|settings| settings.paper = paper).unwrap();
        let mut codes = Vec::new();
        for tr_id in ["TTTC0012U", "VTTC0012U"] {
            codes.push(wire.ask(&order(&format!("tr_id: {tr_id}\r\n"))).await.code());
        }
        codes.push(wire.ask(&balance("", "tr_id: FHKST01010100\r\n")).await.code());
        codes.push(wire.ask(&price("")).await.code());
        codes
    };
    assert_eq!(codes(false).await, ["MCA00000", "EGW02004", "EGW02004", "MCA00000"]);
    assert_eq!(codes(true).await, ["EGW02004", "MCA00000", "EGW02004", "MCA00000"]);
    vendor.stop().await;
}

#[tokio::test]
async fn a_balance_pages_through_tr_cont() {
    let (vendor, mut wire) = vendor(Settings { pages: 3, ..Settings::default() }).await;
    let mut seen = Vec::new();
    let (mut query, mut headers) = (String::new(), "tr_id: TTTC8434R\r\n".to_owned());
    loop {
        let answer: Answer = wire.ask(&balance(&query, &headers)).await;
        let tr_cont = answer.header("tr_cont").unwrap().to_owned();
        let body = answer.json();
        seen.push(format!("{tr_cont} {}", body["output1"][0]["pdno"].as_str().unwrap()));
        if !["F", "M"].contains(&tr_cont.as_str()) {
            break;
        }
        query = format!("?CANO=1&CTX_AREA_NK100={}", body["ctx_area_nk100"].as_str().unwrap());
        headers = "tr_id: TTTC8434R\r\ntr_cont: N\r\n".to_owned();
    }
    assert_eq!(seen, ["F 000001", "M 000002", "E 000003"]);

    let beyond = wire.ask(&balance("?CTX_AREA_NK100=4", &headers)).await;
    assert_eq!(beyond.code(), "OPSQ2001");
    vendor.set(|settings| settings.pages = 1).unwrap();
    assert_eq!(wire.ask(&balance("", "tr_id: TTTC8434R\r\n")).await.header("tr_cont"), Some("D"));
    vendor.stop().await;
}

#[tokio::test]
async fn a_chunked_body_is_not_routed_and_the_connection_lives_on() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let head = "POST /uapi/domestic-stock/v1/trading/order-cash HTTP/1.1\r\nHost: mock\r\ntr_id: TTTC0012U\r\n";
    let answer = wire.ask(&format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n")).await;
    assert_eq!((answer.status, answer.code().as_str()), (500, "EGW00202"));
    assert_eq!(price_codes(&mut wire, &[""]).await, ["MCA00000"]);
    vendor.stop().await;
}

#[tokio::test]
async fn an_unknown_path_is_counted_and_answered_in_the_vendors_shape() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    for bytes in [request("GET", "/nowhere", "", ""), request("DELETE", "/oauth2/tokenP", "", "")] {
        let answer = wire.ask(&bytes).await;
        assert_eq!((answer.status, &answer.json()["rt_cd"]), (404, &json!("1")));
    }
    assert_eq!(vendor.report().arrivals, 2);
    vendor.stop().await;
}
