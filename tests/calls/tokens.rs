//! Access tokens: fetched once for all, renewed in time, dropped when they failed, and never shown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use call_budget::clock::Clock;
use call_budget::policy::breaker::Shown;
use call_budget::policy::verdict::Verdict;
use call_budget::{CallError, CallOptions, Credential, Token};

use crate::stage::{Reply, SECOND, Script, Stage, Step, driven, ms, settle};

const DAY: Duration = Duration::from_secs(86_400);

/// Tokens "t1", "t2", ... of this life, after so long.
fn numbered(stage: &Stage, life: Duration, takes: Duration) -> Arc<AtomicUsize> {
    let fetched = Arc::<AtomicUsize>::default();
    let (count, clock) = (Arc::clone(&fetched), stage.clock.clone());
    stage
        .budgets
        .tokens_from("kis/real/token", move |_, _| {
            let (number, clock) = (count.fetch_add(1, Ordering::SeqCst) + 1, clock.clone());
            async move {
                clock.sleep_until(clock.now() + takes).await;
                Ok(Token { value: format!("t{number}").into(), valid_for: life })
            }
        })
        .unwrap();
    fetched
}

fn expired() -> Step {
    Step::Answer(Reply::kis(500, "EGW00123", "기간이 만료된 token 입니다."))
}

#[tokio::test]
async fn a_thousand_callers_share_one_fetch() {
    let stage = Stage::new();
    let fetched = numbered(&stage, DAY, ms(50));
    let script = Script::default();
    let calls = (0..1000).map(|_| {
        let (budgets, requests) = (stage.budgets.clone(), script.requests(&stage.clock));
        async move { budgets.call("kis/real/quote", &Credential::new("desk"), requests).await }
    });
    for answered in driven(&stage.clock, futures_util::future::join_all(calls)).await {
        answered.unwrap();
    }
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
    assert!(script.tokens().iter().all(|token| token == "t1"));
    stage.call("kis/real/quote", "other", &script).await.unwrap();
    assert_eq!(fetched.load(Ordering::SeqCst), 2, "another credential has another token");
}

#[tokio::test]
async fn a_token_error_refreshes_once_and_a_second_failure_holds_the_credential() {
    let stage = Stage::new();
    let fetched = numbered(&stage, DAY, ms(5));
    let script = Script::of([expired()]);
    let answered = stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!((answered.attempts, answered.finding.verdict), (2, Verdict::Good));
    assert_eq!((script.tokens(), fetched.load(Ordering::SeqCst)), (vec!["t1".into(), "t2".into()], 2));
    assert_eq!(stage.breaker("kis/real/quote").view().failures, 0);

    let script = Script::of((0..9).map(|_| expired()));
    let answered = stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!((answered.attempts, answered.finding.verdict), (2, Verdict::None));
    assert_eq!((script.tokens(), fetched.load(Ordering::SeqCst)), (vec!["t2".into(), "t3".into()], 3));
    let error = stage.call("kis/real/quote", "desk", &script).await.unwrap_err();
    assert_eq!((error.code(), script.sent(), fetched.load(Ordering::SeqCst)), ("CALL_BUDGET_HELD", 2, 3));
    assert_eq!(stage.breaker("kis/real/quote").view().shown, Shown::Closed);
    stage.call("kis/real/quote", "other", &Script::default()).await.unwrap();
}

#[tokio::test]
async fn an_order_is_sent_again_after_a_refresh_since_the_gate_turned_it_away() {
    let stage = Stage::new();
    numbered(&stage, DAY, ms(5));
    let script = Script::of([expired()]);
    assert_eq!(stage.call("kis/real/order", "desk", &script).await.unwrap().attempts, 2);
}

