//! The breaker moves while calls are on their way.

use call_budget::clock::Clock;
use call_budget::policy::breaker::{Reason, Shown};
use call_budget::policy::verdict::Verdict;
use call_budget::{Answered, CallError, CallOptions, Credential};
use tokio::task::JoinHandle;

use crate::stage::{Reply, SECOND, Script, Stage, Step, driven, ms, settle};
use crate::told::Told;

type Called = JoinHandle<Result<Answered<Reply>, CallError>>;

/// A call in a task of its own, which nobody drives: the test moves the clock.
fn spawn(stage: &Stage, surface: &'static str, script: &Script) -> Called {
    let (budgets, requests) = (stage.budgets.clone(), script.requests(&stage.clock));
    let options = CallOptions { max_wait: Some(300 * SECOND), ..CallOptions::default() };
    tokio::spawn(async move { budgets.call_with(surface, &Credential::new("desk"), options, requests).await })
}

#[tokio::test]
async fn a_trip_wakes_those_who_wait_for_a_slot_and_nothing_is_sent() {
    let stage = Stage::with_units(1);
    stage.call("kis/real/quote", "desk", &Script::default()).await.unwrap();
    let script = Script::default();
    let waiting: Vec<Called> = (0..20).map(|_| spawn(&stage, "kis/real/quote", &script)).collect();
    settle().await;
    assert!(waiting.iter().all(|call| !call.is_finished()));
    let (granted, tripped) = (stage.granted(), stage.clock.now());
    stage.trip("kis/real/quote");
    settle().await;
    assert!(waiting.iter().all(|call| call.is_finished()), "all are woken");
    for call in waiting {
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::CircuitOpen { reason: Reason::Open, .. }), "{error:?}");
    }
    assert_eq!((stage.clock.now(), stage.granted(), script.sent()), (tripped, granted, 0));
}

#[tokio::test]
async fn who_waits_while_the_breaker_opens_and_closes_again_keeps_its_place() {
    let stage = Stage::with_units(1);
    stage.call("kis/real/quote", "desk", &Script::default()).await.unwrap();
    let script = Script::default();
    let waiting = spawn(&stage, "kis/real/quote", &script);
    settle().await;
    let breaker = stage.breaker("kis/real/quote");
    breaker.force_open("ops", "drill", None);
    breaker.reset("ops", "drill is over");
    settle().await;
    assert!(!waiting.is_finished());
    driven(&stage.clock, waiting).await.unwrap().unwrap();
    assert_eq!((script.sent(), stage.breaker("kis/real/quote").view().stale), (1, 0));
}

#[tokio::test]
async fn a_probe_that_waits_too_long_for_its_slot_is_replaced_and_sends_nothing() {
    let stage = Stage::new();
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    stage.store.push_back("kis-real", 100 * SECOND);
    let (first, second) = (Script::default(), Script::default());
    let lost = spawn(&stage, "kis/real/quote", &first);
    settle().await;
    let error = stage.call("kis/real/quote", "desk", &second).await.unwrap_err();
    assert!(matches!(error, CallError::CircuitOpen { reason: Reason::Probing, .. }), "{error:?}");
    stage.clock.advance(60 * SECOND);
    let probe = spawn(&stage, "kis/real/quote", &second);
    settle().await;
    let error = driven(&stage.clock, lost).await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::CircuitOpen { reason: Reason::Probing, .. }), "{error:?}");
    driven(&stage.clock, probe).await.unwrap().unwrap();
    assert_eq!((first.sent(), second.sent()), (0, 1));
    assert_eq!(stage.breaker("kis/real/quote").view().shown, Shown::Closed);
}

