use std::time::Duration;

use call_budget::policy::verdict::{Broken, Verdict};
use call_budget::reqwest::SendThrough;
use call_budget::{Answer, CallBudget, CallOptions, Credential, Token};
use http_body_util::Full;
use reqwest::{Body, Client};

use crate::vendor::{Reply, Vendor, nobody};
use crate::{broken, budgets, key, not_sent};

fn client() -> Client {
    let client = Client::builder().redirect(reqwest::redirect::Policy::none()).retry(reqwest::retry::never());
    client.build().unwrap()
}

#[tokio::test]
async fn an_existing_client_needs_one_other_word() {
    let vendor = Vendor::start(|_| Reply::Whole(200, r#"{"price":71200}"#)).await;
    let budgets = budgets();
    let answered = client()
        .post(vendor.url("/price"))
        .header("x-key", "k")
        .body("{}")
        .send_through(&budgets, "mine/quote", &key())
        .await
        .unwrap();
    assert_eq!(
        (answered.answer.status().as_u16(), answered.finding.verdict, answered.attempts),
        (200, Verdict::Good, 1)
    );
    assert_eq!(answered.answer.body(), r#"{"price":71200}"#);
    assert_eq!(answered.answer.header("Content-Type"), Some("application/json"));
    let [arrival] = &vendor.arrivals()[..] else { panic!() };
    assert_eq!((arrival.header("x-key"), &arrival.body[..]), (Some("k"), &b"{}"[..]));
    assert_eq!(budgets.counters().permits, 1);
}

#[tokio::test]
async fn every_attempt_takes_a_slot_of_its_own() {
    let vendor = Vendor::start(|_| Reply::Whole(500, "{}")).await;
    let budgets = budgets();
    let answered = client().get(vendor.url("/")).send_through(&budgets, "mine/quote", &key()).await.unwrap();
    assert_eq!((answered.answer.status().as_u16(), answered.finding.verdict), (500, Verdict::Bad));
    assert_eq!((answered.attempts, vendor.arrivals().len(), budgets.counters().permits), (3, 3, 3));
}

#[tokio::test]
async fn what_never_connected_is_sent_again_even_if_it_must_not_happen_twice() {
    let (budgets, addr) = (budgets(), nobody().await);
    let order = client().post(format!("http://{addr}/order")).body("{}");
    let error = order.send_through(&budgets, "mine/order", &key()).await.unwrap_err();
    assert_eq!(broken(&error), (Broken::NotConnected, 3));
    assert!(!error.may_have_been_sent());
    assert_eq!(budgets.counters().permits, 3);
}

#[tokio::test]
async fn an_answer_that_ends_early_is_bad_and_an_order_is_not_sent_again() {
    for reply in [Reply::Truncated, Reply::Reset] {
        let vendor = Vendor::start(move |_| reply).await;
        let budgets = budgets();
        let order = client().post(vendor.url("/order")).body("{}");
        let error = order.send_through(&budgets, "mine/order", &key()).await.unwrap_err();
        assert_eq!(broken(&error), (Broken::Interrupted, 1));
        assert!(error.may_have_been_sent());
        let quote = client().get(vendor.url("/quote")).send_through(&budgets, "mine/quote", &key()).await;
        assert_eq!(broken(&quote.unwrap_err()), (Broken::Interrupted, 3));
        assert_eq!((vendor.arrivals().len(), budgets.counters().verdicts_bad), (4, 4));
    }
}

#[tokio::test]
async fn silence_ends_at_the_attempt_timeout_or_at_a_shorter_one_of_the_client() {
    for reply in [Reply::Silent, Reply::HeadOnly] {
        let vendor = Vendor::start(move |_| reply).await;
        let budgets = budgets();
        let ours = client().get(vendor.url("/")).send_through(&budgets, "mine/short", &key()).await;
        assert_eq!(broken(&ours.unwrap_err()), (Broken::TimedOut, 1));
        let theirs = client().post(vendor.url("/")).timeout(Duration::from_millis(50));
        let theirs = theirs.send_through(&budgets, "mine/order", &key()).await;
        assert_eq!(broken(&theirs.unwrap_err()), (Broken::TimedOut, 1));
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_written_costs_nothing_and_says_nothing_of_the_vendor() {
    let budgets = budgets();
    let wrong = client().get("http://vendor.example/").header("not a name", "x");
    let error = wrong.send_through(&budgets, "mine/quote", &key()).await.unwrap_err();
    assert_eq!(not_sent(&error), Some(0));
    assert_eq!((budgets.counters().permits, budgets.counters().verdicts_bad), (0, 0));
}

#[tokio::test]
async fn a_stream_is_sent_once() {
    let vendor = Vendor::start(|_| Reply::Whole(500, "{}")).await;
    let budgets = budgets();
    let stream = client().post(vendor.url("/")).body(Body::wrap(Full::<bytes::Bytes>::from("{}")));
    let answered = stream.send_through(&budgets, "mine/quote", &key()).await.unwrap();
    assert_eq!((answered.answer.status().as_u16(), answered.attempts, vendor.arrivals().len()), (500, 1, 1));
    assert_eq!(budgets.counters().verdicts_bad, 1);
}

#[tokio::test]
async fn no_error_shows_an_address_which_may_hold_a_key() {
    let (budgets, addr) = (budgets(), nobody().await);
    let quote = client().get(format!("http://{addr}/?key=s3cret"));
    let error = quote.send_through(&budgets, "mine/quote", &key()).await.unwrap_err();
    assert!(!format!("{error:?} {error}").contains("s3cret"), "{error:?}");
}

#[tokio::test]
async fn the_token_of_the_surface_is_sent_and_a_new_one_when_it_is_refused() {
    let vendor = Vendor::start(|before| Reply::Whole(if before == 0 { 401 } else { 200 }, "{}")).await;
    let budgets = budgets();
    let number = std::sync::atomic::AtomicU32::new(1);
    let source = move |_: CallBudget<_, _>, _: Credential| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move { Ok(Token { value: format!("t{number}").into(), valid_for: Duration::from_secs(3600) }) }
    };
    budgets.tokens_from("mine/login", source).unwrap();
    let private = client().get(vendor.url("/")).header("authorization", "Basic x");
    let answered = private.send_through(&budgets, "mine/private", &key()).await.unwrap();
    let sent: Vec<_> = vendor.arrivals().iter().map(|came| came.header("authorization").unwrap().to_owned()).collect();
    assert_eq!((answered.attempts, sent), (2, vec!["bearer t1".to_owned(), "bearer t2".to_owned()]));
}

#[tokio::test]
async fn options_say_more_than_the_surface() {
    let vendor = Vendor::start(|_| Reply::Whole(500, "{}")).await;
    let budgets = budgets();
    let once = CallOptions { idempotent: Some(false), ..CallOptions::default() };
    let quote = client().get(vendor.url("/")).send_through_with(&budgets, "mine/quote", &key(), once).await;
    assert_eq!((quote.unwrap().attempts, vendor.arrivals().len()), (1, 1));
}
