//! The order of a call: what refuses for nothing goes first, and what belongs to one caller touches no other.

use call_budget::clock::Clock;
use call_budget::policy::breaker::{Reason, Shown};
use call_budget::policy::verdict::{Broken, Verdict};
use call_budget::{CallError, CallOptions, Credential};

use crate::stage::{Reply, SECOND, Script, Stage, Step, driven, ms};

fn within(max_wait: std::time::Duration) -> CallOptions {
    CallOptions { max_wait: Some(max_wait), ..CallOptions::default() }
}

#[tokio::test]
async fn a_good_call_takes_one_slot_and_says_what_its_answer_means() {
    let stage = Stage::new();
    let script = Script::of([Step::Slowly(ms(20), ms(30), Reply::good())]);
    let answered = stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!((answered.finding.verdict, answered.attempts, answered.elapsed), (Verdict::Good, 1, ms(50)));
    assert_eq!(answered.answer, Reply::good());
    assert_eq!((stage.granted(), script.sent()), (1, 1));
    let counters = stage.budgets.counters();
    assert_eq!((counters.calls, counters.attempts, counters.verdicts_good, counters.permits), (1, 1, 1, 1));
}

#[tokio::test]
async fn an_open_breaker_costs_no_slot_and_says_when_something_can_change() {
    let stage = Stage::new();
    let script = Script::of((0..5).map(|_| Step::Answer(Reply::bad())));
    for _ in 0..5 {
        let answered = stage.call("kis/real/quote", "desk", &script).await.unwrap();
        assert_eq!(answered.finding.verdict, Verdict::Bad);
    }
    let (granted, opened) = (stage.granted(), stage.clock.now());
    assert_eq!(granted, 5);
    for surface in ["kis/real/quote", "kis/real/order"] {
        let error = stage.call(surface, "desk", &script).await.unwrap_err();
        let CallError::CircuitOpen { reason: Reason::Open, retry_after, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*retry_after, 30 * SECOND);
        assert_eq!(error.code(), "CALL_BUDGET_CIRCUIT_OPEN");
        assert!(!error.may_have_been_sent());
        assert!(error.to_string().contains(surface), "{error}");
    }
    assert_eq!((stage.granted(), stage.clock.now(), script.sent()), (granted, opened, 5));
    assert_eq!(stage.budgets.counters().refused_by_breaker, 2);
    stage.call("kis/real/balance", "desk", &script).await.expect("another breaker");
}

#[tokio::test]
async fn a_surface_that_is_not_in_the_settings_is_refused_by_name() {
    let stage = Stage::new();
    let error = stage.call("kis/real/quotes", "desk", &Script::default()).await.unwrap_err();
    assert_eq!(error.code(), "CALL_BUDGET_UNKNOWN_SURFACE");
    assert!(error.to_string().contains("\"kis/real/quotes\""));
    let never_asked = |_, _| async { Err(CallError::UnknownSurface(String::new())) };
    assert!(stage.budgets.tokens_from("no/such", never_asked).is_err());
}