#[tokio::test]
async fn a_hung_probe_ends_with_its_attempt_timeout_and_has_failed() {
    let stage = Stage::new();
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    let error = stage.call("kis/real/quote", "desk", &Script::of([Step::Hang])).await.unwrap_err();
    assert_eq!(error.code(), "CALL_BUDGET_ATTEMPT_TIMEOUT");
    let view = stage.breaker("kis/real/quote").view();
    assert_eq!((view.shown, view.rung, view.retry_at), (Shown::Open, 1, Some(stage.clock.now() + 60 * SECOND)));
}

#[tokio::test]
async fn a_probe_whose_request_panics_is_replaced_and_the_panic_goes_on() {
    let stage = Stage::new();
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    let crashed = spawn(&stage, "kis/real/quote", &Script::of([Step::Panic]));
    assert!(driven(&stage.clock, crashed).await.unwrap_err().is_panic());
    stage.call("kis/real/quote", "desk", &Script::default()).await.expect("its place is free");
    let view = stage.breaker("kis/real/quote").view();
    assert_eq!((view.shown, view.rung, view.failures), (Shown::Closed, 0, 0));
}

#[tokio::test]
async fn answers_that_began_before_the_trip_are_stale() {
    for (reply, shown) in [(Reply::good(), Shown::Open), (Reply::bad(), Shown::Open)] {
        let stage = Stage::new();
        let script = Script::of([Step::After(SECOND, Box::new(Step::Answer(reply)))]);
        let call = spawn(&stage, "kis/real/quote", &script);
        settle().await;
        stage.clock.advance(ms(5));
        settle().await;
        assert_eq!(script.sent(), 1);
        stage.trip("kis/real/quote");
        let opened = stage.breaker("kis/real/quote").view();
        driven(&stage.clock, call).await.unwrap().unwrap();
        let view = stage.breaker("kis/real/quote").view();
        assert_eq!((view.shown, view.rung, view.retry_at, view.stale), (shown, 0, opened.retry_at, 1));
    }
}

/// The planted bug "slow measured to the first byte" turns this red.
#[tokio::test]
async fn slow_is_measured_to_the_last_byte_of_the_body() {
    let stage = Stage::new();
    let slow = || Step::Slowly(ms(100), 4 * SECOND, Reply::good());
    let script = Script::of((0..10).map(|_| slow()));
    for n in 0..10 {
        assert_eq!(stage.breaker("kis/real/depth").view().shown, Shown::Closed, "after {n}");
        let answered = stage.call("kis/real/depth", "desk", &script).await.unwrap();
        assert_eq!((answered.finding.verdict, answered.elapsed), (Verdict::Good, 4 * SECOND + ms(100)));
    }
    let view = stage.breaker("kis/real/depth").view();
    assert_eq!(view.shown, Shown::Open, "{view:?}");
    assert_eq!(view.episode.unwrap().cause, call_budget::policy::breaker::event::Cause::Slow);
}

#[tokio::test]
async fn a_quiet_episode_ends_and_is_told_although_nobody_calls() {
    let (stage, told) = (Stage::new(), Told::listen());
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    stage.call("kis/real/quote", "desk", &Script::default()).await.unwrap();
    settle().await;
    for _ in 0..301 {
        stage.clock.advance(SECOND);
        settle().await;
    }
    let summaries = told.all("circuit_episode_summary");
    assert_eq!(summaries.len(), 1);
    assert_eq!(summaries[0].field("probe_count"), "1");
}

#[tokio::test]
async fn retry_after_with_a_503_lengthens_the_open_wait() {
    let stage = Stage::new();
    for _ in 0..4 {
        stage.call("kis/real/quote", "desk", &Script::of([Step::Answer(Reply::bad())])).await.unwrap();
    }
    let asked = Reply::status(503).header("retry-after", "120");
    stage.call("kis/real/quote", "desk", &Script::of([Step::Answer(asked)])).await.unwrap();
    let view = stage.breaker("kis/real/quote").view();
    assert_eq!(view.shown, Shown::Open);
    assert_eq!(view.retry_at.unwrap(), stage.clock.now() + 120 * SECOND);
}
