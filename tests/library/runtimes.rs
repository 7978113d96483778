//! One `CallBudget` shared by several runtimes: none depends on another one's going on.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;

use call_budget::clock::SystemClock;
use call_budget::policy::stage::Stage;
use call_budget::{CallBudget, Code, Settings};
use tokio::runtime::{Builder, Runtime};

use crate::script::{Script, Step};
use crate::{Duration, costing, ms, within};

type Budget = CallBudget<SystemClock, Script<SystemClock>>;

/// The first call hangs, the others are granted.
fn first_hangs(stage: Stage) -> (Script<SystemClock>, Budget) {
    let script = Script::new(SystemClock, ms(60_000), move |before, _| match before {
        0 => Step::Hang(stage),
        _ => Step::GrantAll,
    });
    let mut settings = Settings::default();
    // No store call ends by itself within this test.
    settings.statement_timeout = ms(60_000);
    settings.rtt_max = ms(60_000);
    let budget = script.budget(&settings);
    (script, budget)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn callers_of_another_runtime_are_served_in_order_when_the_one_that_made_the_calls_shuts_down() {
    let (script, budget) = first_hangs(Stage::Query);
    let first = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    first.spawn({
        let budget = budget.clone();
        async move { budget.acquire_with("a", "b", costing(1)).await.map(drop) }
    });
    wait_until(|| script.calls() == 1);
    let (joined, all_joined) = mpsc::channel();
    let second = thread::spawn(move || {
        runtime().block_on(async {
            let mut waiting: Vec<_> =
                (2..=5).map(|cost| Box::pin(budget.acquire_with("a", "b", costing(cost)))).collect();
            let mut served = Vec::new();
            poll_fn(|context| {
                waiting.retain_mut(|acquire| match acquire.as_mut().poll(context) {
                    Poll::Ready(permit) => {
                        served.push(permit.unwrap().cost());
                        false
                    }
                    Poll::Pending => true,
                });
                let _ = joined.send(());
                if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            served
        })
    });
    all_joined.recv_timeout(Duration::from_secs(10)).unwrap();
    first.shutdown_timeout(Duration::from_secs(10));
    assert_eq!(second.join().unwrap(), [2, 3, 4, 5].map(Some));
    let asked_for: Vec<u32> = script.costs()[1..].concat();
    assert_eq!(asked_for, [2, 3, 4, 5], "in the order in which they came");
    assert_eq!(script.most_in_flight(), 1);
}

#[test]
fn callers_of_another_runtime_are_served_when_the_one_that_made_the_calls_stands_still() {
    let (script, budget) = first_hangs(Stage::Query);
    let standing_still = runtime();
    let left = standing_still.block_on(async { tokio::time::timeout(ms(50), budget.acquire("a", "b")).await });
    assert!(left.is_err());
    assert_eq!(script.calls(), 1, "its call is in flight, and nobody drives it any more");

    runtime().block_on(async {
        let began = std::time::Instant::now();
        let error = budget.acquire_with("a", "b", within(ms(300))).await.unwrap_err();
        assert_eq!(error.code(), Code::WaitExceeded);
        assert!(began.elapsed() < ms(1000), "its own deadline holds: {:?}", began.elapsed());
    });
    drop(standing_still);
    runtime().block_on(async { drop(budget.acquire("a", "b").await.unwrap()) });
}

/// The call's own deadline has passed, and nothing has happened.
#[test]
fn a_runtime_that_stands_still_is_replaced() {
    let script = Script::new(SystemClock, ms(60_000), move |before, _| match before {
        0 => Step::Hang(Stage::Query),
        _ => Step::GrantAll,
    });
    let mut settings = Settings::default();
    settings.statement_timeout = ms(10);
    let budget = script.budget(&settings);
    let standing_still = runtime();
    assert!(standing_still.block_on(async { tokio::time::timeout(ms(50), budget.acquire("a", "b")).await }).is_err());
    let began = std::time::Instant::now();
    runtime().block_on(async {
        let served = tokio::join!(budget.acquire("a", "b"), budget.acquire("a", "b"));
        assert!(served.0.is_ok() && served.1.is_ok(), "{served:?}");
    });
    assert!(began.elapsed() < ms(6000), "{:?}", began.elapsed());
    // Woken again, the old one finds that it was replaced.
    standing_still.block_on(async { drop(budget.acquire("a", "b").await.unwrap()) });
    assert_eq!(budget.counters().lost, 1);
    assert_eq!(budget.counters().permits, 3);
}

/// A runtime that shuts down drops new tasks at once, in the thread that starts them.
#[test]
fn an_acquire_that_begins_while_its_runtime_shuts_down_hangs_nobody() {
    let (_, budget) = first_hangs(Stage::Connect);
    let dying = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (started, has_started) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel();
    let other = budget.clone();
    dying.spawn(async move {
        started.send(()).unwrap();
        while !tokio::spawn(std::future::pending::<()>()).is_finished() {
            thread::sleep(ms(1));
        }
        let mut acquire = pin!(budget.acquire("a", "b"));
        let _ = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        ended.send(()).unwrap();
    });
    has_started.recv_timeout(Duration::from_secs(10)).unwrap();
    dying.shutdown_background();
    has_ended.recv_timeout(Duration::from_secs(10)).expect("the poll came to an end");
    let error = runtime().block_on(other.acquire_with("a", "b", within(ms(100)))).unwrap_err();
    assert_eq!(error.stage(), Some(Stage::Connect), "the lane works on: {error}");
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < deadline);
        thread::sleep(ms(1));
    }
}

#[test]
fn an_acquire_outside_of_any_runtime_panics_and_spoils_nothing() {
    let script = Script::new(SystemClock, ms(60_000), |_, _| Step::GrantAll);
    let budget = Arc::new(script.budget(&Settings::default()));
    let outside = thread::spawn({
        let budget = Arc::clone(&budget);
        move || {
            let mut acquire = pin!(budget.acquire("a", "b"));
            let _ = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    });
    assert!(outside.join().is_err(), "tokio says that there is no runtime");
    runtime().block_on(async { drop(budget.acquire_with("a", "b", within(ms(5000))).await.unwrap()) });
    assert_eq!(script.costs(), [[1]]);
}
