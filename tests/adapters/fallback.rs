//! Sources that are asked by real calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use call_budget::fallback::{Delay, Fallback, Found, Miss, NoSource, Sourced, Why};
use call_budget::reqwest::SendThrough;
use call_budget::{Answered, CallError};
use http::Response;

use crate::vendor::{Reply, Vendor, nobody};
use crate::{Budgets, budgets, key};

const LATE: Delay = Delay::Late(Duration::from_secs(15 * 60));
const NOTE: &str = "실시간 호가 일시 불가. 15분 지연 데이터를 표시합니다.";

async fn quote(budgets: &Budgets, surface: &str, url: String) -> Result<Answered<Response<Bytes>>, CallError> {
    reqwest::Client::new().get(url).send_through(budgets, surface, &key()).await
}

fn text(answered: Answered<Response<Bytes>>) -> Result<String, Miss> {
    match &answered.answer.body()[..] {
        b"[]" => Err(Miss::no_data("an empty list")),
        body => Ok(String::from_utf8_lossy(body).into_owned()),
    }
}

/// A first source of this surface and address, a second that is late, and simulated data.
async fn chain(budgets: &Budgets, surface: &str, first: String, second: String) -> Result<Sourced<String>, NoSource> {
    Fallback::new()
        .source("first", Delay::None, "", async || Found::read(quote(budgets, surface, first).await, text))
        .source("second", LATE, NOTE, async || Found::read(quote(budgets, "mine/short", second).await, text))
        .source("simulated", Delay::Simulated, "made up", async || Ok(Found::new("simulated".into())))
        .first()
        .await
}

#[tokio::test]
async fn with_a_fallback_set_retries_still_happen() {
    let first = Vendor::start(|before| if before < 2 { Reply::Reset } else { Reply::Whole(200, r#"["live"]"#) }).await;
    let second = Vendor::start(|_| Reply::Whole(200, r#"["late"]"#)).await;
    let budgets = budgets();
    let found = chain(&budgets, "mine/quote", first.url("/"), second.url("/")).await.unwrap();
    assert_eq!((found.value.as_str(), found.source.as_str(), found.delayed), (r#"["live"]"#, "first", Delay::None));
    assert!(found.reason.is_empty() && found.note.is_empty() && found.as_of.is_some());
    assert_eq!((first.arrivals().len(), second.arrivals().len(), budgets.counters().permits), (3, 0, 3));
}

#[tokio::test]
async fn late_data_says_that_it_is_late_and_why() {
    let second = Vendor::start(|_| Reply::Whole(200, r#"["late"]"#)).await;
    let (budgets, down) = (budgets(), format!("http://{}/", nobody().await));
    let found = chain(&budgets, "mine/quote", down, second.url("/")).await.unwrap();
    assert_eq!((found.value.as_str(), found.source.as_str()), (r#"["late"]"#, "second"));
    assert_eq!((found.delayed, found.note.as_str()), (LATE, NOTE));
    assert_eq!((found.reason[0].source.as_str(), found.reason[0].why), ("first", Why::Bad));
}

#[tokio::test]
async fn an_open_breaker_and_an_empty_answer_ask_the_next_and_cost_the_first_no_slot() {
    let first = Vendor::start(|_| Reply::Whole(500, "{}")).await;
    let second = Vendor::start(|_| Reply::Whole(200, "[]")).await;
    let budgets = budgets();
    for _ in 0..5 {
        quote(&budgets, "mine/slow", first.url("/")).await.unwrap();
    }
    let before = budgets.counters().permits;
    let found = chain(&budgets, "mine/slow", first.url("/"), second.url("/")).await.unwrap();
    assert_eq!((found.source.as_str(), found.delayed, found.as_of), ("simulated", Delay::Simulated, None));
    let why: Vec<Why> = found.reason.iter().map(|passed| passed.why).collect();
    assert_eq!(why, [Why::Refused, Why::NoData]);
    assert!(found.reason[0].retry_after.is_some());
    assert_eq!((first.arrivals().len(), budgets.counters().permits), (5, before + 1));
}

#[tokio::test]
async fn a_business_answer_is_the_answer_and_our_own_fault_ends_the_search() {
    let first = Vendor::start(|_| Reply::Whole(404, r#"["no such symbol"]"#)).await;
    let second = Vendor::start(|_| Reply::Whole(200, r#"["late"]"#)).await;
    let budgets = budgets();
    let found = chain(&budgets, "mine/quote", first.url("/"), second.url("/")).await.unwrap();
    assert_eq!((found.value.as_str(), found.source.as_str()), (r#"["no such symbol"]"#, "first"));
    let none = chain(&budgets, "mine/quoth", first.url("/"), second.url("/")).await.unwrap_err();
    assert_eq!(none.stopped.as_ref().map(|(source, _)| source.as_str()), Some("first"));
    assert_eq!(second.arrivals().len(), 0);
}

#[tokio::test]
async fn a_panic_of_a_source_is_its_own_and_a_caller_who_gives_up_asks_nobody_else() {
    let asked = Arc::new(AtomicU32::new(0));
    let ask = |asked: &Arc<AtomicU32>| {
        let asked = Arc::clone(asked);
        async move || {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(Found::new(()))
        }
    };
    let panics = Fallback::new().source("first", Delay::None, "", async || panic!("a bug of the source")).source(
        "second",
        LATE,
        "",
        ask(&asked),
    );
    assert!(tokio::spawn(panics.first()).await.unwrap_err().is_panic());
    let hangs = Fallback::new().source("first", Delay::None, "", std::future::pending::<Result<_, _>>).source(
        "second",
        LATE,
        "",
        ask(&asked),
    );
    assert!(tokio::time::timeout(Duration::from_millis(20), hangs.first()).await.is_err());
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}
