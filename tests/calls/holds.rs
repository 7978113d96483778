//! Holds that begin while calls are on their way, and the one call that ends them.

use std::time::Duration;

use call_budget::policy::verdict::Verdict;
use call_budget::{CallError, CallOptions, Credential, Token};

use crate::stage::{Budgets, Reply, SECOND, Script, Stage, Step, driven};

/// Tokens of this life, by a call of their surface whose answers go by the script.
fn tokens_by_calls(stage: &Stage, script: &Script, valid_for: Duration) {
    let (clock, script) = (stage.clock.clone(), script.clone());
    let source = move |budgets: Budgets, credential| {
        let requests = script.requests(&clock);
        async move {
            let answered = budgets.call("kis/real/token", &credential, requests).await?;
            match answered.finding.verdict {
                Verdict::Good => Ok(Token { value: "t".into(), valid_for }),
                _ => Err(CallError::UnknownSurface("no token in the answer".into())),
            }
        }
    };
    stage.budgets.tokens_from("kis/real/token", source).unwrap();
}

fn wrong_key() -> Step {
    Step::Answer(Reply::kis(403, "EGW00103", "유효하지 않은 AppKey입니다."))
}

#[tokio::test]
async fn a_hold_sends_those_home_who_wait_for_a_slot_and_nothing_is_sent_inside_it() {
    let asking = |status| Reply::status(status).header("Retry-After", "60");
    // With 1,000 slots a second the others have theirs in hand, with one a second they wait for it.
    for units in [1, 1000] {
        for reply in [Reply::status(403), asking(429), asking(503)] {
            let (stage, what) = (Stage::with_units(units), format!("{units} {}", reply.status));
            let script = Script::of([Step::Answer(reply)]);
            let calls: Vec<_> = (0..100)
                .map(|_| {
                    let (budgets, requests) = (stage.budgets.clone(), script.requests(&stage.clock));
                    let options = CallOptions { max_wait: Some(300 * SECOND), ..CallOptions::default() };
                    tokio::spawn(async move {
                        budgets.call_with("ai/chat", &Credential::new("desk"), options, requests).await
                    })
                })
                .collect();
            let ended = driven(&stage.clock, futures_util::future::join_all(calls)).await;
            let held = ended.iter().filter(|call| matches!(call, Ok(Err(CallError::Held { .. })))).count();
            assert_eq!((script.sent(), held), (1, 99), "{what}");
            if units == 1 {
                assert!(stage.store.granted("ai", "minute") < 10, "{what}: they gave up their places in the queue");
            }
        }
    }
}

#[tokio::test]
async fn who_waits_for_a_slot_is_not_sent_home_by_the_hold_of_another() {
    let stage = Stage::with_units(1);
    let refused = Script::of([Step::Answer(Reply::status(403))]);
    let script = Script::default();
    let calls: Vec<_> = [("eve", &refused), ("bob", &script), ("alice", &script)]
        .into_iter()
        .map(|(label, script)| {
            let (budgets, requests) = (stage.budgets.clone(), script.requests(&stage.clock));
            tokio::spawn(async move { budgets.call("ai/chat", &Credential::new(label), requests).await })
        })
        .collect();
    for call in driven(&stage.clock, futures_util::future::join_all(calls)).await {
        call.unwrap().unwrap();
    }
    assert_eq!((refused.sent(), script.sent()), (1, 2));
}

#[tokio::test]
async fn a_trial_fetches_the_token_that_it_needs_and_ends_the_hold() {
    let stage = Stage::new();
    let (issuing, script) = (Script::of([wrong_key(), wrong_key()]), Script::default());
    tokens_by_calls(&stage, &issuing, 86_400 * SECOND);
    let call = || stage.call("kis/real/quote", "desk", &script);
    assert_eq!(call().await.unwrap_err().code(), "CALL_BUDGET_NO_TOKEN");
    assert_eq!(call().await.unwrap_err().code(), "CALL_BUDGET_HELD");
    // Still wrong: the trial has failed, and the next one comes after twice the time.
    stage.clock.advance(60 * SECOND);
    assert_eq!(call().await.unwrap_err().code(), "CALL_BUDGET_NO_TOKEN");
    for _ in 0..3 {
        let error = call().await.unwrap_err();
        assert_eq!(error.code(), "CALL_BUDGET_HELD");
        assert!(error.retry_after().unwrap() > 110 * SECOND, "{error}");
    }
    assert_eq!((issuing.sent(), script.sent()), (2, 0), "no token is asked for meanwhile");
    // Right again.
    stage.clock.advance(120 * SECOND);
    assert_eq!(call().await.unwrap().finding.verdict, Verdict::Good);
    assert!(stage.budgets.breakers().iter().all(|report| report.holds.is_empty()));
    call().await.unwrap();
    assert_eq!((issuing.sent(), script.sent()), (3, 2));
}

#[tokio::test]
async fn a_token_alone_does_not_end_the_hold_of_a_credential_that_is_refused_with_it() {
    let stage = Stage::new();
    let issuing = Script::default();
    tokens_by_calls(&stage, &issuing, 100 * SECOND);
    let script = Script::of((0..2).map(|_| wrong_key()));
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    // The token has run out when the trial goes.
    stage.clock.advance(101 * SECOND);
    stage.call("kis/real/quote", "desk", &script).await.unwrap();
    assert_eq!((issuing.sent(), script.sent()), (2, 2));
    let error = stage.call("kis/real/quote", "desk", &script).await.unwrap_err();
    assert_eq!(error.code(), "CALL_BUDGET_HELD");
    assert!(error.retry_after().unwrap() > 110 * SECOND, "the doubt was there all the time: {error}");
}
