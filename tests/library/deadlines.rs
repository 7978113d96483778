//! `acquire` ends by its `max_wait`, whatever hangs, and says what it came to.

use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::store::Failing;
use call_budget::test_util::ManualClock;
use call_budget::{AcquireError, Code, Settings};

use crate::script::{Script, Step, standing};
use crate::{ms, pass, settle, within};

/// The error that an acquire of `max_wait` ends with, exactly at its end.
async fn ends(clock: &ManualClock, script: &Script<ManualClock>, max_wait: Duration) -> AcquireError {
    let budget = script.budget(&Settings::default());
    let waiting = tokio::spawn(async move { budget.acquire_with("kis-real", "order", within(max_wait)).await });
    settle().await;
    pass(clock, max_wait - ms(1)).await;
    assert!(!waiting.is_finished(), "{max_wait:?} is not over yet");
    clock.advance(ms(1));
    settle().await;
    assert!(waiting.is_finished(), "{max_wait:?} is over");
    waiting.await.unwrap().unwrap_err()
}

#[tokio::test]
async fn whatever_stage_hangs_max_wait_ends_it_and_the_stage_is_named() {
    for stage in [Stage::LocalWait, Stage::Dns, Stage::Connect, Stage::Tls, Stage::Startup] {
        let (clock, script) = standing(move |_, _| Step::Hang(stage));
        let error = ends(&clock, &script, ms(400)).await;
        assert_eq!((error.code(), error.stage()), (Code::WaitExceeded, Some(stage)));
        assert!(!error.may_have_spent() && error.lost() == 0, "{error:?}");
        assert!(error.to_string().contains(stage.as_str()), "{error}");
    }
}

#[tokio::test]
async fn a_query_that_hangs_is_uncertain_and_counted_as_lost() {
    let (clock, script) = standing(|_, _| Step::Hang(Stage::Query));
    let error = ends(&clock, &script, ms(400)).await;
    assert_eq!((error.code(), error.stage(), error.lost()), (Code::Uncertain, Some(Stage::Query), 1));
    assert!(error.may_have_spent());
}

#[tokio::test]
async fn every_attempt_that_hangs_in_the_query_counts() {
    let (clock, script) = standing(|_, _| Step::Hang(Stage::Query));
    // Two attempts of 1 s with a pause of at most 0.25 s, and a third under way.
    let error = ends(&clock, &script, ms(2700)).await;
    assert_eq!((error.code(), error.lost(), script.calls()), (Code::Uncertain, 3, 3));
}

#[tokio::test]
async fn time_that_runs_out_between_attempts_is_uncertain_only_if_the_last_attempt_was() {
    let (clock, script) = standing(|_, _| Step::Fail(Stage::Query, Failing::Uncertain));
    let error = ends(&clock, &script, ms(100)).await;
    assert_eq!((error.code(), error.lost()), (Code::Uncertain, 1));

    let (clock, script) = standing(|before, _| match before {
        0 => Step::Fail(Stage::Query, Failing::Uncertain),
        _ => Step::Fail(Stage::Connect, Failing::Unavailable),
    });
    let error = ends(&clock, &script, ms(1000)).await;
    assert_eq!((error.code(), error.stage()), (Code::WaitExceeded, Some(Stage::Connect)));
    assert_eq!((error.may_have_spent(), error.lost()), (true, 1), "it covers the whole acquire");
}

#[tokio::test]
async fn a_queue_that_does_not_move_is_no_failure_of_the_store() {
    let (clock, script) = standing(|_, _| Step::Grant(vec![], Some(ms(5000))));
    let error = ends(&clock, &script, ms(400)).await;
    assert_eq!((error.code(), error.stage(), error.lost()), (Code::WaitExceeded, None, 0));
}

#[tokio::test]
async fn no_wait_at_all_ends_at_once() {
    let (_, script) = standing(|_, _| Step::Hang(Stage::Connect));
    let error = script.budget(&Settings::default()).acquire_with("a", "b", within(ms(0))).await.unwrap_err();
    assert_eq!((error.code(), error.lost()), (Code::WaitExceeded, 0));
}

/// A call cut short for one would cost the others its slots, and the process its connection.
#[tokio::test]
async fn an_impatient_caller_does_not_cut_the_call_short_for_the_others() {
    let (clock, script) = standing(|_, _| Step::After(ms(20), Box::new(Step::GrantAll)));
    let budget = script.budget(&Settings::default());
    let acquire = |max_wait| {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire_with("a", "b", within(max_wait)).await.map(drop) })
    };
    let impatient = acquire(ms(5));
    settle().await;
    pass(&clock, ms(5)).await;
    assert_eq!(impatient.await.unwrap().unwrap_err().code(), Code::Uncertain);
    let newcomer = acquire(ms(30_000));
    pass(&clock, ms(15)).await;
    newcomer.await.unwrap().unwrap();
    assert_eq!(
        (script.calls(), budget.counters().store_failures),
        (1, 0),
        "the newcomer got the slot of the impatient"
    );
}

/// On the machine's own clock, with everything that a real timer adds.
#[tokio::test]
async fn a_hang_ends_by_max_wait_on_the_machines_clock_too() {
    let script = Script::new(call_budget::clock::SystemClock, ms(50), |_, _| Step::Hang(Stage::Query));
    let budget = script.budget(&Settings::default());
    let began = std::time::Instant::now();
    let error = budget.acquire_with("a", "b", within(ms(300))).await.unwrap_err();
    let took = began.elapsed();
    assert_eq!(error.code(), Code::Uncertain);
    assert!((ms(300)..ms(1000)).contains(&took), "{took:?}");
}
