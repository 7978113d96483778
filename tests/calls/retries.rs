//! Another attempt: when, how long after, and at whose cost.

use call_budget::clock::Clock;
use call_budget::policy::breaker::Shown;
use call_budget::policy::verdict::{Broken, Verdict};
use call_budget::{CallError, CallOptions};

use crate::stage::{Reply, SECOND, Script, Stage, Step, ms};

fn within(max_wait: std::time::Duration) -> CallOptions {
    CallOptions { max_wait: Some(max_wait), ..CallOptions::default() }
}

#[tokio::test]
async fn each_attempt_takes_a_slot_and_a_pass_of_its_own_and_one_call_adds_one_to_the_streak() {
    let stage = Stage::new();
    let script = Script::of([Step::Answer(Reply::bad()), Step::Broken(Broken::Interrupted)]);
    let answered = stage.call("kis/real/chart", "desk", &script).await.unwrap();
    assert_eq!((answered.attempts, answered.finding.verdict), (3, Verdict::Good));
    assert_eq!((stage.granted(), stage.budgets.counters().attempts, stage.budgets.counters().calls), (3, 3, 1));
    let at = script.at();
    assert!(at[1] >= at[0] + SECOND && at[2] >= at[1] + 2 * SECOND, "{at:?}");

    let script = Script::of((0..3).map(|_| Step::Answer(Reply::bad())));
    let answered = stage.call("kis/real/chart", "desk", &script).await.unwrap();
    assert_eq!((answered.attempts, answered.finding.verdict), (3, Verdict::Bad));
    assert_eq!(stage.breaker("kis/real/chart").view().streak, 1);
}

#[tokio::test]
async fn a_wait_that_would_pass_max_wait_is_not_begun() {
    for (max_wait, attempts) in [(ms(500), 1), (ms(1500), 2), (ms(4000), 3)] {
        let stage = Stage::new();
        let began = stage.clock.now();
        let script = Script::of((0..3).map(|_| Step::Answer(Reply::bad())));
        let answered = stage.call_with("kis/real/chart", "desk", within(max_wait), &script).await.unwrap();
        assert_eq!((answered.attempts, answered.finding.verdict), (attempts, Verdict::Bad), "{max_wait:?}");
        assert!(stage.clock.now() <= began + max_wait);
    }
}

#[tokio::test]
async fn max_wait_bounds_the_waits_of_a_call_and_not_its_attempts() {
    // The waits before retries are 1 s and 2 s.
    for (max_wait, attempts) in [(ms(900), 1), (ms(2900), 2), (ms(3500), 3)] {
        let stage = Stage::new();
        let began = stage.clock.now();
        let script = Script::of((0..3).map(|_| Step::After(5 * SECOND, Box::new(Step::Answer(Reply::bad())))));
        let answered = stage.call_with("kis/real/chart", "desk", within(max_wait), &script).await.unwrap();
        assert_eq!((answered.attempts, answered.finding.verdict), (attempts, Verdict::Bad), "{max_wait:?}");
        assert!(answered.elapsed >= 5 * SECOND && answered.elapsed < 6 * SECOND, "{:?}", answered.elapsed);
        assert!(stage.clock.now() <= began + attempts * 6 * SECOND + max_wait);
    }
}

#[tokio::test]
async fn retry_after_wins_over_the_own_wait() {
    let stage = Stage::new();
    let script = Script::of([Step::Answer(Reply::status(503).header("Retry-After", "7"))]);
    let answered = stage.call("kis/real/chart", "desk", &script).await.unwrap();
    let at = script.at();
    assert_eq!(answered.attempts, 2);
    assert!(at[1] >= at[0] + 7 * SECOND && at[1] < at[0] + 8 * SECOND, "{at:?}");
}

#[tokio::test]
async fn what_must_not_happen_twice_is_not_sent_again_when_its_outcome_is_unknown() {
    let stage = Stage::new();
    let script = Script::of([Step::Broken(Broken::Interrupted)]);
    let error = stage.call("kis/real/transfer", "desk", &script).await.unwrap_err();
    assert_eq!((error.code(), error.may_have_been_sent(), script.sent()), ("CALL_BUDGET_INTERRUPTED", true, 1));
    let script = Script::of([Step::Answer(Reply::kis(500, "EGW00301", "timeout"))]);
    let answered = stage.call("kis/real/transfer", "desk", &script).await.unwrap();
    assert!(answered.finding.outcome_unknown);
    assert_eq!(script.sent(), 1);
    // What never left may go again, and a caller may know better than the settings.
    let script = Script::of([Step::Broken(Broken::NotConnected)]);
    assert_eq!(stage.call("kis/real/transfer", "desk", &script).await.unwrap().attempts, 2);
    let script = Script::of([Step::Broken(Broken::Interrupted)]);
    let options = CallOptions { idempotent: Some(true), ..CallOptions::default() };
    assert_eq!(stage.call_with("kis/real/transfer", "desk", options, &script).await.unwrap().attempts, 2);
}

#[tokio::test]
async fn an_earlier_attempt_that_may_have_been_carried_out_is_not_forgotten() {
    let stage = Stage::new();
    let script = Script::of([
        Step::Broken(Broken::Interrupted),
        Step::Broken(Broken::NotConnected),
        Step::Broken(Broken::NotConnected),
    ]);
    let error = stage.call("kis/real/chart", "desk", &script).await.unwrap_err();
    assert_eq!((error.code(), error.may_have_been_sent()), ("CALL_BUDGET_NOT_CONNECTED", true));
    let CallError::Failed { attempts: 3, .. } = error else { panic!("{error:?}") };
}

#[tokio::test]
async fn a_call_that_is_refused_another_attempt_returns_what_there_is() {
    let stage = Stage::new();
    let breaker = stage.breaker("kis/real/chart");
    for _ in 0..4 {
        breaker.admit().unwrap().settle(Verdict::Bad);
    }
    let script = Script::of([Step::Answer(Reply::bad())]);
    let answered = stage.call("kis/real/chart", "desk", &script).await.unwrap();
    assert_eq!((answered.attempts, answered.answer), (1, Reply::bad()));
    assert_eq!(stage.breaker("kis/real/chart").view().shown, Shown::Open);
    let script = Script::of([Step::Broken(Broken::Interrupted), Step::NotSent]);
    stage.breaker("kis/real/chart").reset("ops", "test");
    let error = stage.call("kis/real/chart", "desk", &script).await.unwrap_err();
    assert_eq!((error.code(), error.may_have_been_sent(), script.sent()), ("CALL_BUDGET_INTERRUPTED", true, 2));
}

#[tokio::test]
async fn a_verdict_of_none_is_not_tried_again() {
    let stage = Stage::new();
    for reply in [Reply::kis(500, "EGW00201", "초당"), Reply::kis(500, "EGW00215", "원장"), Reply::status(403)] {
        let script = Script::of([Step::Answer(reply)]);
        stage.call("kis/real/chart", "desk", &script).await.unwrap();
        assert_eq!(script.sent(), 1);
        stage.clock.advance(2 * SECOND);
    }
}