#[tokio::test]
async fn five_401_of_one_credential_leave_every_other_caller_untouched() {
    let stage = Stage::new();
    let refusing = Script::of((0..5).map(|_| Step::Answer(Reply::status(401))));
    let (mut answered, mut held) = (0, 0);
    for _ in 0..5 {
        match stage.call("ai/chat", "mallory", &refusing).await {
            Ok(_) => answered += 1,
            Err(CallError::Held { retry_after, scope, .. }) => {
                assert!(scope.contains("mallory") && retry_after <= 60 * SECOND, "{scope} {retry_after:?}");
                held += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((answered, held), (1, 4), "after the first the credential is held, for nothing");
    // Even five at once, all of which the vendor refuses.
    let calls = (0..5).map(|_| {
        let refusing = Script::of([Step::After(ms(10), Box::new(Step::Answer(Reply::status(401))))]);
        let (budgets, requests) = (stage.budgets.clone(), refusing.requests(&stage.clock));
        async move { budgets.call("ai/chat", &Credential::new("eve"), requests).await }
    });
    for refused in driven(&stage.clock, futures_util::future::join_all(calls)).await {
        assert_eq!(refused.unwrap().answer.status, 401);
    }
    let view = stage.breaker("ai/chat").view();
    assert_eq!((view.shown, view.streak, view.failures), (Shown::Closed, 0, 0));
    let began = stage.clock.now();
    for label in ["alice", "bob"] {
        stage.call("ai/chat", label, &Script::default()).await.unwrap();
    }
    assert!(stage.clock.now() < began + ms(10), "nobody else waits");
    let error = stage.call("ai/chat", "eve", &Script::default()).await.unwrap_err();
    assert_eq!(error.code(), "CALL_BUDGET_HELD");
    let changed = Credential::new("eve").revision(1);
    let call = stage.budgets.call("ai/chat", &changed, Script::default().requests(&stage.clock));
    driven(&stage.clock, call).await.expect("with another key it is not held");
    let reports = stage.budgets.breakers();
    let report = reports.iter().find(|report| &*report.name == "ai/chat").unwrap();
    assert_eq!(report.holds.len(), 2, "{:?}", report.holds);
    assert_eq!(report.view.shown, Shown::Closed, "a held credential is not a held surface");
}

#[tokio::test]
async fn a_call_that_names_no_key_uses_the_one_that_the_settings_name() {
    let stage = Stage::new();
    for (surface, label) in [("kis/real/archive", "archive-1"), ("kis/real/balance", "default")] {
        let refusing = Script::of([Step::Answer(Reply::status(401))]);
        let (nobody, requests) = (Credential::default(), refusing.requests(&stage.clock));
        driven(&stage.clock, stage.budgets.call(surface, &nobody, requests)).await.unwrap();
        let error = stage.call(surface, label, &Script::default()).await.unwrap_err();
        assert!(matches!(&error, CallError::Held { scope, .. } if scope.contains(label)), "{error}");
    }
}

#[tokio::test]
async fn a_budget_that_gives_no_slot_frees_the_probe_and_nothing_is_learned() {
    let stage = Stage::new();
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    stage.store.pause("kis-real");
    for _ in 0..5 {
        let error = stage.call("kis/real/quote", "desk", &Script::default()).await.unwrap_err();
        assert_eq!(error.code(), "CALL_BUDGET_PAUSED");
        assert_eq!(stage.breaker("kis/real/quote").view().shown, Shown::ProbeDue, "no probe is out");
    }
    stage.store.resume("kis-real");
    let script = Script::default();
    stage.call("kis/real/quote", "desk", &script).await.expect("it is the probe");
    let view = stage.breaker("kis/real/quote").view();
    assert_eq!((view.shown, view.rung, view.failures, script.sent()), (Shown::Closed, 0, 0, 1));
}

#[tokio::test]
async fn an_order_is_never_the_probe() {
    let stage = Stage::new();
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    let script = Script::default();
    let error = stage.call("kis/real/order", "desk", &script).await.unwrap_err();
    assert!(matches!(error, CallError::CircuitOpen { reason: Reason::NoProbe, .. }), "{error:?}");
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    stage.call("kis/real/order", "desk", &script).await.expect("the quote has closed it");
}

#[tokio::test]
async fn an_attempt_without_an_answer_ends_with_its_timeout_and_is_the_vendors_failure() {
    let stage = Stage::new();
    let error = stage.call("kis/real/order", "desk", &Script::of([Step::Hang])).await.unwrap_err();
    assert_eq!(error.code(), "CALL_BUDGET_ATTEMPT_TIMEOUT");
    assert!(error.may_have_been_sent());
    assert_eq!(stage.breaker("kis/real/quote").view().streak, 1);
    assert_eq!(stage.clock.now().since_boot().as_secs(), 11, "10 s after it began");
    // The body counts as well.
    let error = stage.call("kis/real/quote", "desk", &Script::of([Step::HeadThenHang(ms(5))])).await.unwrap_err();
    assert_eq!(error.code(), "CALL_BUDGET_ATTEMPT_TIMEOUT");
    assert_eq!(stage.breaker("kis/real/quote").view().streak, 2);
}

#[tokio::test]
async fn what_could_not_be_written_says_nothing_of_the_vendor() {
    let stage = Stage::new();
    for _ in 0..12 {
        let script = Script::of([Step::After(9 * SECOND, Box::new(Step::NotSent))]);
        let error = stage.call("kis/real/depth", "desk", &script).await.unwrap_err();
        assert_eq!((error.code(), error.may_have_been_sent()), ("CALL_BUDGET_NOT_SENT", false));
    }
    let view = stage.breaker("kis/real/depth").view();
    assert_eq!((view.shown, view.calls, view.failures, view.slow_rate), (Shown::Closed, 0, 0, None));
    let script = Script::of([Step::Broken(Broken::NotConnected)]);
    let error = stage.call("kis/real/depth", "desk", &script).await.unwrap_err();
    assert_eq!((error.code(), error.may_have_been_sent()), ("CALL_BUDGET_NOT_CONNECTED", false));
    assert_eq!(stage.breaker("kis/real/depth").view().failures, 1);
}

#[tokio::test]
async fn waiting_for_a_slot_is_never_slow_and_ends_with_max_wait() {
    let stage = Stage::with_units(1);
    let script = Script::default();
    stage.call("kis/real/depth", "desk", &script).await.unwrap();
    let began = stage.clock.now();
    for _ in 0..10 {
        stage.call("kis/real/depth", "desk", &script).await.unwrap();
    }
    assert!(stage.clock.now() > began + 10 * SECOND);
    let error = stage.call_with("kis/real/depth", "desk", within(ms(100)), &script).await.unwrap_err();
    assert_eq!(error.code(), "CALL_BUDGET_WAIT_EXCEEDED");
    let view = stage.breaker("kis/real/depth").view();
    assert_eq!((view.calls, view.slow_rate), (11, Some(0.0)));
}
