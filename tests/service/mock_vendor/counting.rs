use std::io::{Read, Write};
use std::net::SocketAddr;

use call_budget::service::mock_vendor::{Arrival, Kind, Report};
use tokio::time::sleep;

use super::*;
use crate::wire::{PATIENCE, within};

#[tokio::test]
async fn arrival_is_the_first_byte_of_each_request_on_a_connection_that_stays_open() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let mut bounds = Vec::new();
    for _ in 0..2 {
        let before = now_us();
        let bytes = price("");
        wire.send(&bytes[..1]).await;
        sleep(ms(300)).await;
        let rest = now_us();
        assert_eq!(wire.ask(&bytes[1..]).await.status, 200);
        bounds.push(before..rest);
        sleep(ms(20)).await;
    }
    let arrivals = vendor.arrivals();
    assert_eq!(arrivals.len(), 2);
    for (arrival, bounds) in arrivals.iter().zip(&bounds) {
        assert!(bounds.contains(&arrival.at_us), "{} not in {bounds:?}", arrival.at_us);
    }
    vendor.stop().await;
}

#[tokio::test]
async fn a_body_that_comes_later_does_not_become_the_next_requests_arrival() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let bytes = order("tr_id: TTTC0012U\r\n");
    wire.send(&bytes[..bytes.len() - 2]).await;
    sleep(ms(100)).await;
    assert_eq!(wire.ask("{}").await.status, 200);
    let before = now_us();
    assert_eq!(wire.ask(&price("")).await.status, 200);
    assert!(vendor.arrivals()[1].at_us >= before);
    vendor.stop().await;
}

#[tokio::test]
async fn requests_sent_without_waiting_for_answers_are_each_counted() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let before = now_us();
    wire.send(&[price(""), price(""), price("")].concat()).await;
    for _ in 0..3 {
        assert_eq!(wire.read().await.unwrap().status, 200);
    }
    let arrivals = vendor.arrivals();
    assert_eq!(arrivals.len(), 3);
    assert!(arrivals.iter().all(|arrival| (before..=now_us()).contains(&arrival.at_us)));
    vendor.stop().await;
}

#[tokio::test]
async fn a_request_that_began_earlier_stands_earlier_in_the_log() {
    let (vendor, mut slow) = vendor(Settings::default()).await;
    let mut quick = Wire::to(vendor.addr()).await;
    let bytes = price("x-call-budget-nonce: 1\r\n");
    slow.send(&bytes[..1]).await;
    sleep(ms(200)).await;
    assert_eq!(quick.ask(&price("x-call-budget-nonce: 2\r\n")).await.status, 200);
    assert_eq!(slow.ask(&bytes[1..]).await.status, 200);
    let nonces: Vec<_> = vendor.arrivals().iter().map(|arrival| arrival.note.nonce).collect();
    assert_eq!(nonces, [Some(1), Some(2)]);
    vendor.stop().await;
}

