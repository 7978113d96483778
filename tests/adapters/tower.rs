use std::future::{Ready, poll_fn, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use call_budget::clock::SystemClock;
use call_budget::policy::verdict::{Broken, Verdict};
use call_budget::test_util::MemoryStore;
use call_budget::tower::{BoxError, CallBudgetLayer, CallBudgetService};
use call_budget::{Answered, CallError, CallOptions, Code, Failed};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{self, Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;

use crate::vendor::{Reply, Vendor, nobody};
use crate::{Budgets, broken, budgets, key, not_sent};

type Inner = Client<HttpConnector, Full<Bytes>>;

/// The pooled client of hyper, behind breaker and budget.
fn layered(
    budgets: &Budgets,
    surface: &'static str,
) -> impl Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>, Error = CallError, Future: Send> + Clone + use<>
{
    let client: Inner = Client::builder(TokioExecutor::new()).build_http();
    CallBudgetLayer::new(budgets.clone(), move |_| surface, |_| key()).failed_by(of_hyper).layer(client)
}

fn of_hyper(source: BoxError) -> Failed {
    let connecting = source.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
    Failed::Broken { how: if connecting { Broken::NotConnected } else { Broken::Interrupted }, source }
}

async fn send<S: Service<Request<Full<Bytes>>>>(
    service: &mut S,
    request: Request<Full<Bytes>>,
) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

fn get(url: String) -> Request<Full<Bytes>> {
    Request::get(url).body(Full::default()).unwrap()
}

#[tokio::test]
async fn an_existing_service_needs_one_layer() {
    let vendor = Vendor::start(|_| Reply::Whole(200, r#"{"price":71200}"#)).await;
    let budgets = budgets();
    let post = Request::post(vendor.url("/price")).header("x-key", "k").body(Full::from("{}")).unwrap();
    let response = send(&mut layered(&budgets, "mine/quote"), post).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/json");
    let meant = response.extensions().get::<Answered<()>>().unwrap();
    assert_eq!((meant.finding.verdict, meant.attempts), (Verdict::Good, 1));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), r#"{"price":71200}"#);
    let [arrival] = &vendor.arrivals()[..] else { panic!() };
    assert_eq!((arrival.header("x-key"), &arrival.body[..]), (Some("k"), &b"{}"[..]));
    assert_eq!(budgets.counters().permits, 1);
}

#[tokio::test]
async fn every_attempt_takes_a_slot_of_its_own_and_carries_the_whole_request() {
    let vendor = Vendor::start(|before| if before < 2 { Reply::Truncated } else { Reply::Whole(200, "{}") }).await;
    let budgets = budgets();
    let post = Request::post(vendor.url("/query")).body(Full::from(r#"{"symbol":"005930"}"#)).unwrap();
    let response = send(&mut layered(&budgets, "mine/quote"), post).await.unwrap();
    assert_eq!(response.extensions().get::<Answered<()>>().unwrap().attempts, 3);
    let bodies: Vec<_> = vendor.arrivals().into_iter().map(|arrival| arrival.body).collect();
    assert_eq!(bodies, [r#"{"symbol":"005930"}"#; 3].map(|body| body.as_bytes().to_vec()));
    assert_eq!((budgets.counters().permits, budgets.counters().verdicts_bad), (3, 2));
}

#[tokio::test]
async fn a_body_that_ends_early_is_bad_and_an_order_is_not_sent_again() {
    let vendor = Vendor::start(|_| Reply::Truncated).await;
    let budgets = budgets();
    let order = Request::post(vendor.url("/order")).body(Full::from("{}")).unwrap();
    let error = send(&mut layered(&budgets, "mine/order"), order).await.unwrap_err();
    assert_eq!((broken(&error), vendor.arrivals().len()), ((Broken::Interrupted, 1), 1));
    assert_eq!(budgets.counters().verdicts_bad, 1);
}

#[tokio::test]
async fn what_never_connected_is_told_apart_where_somebody_says_how() {
    let (budgets, addr) = (budgets(), nobody().await);
    let error = send(&mut layered(&budgets, "mine/order"), get(format!("http://{addr}/"))).await.unwrap_err();
    assert_eq!((broken(&error), budgets.counters().permits), ((Broken::NotConnected, 3), 3));
    let client: Inner = Client::builder(TokioExecutor::new()).build_http();
    let mut untold = CallBudgetLayer::new(budgets.clone(), |_| "mine/order", |_| key()).layer(client);
    let error = send(&mut untold, get(format!("http://{addr}/"))).await.unwrap_err();
    assert_eq!(broken(&error), (Broken::Interrupted, 1));
}

#[tokio::test]
async fn silence_ends_at_the_attempt_timeout() {
    for reply in [Reply::Silent, Reply::HeadOnly] {
        let vendor = Vendor::start(move |_| reply).await;
        let error = send(&mut layered(&budgets(), "mine/short"), get(vendor.url("/"))).await.unwrap_err();
        assert_eq!(broken(&error), (Broken::TimedOut, 1));
    }
}

#[tokio::test]
async fn surface_credential_and_options_are_of_the_request() {
    let budgets = budgets();
    let client: Inner = Client::builder(TokioExecutor::new()).build_http();
    let surface = |head: &http::request::Parts| head.uri.path().trim_start_matches('/').to_owned();
    let mut service = CallBudgetLayer::new(budgets, surface, |_| key()).layer(client);
    let vendor = Vendor::start(|_| Reply::Whole(200, "{}")).await;
    let error = send(&mut service, get(vendor.url("/mine/nothing"))).await.unwrap_err();
    assert!(matches!(&error, CallError::UnknownSurface(name) if name == "mine/nothing"), "{error}");
    let mut request = get(vendor.url("/mine/quote"));
    request.extensions_mut().insert(CallOptions { class: Some("nobody".into()), ..CallOptions::default() });
    let error = send(&mut service, request).await.unwrap_err();
    assert!(matches!(&error, CallError::Budget(error) if error.code() == Code::UnknownClass), "{error}");
    assert!(send(&mut service, get(vendor.url("/mine/quote"))).await.is_ok());
    assert_eq!(vendor.arrivals().len(), 1);
}

#[tokio::test]
async fn no_window_of_the_vendor_holds_more_than_the_limit_however_many_call_at_once() {
    const WINDOW: Duration = Duration::from_secs(1);
    let vendor = Vendor::start(|_| Reply::Whole(200, "{}")).await;
    let service = layered(&budgets(), "mine/slow");
    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let (mut service, request) = (service.clone(), get(vendor.url("/")));
        calls.spawn(async move { send(&mut service, request).await.is_ok() });
    }
    assert_eq!(calls.join_all().await, [true; 12]);
    let came: Vec<Instant> = vendor.arrivals().iter().map(|arrival| arrival.at).collect();
    for (first, sixth) in came.iter().zip(&came[5..]) {
        assert!(sixth.duration_since(*first) >= WINDOW, "6 within {:?}", sixth.duration_since(*first));
    }
}

/// A service that insists on `poll_ready` before each `call`, counts both, and is ready as its plan says.
struct Strict {
    ready: bool,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// What `poll_ready` comes to, last first; ready where nothing is left.
    plan: Vec<Poll<Result<(), &'static str>>>,
    polls: u32,
    calls: u32,
}

impl Clone for Strict {
    /// A clone is not ready because its original was.
    fn clone(&self) -> Self {
        Self { ready: false, seen: Arc::clone(&self.seen) }
    }
}

impl Service<Request<Full<Bytes>>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let mut seen = self.seen.lock().unwrap();
        seen.polls += 1;
        let ready = seen.plan.pop().unwrap_or(Poll::Ready(Ok(())));
        self.ready = ready == Poll::Ready(Ok(()));
        ready
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        self.seen.lock().unwrap().calls += 1;
        ready(Ok(Response::builder().status(500).body(Full::default()).unwrap()))
    }
}

type Behind = CallBudgetService<Strict, SystemClock, MemoryStore<SystemClock>>;

fn strict(budgets: &Budgets, mut plan: Vec<Poll<Result<(), &'static str>>>) -> (Behind, Arc<Mutex<Seen>>) {
    plan.reverse();
    let seen = Arc::new(Mutex::new(Seen { plan, ..Seen::default() }));
    let inner = Strict { ready: false, seen: Arc::clone(&seen) };
    (CallBudgetLayer::new(budgets.clone(), |_| "mine/quote", |_| key()).layer(inner), seen)
}

#[tokio::test]
async fn the_inner_service_that_is_ready_is_the_one_that_is_called_at_every_attempt() {
    let budgets = budgets();
    let (service, seen) = strict(&budgets, vec![]);
    for _ in 0..3 {
        let response = send(&mut service.clone(), get("http://x/".into())).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.polls, seen.calls, budgets.counters().permits), (9, 9, 9));
}

#[tokio::test]
async fn an_inner_service_that_is_not_ready_holds_the_caller_back_and_then_takes_no_slot() {
    let budgets = budgets();
    let (mut service, seen) = strict(&budgets, vec![Poll::Pending, Poll::Ready(Err("closed"))]);
    let polled = poll_fn(|cx| Poll::Ready(service.poll_ready(cx).is_pending()));
    assert!(polled.await);
    let error = send(&mut service, get("http://x/".into())).await.unwrap_err();
    assert_eq!((not_sent(&error), seen.lock().unwrap().calls, budgets.counters().permits), (Some(0), 0, 0));
}

#[tokio::test]
async fn an_attempt_for_which_the_inner_service_is_not_ready_sends_nothing_and_what_came_before_it_stands() {
    let budgets = budgets();
    for not_ready in [Poll::Pending, Poll::Ready(Err("closed"))] {
        let (mut service, seen) = strict(&budgets, vec![Poll::Ready(Ok(())), not_ready]);
        let response = send(&mut service, get("http://x/".into())).await.unwrap();
        let answered = response.extensions().get::<Answered<()>>().unwrap();
        assert_eq!((answered.finding.verdict, answered.attempts, seen.lock().unwrap().calls), (Verdict::Bad, 1, 1));
    }
    assert_eq!(budgets.counters().verdicts_bad, 2, "the two answers, and nothing else");
}
