//! The switch off: the process keeps its own polite pace and touches no store.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Instant;

use call_budget::{CallBudget, Code, Settings};

use crate::{ms, send, within};

#[tokio::test]
async fn off_makes_no_connection_and_on_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut settings = Settings::default();
    settings.polite_interval = ms(1);
    settings.database_url =
        Some(format!("postgresql://u:not-a-real-password@{}/d?sslmode=disable", listener.local_addr().unwrap()).into());
    let off = CallBudget::new(&settings).unwrap();
    for _ in 0..3 {
        let permit = off.acquire("kis-real", "order").await.unwrap();
        assert!(!permit.governed());
        assert_eq!((permit.closes_at(), permit.nonce(), permit.cost()), (None, None, None));
        send(Ok(permit));
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);

    settings.enabled = true;
    let on = CallBudget::new(&settings).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "not before it is asked");
    let error = on.acquire_with("kis-real", "order", within(ms(300))).await.unwrap_err();
    assert!(listener.accept().is_ok());
    assert_eq!((error.code(), error.stage().unwrap().as_str()), (Code::WaitExceeded, "startup"));
    assert!(!format!("{error} {error:?}").contains("not-a-real-password"));
}

#[tokio::test]
async fn off_keeps_the_polite_interval_in_each_class() {
    let mut settings = Settings::default();
    settings.polite_interval = ms(200);
    let budget = CallBudget::new(&settings).unwrap();
    let began = Instant::now();
    for _ in 0..4 {
        send(budget.acquire("kis-real", "order").await);
    }
    assert!(began.elapsed() >= ms(600), "{:?}", began.elapsed());
    // Another class has its own pace.
    send(budget.acquire_with("kis-real", "eod", within(ms(100))).await);
    let error = budget.acquire_with("kis-real", "order", within(ms(1))).await.unwrap_err();
    assert_eq!(error.code(), Code::WaitExceeded);
    assert!(error.retry_after().is_some_and(|after| after <= ms(200)), "{error:?}");
}

#[tokio::test]
async fn off_names_that_are_made_up_do_not_pile_up_and_share_one_pace() {
    let mut settings = Settings::default();
    settings.polite_interval = ms(60_000);
    let budget = CallBudget::new(&settings).unwrap();
    let at_once = async |class: &str| budget.acquire_with("kis-real", class, within(ms(10_000))).await.map(drop);
    for number in 0..1_000 {
        at_once(&format!("class {number}")).await.unwrap();
    }
    at_once("one more").await.unwrap();
    let error = at_once("and another").await.unwrap_err();
    assert_eq!(error.code(), Code::WaitExceeded, "the pace of the one before is its own, too");
    // Those that have a pace keep it.
    assert_eq!(at_once("class 7").await.unwrap_err().code(), Code::WaitExceeded);
    assert!(budget.figures().classes.len() <= 1_001);
}

#[tokio::test]
async fn off_holds_the_place_until_the_answer_is_in() {
    let mut settings = Settings::default();
    settings.polite_interval = ms(0);
    settings.polite_concurrency = 2;
    let budget = CallBudget::new(&settings).unwrap();
    let one = budget.acquire("kis-real", "order").await.unwrap();
    let two = budget.acquire("kis-real", "order").await.unwrap().start().unwrap();
    let third = budget.acquire_with("kis-real", "order", within(ms(30))).await;
    assert_eq!(third.unwrap_err().code(), Code::WaitExceeded, "two are in flight");
    drop(two);
    let third = budget.acquire_with("kis-real", "order", within(ms(5000))).await.unwrap();
    drop(one);
    let fourth = budget.acquire_with("kis-real", "order", within(ms(5000))).await.unwrap();
    assert_eq!(third.call(async || "sent").await, Ok("sent"));
    drop(fourth);
}

#[test]
fn on_without_a_usable_database_url_is_refused_by_name_and_without_the_password() {
    let mut settings = Settings::default();
    settings.enabled = true;
    let refused = |settings: &Settings| CallBudget::new(settings).map(drop).unwrap_err().to_string();
    assert!(refused(&settings).contains("CALL_BUDGET_DATABASE_URL"));
    for url in ["postgresql://u:not-a-real-password@h:x/d", "postgresql://u:not-a-real-password@h/d?sslmode=prefer"] {
        settings.database_url = Some(url.into());
        let text = refused(&settings);
        assert!(text.contains("database_url") && !text.contains("not-a-real-password"), "{text}");
    }
}