#[tokio::test]
async fn the_log_and_the_report_hold_what_the_callers_said() {
    let settings = Settings { limit: 4, window: ENDLESS, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    let calls = [
        "appkey: a\r\nx-call-budget-class: order\r\nx-call-budget-pid: 7\r\nx-call-budget-nonce: 1\r\n",
        "appkey: b\r\nx-call-budget-class: eod\r\nx-call-budget-pid: 9\r\nx-call-budget-nonce: 2\r\n\
             x-call-budget-cost: 3\r\n",
        "x-call-budget-class: eod\r\nx-call-budget-pid: 7\r\nx-call-budget-nonce: 2\r\n",
    ];
    assert_eq!(price_codes(&mut wire, &calls).await, ["MCA00000", "MCA00000", "EGW00201"]);

    let lines = wire.ask(&request("GET", "/mock/arrivals", "", "")).await;
    let arrivals: Vec<Arrival> = lines.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(arrivals, vendor.arrivals());
    let second = &arrivals[1];
    assert_eq!((second.note.appkey.as_str(), second.note.class.as_str()), ("b", "eod"));
    assert_eq!((second.note.pid, second.note.nonce, second.units), (Some(9), Some(2), 3));
    assert_eq!((second.tr_id.as_str(), second.refused, arrivals[2].refused), ("FHKST01010100", false, true));

    let report: Report = serde_json::from_str(&wire.ask(&request("GET", "/mock/report", "", "")).await.body).unwrap();
    assert_eq!((report.arrivals, report.units, report.worst_window, report.over_limit_windows), (3, 5, 5, 1));
    assert_eq!((report.refused, report.refused_below_limit, report.duplicate_nonces), (1, 0, 1));
    assert_eq!((report.limit, report.window_us, report.kind), (4, 3_600_000_000, Kind::Sliding));
    assert_eq!(report.pids, [7, 9]);
    assert_eq!(report.first_arrival_us, Some(arrivals[0].at_us));
    assert_eq!(report.last_arrival_us, Some(arrivals[2].at_us));
    let of = |class: &str| (report.by_class[class].arrivals, report.by_class[class].units);
    assert_eq!((of("order"), of("eod")), ((1, 1), (2, 4)));
    vendor.stop().await;
}

#[tokio::test]
async fn only_an_arrival_past_its_send_window_and_the_jitter_is_late() {
    let settings = Settings { limit: 2, window: ENDLESS, arrival_jitter: ms(5_000), ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    for closes in [now_us() - 1_000, now_us() - 6_000_000, now_us() + 1_000_000] {
        wire.ask(&price(&format!("x-call-budget-closes-us: {closes}\r\n"))).await;
    }
    let late: Vec<_> = vendor.arrivals().iter().map(|arrival| arrival.late).collect();
    assert_eq!(late, [false, true, false]);
    let report = vendor.report();
    assert_eq!((report.late, report.worst_window, report.over_limit_windows), (1, 3, 1));
    assert_eq!((report.worst_window_without_late, report.over_limit_windows_without_late), (2, 0));
    vendor.stop().await;
}

#[tokio::test]
async fn a_header_that_cannot_be_read_is_refused_by_name_and_still_counted() {
    let (vendor, mut wire) = vendor(Settings::default()).await;
    let answer = wire.ask(&price("x-call-budget-cost: 0\r\n")).await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("x-call-budget-cost"), "{}", answer.body);
    assert_eq!(vendor.report().units, 1);
    vendor.stop().await;
}

#[tokio::test]
async fn a_violation_while_the_mock_stood_still_is_marked() {
    let settings = Settings { limit: 1, window: ms(2_000), arrival_jitter: ms(50), ..Settings::default() };
    let vendor = MockVendor::start(settings).await.unwrap();
    let addr = vendor.addr();
    sleep(ms(50)).await;
    // This runtime has one thread: while the test blocks it, the vendor stands still and the calls pile up.
    let clients: Vec<_> = (0..2).map(|_| std::thread::spawn(move || blocking_price(addr))).collect();
    std::thread::sleep(ms(300));
    for client in clients {
        within(tokio::task::spawn_blocking(move || client.join().unwrap())).await.unwrap();
    }
    let report = vendor.report();
    assert_eq!((report.arrivals, report.over_limit_windows), (2, 1));
    assert!(report.violation_during_stall, "{report:?}");
    assert!(report.worst_stall_us >= 200_000 && !report.stalls.is_empty(), "{report:?}");
    vendor.stop().await;
}

#[tokio::test]
async fn a_violation_without_a_stall_is_not_excused() {
    let settings = Settings { limit: 1, window: ENDLESS, arrival_jitter: ENDLESS, ..Settings::default() };
    let (vendor, mut wire) = vendor(settings).await;
    price_codes(&mut wire, &["", ""]).await;
    let report = vendor.report();
    assert_eq!((report.over_limit_windows, report.worst_stall_us), (1, 0));
    assert!(!report.violation_during_stall);
    vendor.stop().await;
}

fn blocking_price(addr: SocketAddr) {
    let mut stream = std::net::TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(price("").as_bytes()).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
}
