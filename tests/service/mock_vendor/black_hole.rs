use std::io::ErrorKind;

use call_budget::service::mock_vendor::{BlackHole, Span};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;
use crate::wire::within;

async fn in_a(black_hole: BlackHole) -> (MockVendor, Wire) {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    assert_eq!(price_codes(&mut wire, &[""]).await, ["MCA00000"]);
    vendor.set(|settings| settings.black_hole = Some(black_hole)).unwrap();
    (vendor, wire)
}

async fn answers_again(vendor: &MockVendor) {
    vendor.set(|settings| settings.black_hole = None).unwrap();
    let mut wire = within(async {
        loop {
            // The door is opened with the next beat.
            match TcpStream::connect(vendor.addr()).await {
                Ok(stream) => return Wire(stream),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert_eq!(price_codes(&mut wire, &[""]).await, ["MCA00000"]);
}

#[tokio::test]
async fn in_a_silent_black_hole_requests_arrive_and_nothing_comes_back() {
    let (vendor, mut wire) = in_a(BlackHole::Silent).await;
    wire.send(&price("")).await;
    let mut new = Wire::to(vendor.addr()).await;
    new.send(&token(TOKEN)).await;
    within(async {
        while vendor.report().arrivals < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    answers_again(&vendor).await;
    for mut wire in [wire, new] {
        assert!(timeout(ms(100), wire.read()).await.is_err(), "an answer came out of the black hole");
    }
    assert_eq!(vendor.report().turned_away, 0);
    vendor.stop().await;
}

#[tokio::test]
async fn a_black_hole_that_resets_does_so_unread_and_open_connections_with_their_next_request() {
    let (vendor, mut open) = in_a(BlackHole::Reset).await;
    let mut new = Wire::to(vendor.addr()).await;
    // The reset may come before the request is written.
    let _ = tokio::io::AsyncWriteExt::write_all(&mut new.0, price("").as_bytes()).await;
    assert_eq!(new.read().await.err().unwrap().kind(), ErrorKind::ConnectionReset);
    assert_eq!((vendor.report().arrivals, vendor.report().turned_away), (1, 1));
    open.send(&price("")).await;
    assert_eq!(open.read().await.err().unwrap().kind(), ErrorKind::ConnectionReset);
    assert_eq!((vendor.report().arrivals, vendor.report().turned_away), (2, 1));
    answers_again(&vendor).await;
    vendor.stop().await;
}

#[tokio::test]
async fn a_black_hole_that_refuses_listens_no_longer_and_comes_back_at_its_address() {
    let (vendor, mut open) = in_a(BlackHole::Refused).await;
    let addr = vendor.addr();
    within(async {
        // The door is shut with the next beat.
        while TcpStream::connect(addr).await.map_err(|error| error.kind()).err() != Some(ErrorKind::ConnectionRefused) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    open.send(&price("")).await;
    assert_eq!(open.read().await.err().unwrap().kind(), ErrorKind::ConnectionReset);
    answers_again(&vendor).await;
    assert_eq!(vendor.addr(), addr);
    vendor.stop().await;
}

#[tokio::test]
async fn a_span_is_a_black_hole_for_its_time_and_the_switch_beats_it() {
    let span = Span { from: Duration::ZERO, to: ENDLESS, how: BlackHole::Reset };
    let over = Span { from: Duration::ZERO, to: Duration::from_micros(1), how: BlackHole::Refused };
    let (vendor, mut wire) = vendor(Settings { black_hole_spans: vec![over, span], ..Settings::default() }).await;
    let _ = tokio::io::AsyncWriteExt::write_all(&mut wire.0, price("").as_bytes()).await;
    assert!(wire.read().await.is_err());
    vendor.set(|settings| settings.black_hole = Some(BlackHole::Silent)).unwrap();
    let mut wire = Wire::to(vendor.addr()).await;
    wire.send(&price("")).await;
    within(async {
        while vendor.report().arrivals == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    vendor.set(|settings| (settings.black_hole, settings.black_hole_spans) = (None, vec![over])).unwrap();
    answers_again(&vendor).await;
    vendor.stop().await;
}

#[tokio::test]
async fn control_goes_on_through_a_silent_black_hole() {
    let (vendor, mut wire) = in_a(BlackHole::Silent).await;
    let end = request("POST", "/mock/settings", "", r#"{"black_hole": null}"#);
    assert_eq!(wire.ask(&end).await.status, 204);
    assert_eq!(price_codes(&mut wire, &[""]).await, ["MCA00000"]);
    vendor.stop().await;
}