#[tokio::test]
async fn only_the_token_that_failed_is_dropped() {
    let stage = Stage::new();
    let fetched = numbered(&stage, DAY, ms(5));
    // Ten callers fail with the same token, one after the other.
    let calls = (0..10).map(|n| {
        let script = Script::of([Step::After(ms(20 + 30 * n), Box::new(expired()))]);
        let (budgets, requests) = (stage.budgets.clone(), script.requests(&stage.clock));
        async move {
            budgets.call("kis/real/quote", &Credential::new("desk"), requests).await.unwrap();
            script.tokens()
        }
    });
    for tokens in driven(&stage.clock, futures_util::future::join_all(calls)).await {
        assert_eq!(tokens, ["t1", "t2"]);
    }
    assert_eq!(fetched.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_while_calls_go_on_with_the_old_one() {
    let stage = Stage::new();
    let fetched = numbered(&stage, 1000 * SECOND, 5 * SECOND);
    let script = Script::default();
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    stage.clock.advance(930 * SECOND);
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!(fetched.load(Ordering::SeqCst), 1, "60 s before its end, not earlier");
    stage.clock.advance(10 * SECOND);
    let now = stage.clock.now();
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert!(stage.clock.now() < now + SECOND, "nobody waits for the renewal");
    assert_eq!(fetched.load(Ordering::SeqCst), 2);
    stage.clock.advance(6 * SECOND);
    settle().await;
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!(script.tokens(), ["t1", "t1", "t1", "t2"]);
}

#[tokio::test]
async fn a_token_that_has_expired_is_not_used() {
    let stage = Stage::new();
    let fetched = numbered(&stage, 10 * SECOND, ms(5));
    let script = Script::default();
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    stage.clock.advance(11 * SECOND);
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!((script.tokens(), fetched.load(Ordering::SeqCst)), (vec!["t1".into(), "t2".into()], 2));
}

#[tokio::test]
async fn a_caller_who_goes_away_wastes_no_issued_token() {
    let stage = Stage::new();
    let fetched = numbered(&stage, DAY, ms(50));
    let credential = Credential::new("desk");
    let script = Script::default();
    {
        let gone = stage.budgets.call("kis/real/quote", &credential, script.requests(&stage.clock));
        assert!(crate::stage::dropped_after(1, gone).await.is_none());
    }
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!((fetched.load(Ordering::SeqCst), script.tokens()), (1, vec!["t1".into()]));
}

#[tokio::test]
async fn a_source_that_fails_panics_or_hangs_costs_no_slot_and_frees_the_probe() {
    let stage = Stage::new();
    let mode = Arc::new(Mutex::new("fail"));
    let ask = Arc::clone(&mode);
    let source = move |_, _| {
        let mode = *ask.lock().unwrap();
        async move {
            match mode {
                "fail" => Err(CallError::UnknownSurface("as the test says".into())),
                "panic" => panic!("as the test says"),
                "hang" => std::future::pending().await,
                _ => Ok(Token { value: "t".into(), valid_for: DAY }),
            }
        }
    };
    stage.budgets.tokens_from("kis/real/token", source).unwrap();
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    let script = Script::default();
    for how in ["fail", "panic", "hang"] {
        *mode.lock().unwrap() = how;
        let options = CallOptions { max_wait: Some(SECOND), ..CallOptions::default() };
        let error = stage.call_with("kis/real/quote", "desk", options, &script).await.unwrap_err();
        assert_eq!((error.code(), error.may_have_been_sent()), ("CALL_BUDGET_NO_TOKEN", false), "{how}");
        assert_eq!(stage.breaker("kis/real/quote").view().shown, Shown::ProbeDue, "{how}");
    }
    *mode.lock().unwrap() = "issue";
    // The hanging one ends with the time that a call of its surface may take.
    stage.clock.advance(41 * SECOND);
    settle().await;
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!((script.tokens(), stage.granted()), (vec!["t".into()], 1));
}

#[tokio::test]
async fn tokens_issued_too_often_hold_the_token_surface_and_not_calls_with_a_token() {
    let stage = Stage::new();
    let (clock, asked) = (
        stage.clock.clone(),
        Script::of([
            Step::Answer(Reply::good()),
            Step::Answer(Reply::kis(403, "EGW00133", "접근토큰 발급 잠시 후 다시 시도하세요(1분당 1회)")),
        ]),
    );
    let vendor = asked.clone();
    stage
        .budgets
        .tokens_from("kis/real/token", move |budgets: crate::stage::Budgets, credential| {
            let requests = vendor.requests(&clock);
            async move {
                let answered = budgets.call("kis/real/token", &credential, requests).await?;
                match answered.answer.status {
                    200 => Ok(Token { value: "t1".into(), valid_for: DAY }),
                    _ => Err(CallError::UnknownSurface("no token in the answer".into())),
                }
            }
        })
        .unwrap();
    let script = Script::default();
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    for _ in 0..3 {
        let error = stage.call("kis/real/quote", "other", &script).await.unwrap_err();
        assert_eq!(error.code(), "CALL_BUDGET_NO_TOKEN");
    }
    let error = stage.call("kis/real/quote", "other", &script).await.unwrap_err();
    assert!(error.retry_after().unwrap() > 58 * SECOND, "{error}");
    assert_eq!(asked.sent(), 2, "the others were held");
    stage.call("kis/real/quote", "desk", &script).await.expect("it has its token");
    stage.clock.advance(60 * SECOND);
    stage.call("kis/real/quote", "other", &script).await.unwrap();
}

#[tokio::test]
async fn without_a_source_a_token_error_holds_the_credential() {
    let stage = Stage::new();
    let script = Script::of([expired()]);
    let answered = stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!((answered.attempts, script.tokens()), (1, vec!["-".into()]));
    let error = stage.call("kis/real/quote", "desk", &script).await.unwrap_err();
    assert_eq!(error.code(), "CALL_BUDGET_HELD");
}

#[tokio::test]
async fn a_token_is_never_printed() {
    let stage = Stage::new();
    stage
        .budgets
        .tokens_from("kis/real/token", |_, _| async { Ok(Token { value: "s3cret".into(), valid_for: DAY }) })
        .unwrap();
    let seen = Arc::new(Mutex::new(String::new()));
    let (text, credential) = (Arc::clone(&seen), Credential::new("desk"));
    let call = stage.budgets.call("kis/real/quote", &credential, move |attempt| {
        *text.lock().unwrap() = format!("{attempt:?}");
        assert_eq!(attempt.token.as_ref().unwrap().as_str(), "s3cret");
        async { Ok(Reply::good()) }
    });
    driven(&stage.clock, call).await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.contains("hidden") && !seen.contains("s3cret"), "{seen}");
    let token = Token { value: "s3cret".into(), valid_for: DAY };
    assert!(!format!("{token:?}").contains("s3cret"));
}

#[tokio::test]
async fn no_probe_is_out_while_a_token_is_fetched() {
    let stage = Stage::new();
    numbered(&stage, DAY, 5 * SECOND);
    stage.call("kis/real/quote", "other", &Script::default()).await.unwrap();
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    let (budgets, script) = (stage.budgets.clone(), Script::default());
    let requests = script.requests(&stage.clock);
    let waiting = tokio::spawn(async move { budgets.call("kis/real/quote", &Credential::new("desk"), requests).await });
    settle().await;
    assert_eq!(stage.breaker("kis/real/quote").view().shown, Shown::ProbeDue);
    stage.call("kis/real/quote", "other", &Script::default()).await.expect("it has its token, and is the probe");
    driven(&stage.clock, waiting).await.unwrap().unwrap();
    assert_eq!(script.sent(), 1);
}

#[tokio::test]
async fn tokens_that_are_refused_one_after_the_other_hold_the_credential_whichever_calls_find_out() {
    let stage = Stage::with_units(1);
    let fetched = numbered(&stage, DAY, ms(5));
    let script = Script::of((0..99).map(|_| expired()));
    // The slot of a second attempt is further away than any of these waits.
    let options = CallOptions { max_wait: Some(ms(500)), ..CallOptions::default() };
    let mut codes = Vec::new();
    for _ in 0..10 {
        stage.clock.advance(2 * SECOND);
        match stage.call_with("kis/real/quote", "desk", options.clone(), &script).await {
            Ok(answered) => assert_eq!((answered.attempts, answered.finding.verdict), (1, Verdict::None)),
            Err(error) => codes.push(error.code()),
        }
    }
    assert_eq!((script.tokens(), fetched.load(Ordering::SeqCst)), (vec!["t1".into(), "t2".into()], 2));
    assert_eq!(codes, ["CALL_BUDGET_HELD"; 8]);
}

/// A runtime that does nothing unless it is told to.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn a_fetch_whose_runtime_stands_still_is_replaced() {
    let (still, alive) = (runtime(), runtime());
    let stage = Stage::new();
    let fetched = numbered(&stage, DAY, ms(5));
    let (credential, script) = (Credential::new("desk"), Script::default());
    let gone = stage.budgets.call("kis/real/quote", &credential, script.requests(&stage.clock));
    assert!(still.block_on(crate::stage::dropped_after(1, gone)).is_none());
    let options = CallOptions { max_wait: Some(100 * SECOND), ..CallOptions::default() };
    alive.block_on(stage.call_with("kis/real/quote", "desk", options, &script)).unwrap();
    assert!(stage.clock.now().since_boot() < 60 * SECOND, "{:?}", stage.clock.now());
    assert_eq!((script.sent(), fetched.load(Ordering::SeqCst)), (1, 1), "the first has not even begun");
    // It wakes up: what it brings is not kept.
    still.block_on(driven(&stage.clock, async { stage.clock.sleep_until(stage.clock.now() + SECOND).await }));
    alive.block_on(stage.call("kis/real/quote", "desk", &script)).unwrap();
    assert_eq!(script.tokens(), ["t1", "t1"]);
}

#[test]
fn a_renewal_whose_runtime_stands_still_is_replaced() {
    let (still, alive) = (runtime(), runtime());
    let stage = Stage::new();
    let fetched = numbered(&stage, 1000 * SECOND, ms(5));
    let script = Script::default();
    alive.block_on(stage.call("kis/real/quote", "desk", &script)).unwrap();
    stage.clock.advance(940 * SECOND);
    let credential = Credential::new("desk");
    let gone = stage.budgets.call("kis/real/quote", &credential, script.requests(&stage.clock));
    still.block_on(crate::stage::dropped_after(1, gone));
    stage.clock.advance(46 * SECOND);
    alive.block_on(async {
        stage.call("kis/real/quote", "desk", &script).await.unwrap();
        driven(&stage.clock, async { stage.clock.sleep_until(stage.clock.now() + SECOND).await }).await;
        stage.call("kis/real/quote", "desk", &script).await.unwrap();
    });
    assert_eq!((script.tokens().pop(), fetched.load(Ordering::SeqCst)), (Some("t2".into()), 2));
}
