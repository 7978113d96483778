use std::io::ErrorKind;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::*;
use crate::wire::within;

#[tokio::test]
async fn a_reset_comes_after_the_request_was_read_and_is_a_real_one() {
    let (vendor, mut wire) = vendor(Settings { reset: 1.0, ..Settings::default() }).await;
    wire.send(&order("tr_id: TTTC0012U\r\n")).await;
    let error = wire.read().await.err().expect("an answer came in spite of the reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(vendor.report().arrivals, 1);
    vendor.stop().await;
}

#[tokio::test]
async fn a_late_answer_comes_late_and_its_arrival_does_not() {
    let settings = Settings { late_answer: 1.0, late_by: ms(400), ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    let sent = now_us();
    assert_eq!(wire.ask(&price("")).await.status, 200);
    assert!(now_us() - sent >= 400_000);
    assert!(vendor.arrivals()[0].at_us < sent + 400_000);
    vendor.stop().await;
}

#[tokio::test]
async fn a_hanging_call_is_counted_and_let_go_when_its_caller_hangs_up() {
    let (vendor, mut wire) = vendor(Settings { hang: 1.0, ..Settings::default() }).await;
    let tasks_before = {
        let mut other = Wire::to(vendor.addr()).await;
        assert_eq!(other.ask(&request("GET", "/mock/report", "", "")).await.status, 200);
        Handle::current().metrics().num_alive_tasks()
    };
    wire.send(&price("")).await;
    within(async {
        while vendor.report().arrivals == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let silence = timeout(ms(200), wire.0.readable()).await;
    assert!(silence.is_err(), "a hanging call was answered");
    drop(wire);
    within(async {
        while Handle::current().metrics().num_alive_tasks() > tasks_before - 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    vendor.stop().await;
}

#[tokio::test]
async fn nothing_is_left_after_stop_whatever_hung_or_was_reset() {
    let tasks_before = Handle::current().metrics().num_alive_tasks();
    let (vendor, mut hanging) = vendor(Settings { hang: 1.0, ..Settings::default() }).await;
    let addr = vendor.addr();
    hanging.send(&price("")).await;
    let mut half_sent = Wire::to(addr).await;
    half_sent.send("GET /uapi").await;
    let mut idle = Wire::to(addr).await;
    assert_eq!(idle.ask(&request("GET", "/mock/report", "", "")).await.status, 200);
    within(async {
        while vendor.report().arrivals == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    vendor.set(|settings| (settings.hang, settings.reset) = (0.0, 1.0)).unwrap();
    let mut resetting = Wire::to(addr).await;
    resetting.send(&price("")).await;
    assert!(resetting.read().await.is_err());

    within(vendor.stop()).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), tasks_before);
    for mut wire in [hanging, half_sent, idle] {
        assert!(wire.read().await.is_err(), "a connection outlived the vendor");
    }
    let refused = within(tokio::net::TcpStream::connect(addr)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_vendor_that_is_dropped_ends_too() {
    let tasks_before = Handle::current().metrics().num_alive_tasks();
    let (vendor, mut wire) = vendor(Settings::default()).await;
    assert_eq!(wire.ask(&price("")).await.status, 200);
    drop(vendor);
    within(async {
        while Handle::current().metrics().num_alive_tasks() > tasks_before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(wire.read().await.is_err());
}
