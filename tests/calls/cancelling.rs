//! A caller who goes away at any await leaves the probe, the trial of a held credential and the queue free.

use call_budget::clock::Clock;
use call_budget::policy::breaker::Shown;
use call_budget::policy::verdict::Verdict;
use call_budget::{Credential, Token};

use crate::stage::{Reply, SECOND, Script, Stage, Step, driven, dropped_after, ms, settle};

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// A breaker whose probe is due and a credential whose trial is due: what is lost here is missed by the next call.
async fn about_to_recover() -> Stage {
    let stage = Stage::new();
    let refused = Script::of([Step::Answer(Reply::status(403))]);
    stage.call("kis/real/archive", "desk", &refused).await.unwrap();
    stage.clock.advance(40 * SECOND);
    stage.trip("kis/real/archive");
    stage.trip("kis/real/quote");
    stage.clock.advance(30 * SECOND);
    let clock = stage.clock.clone();
    stage
        .budgets
        .tokens_from("kis/real/token", move |_, _| {
            let clock = clock.clone();
            async move {
                clock.sleep_until(clock.now() + ms(7)).await;
                Ok(Token { value: "t".into(), valid_for: 100 * SECOND })
            }
        })
        .unwrap();
    stage
}

#[tokio::test]
async fn a_call_dropped_at_any_await_frees_probe_and_trial_and_leaves_no_task() {
    let before = alive_tasks();
    for surface in ["kis/real/archive", "kis/real/quote"] {
        let mut polls = 0;
        loop {
            let stage = about_to_recover().await;
            let credential = Credential::new("desk");
            let script = Script::of([Step::Slowly(ms(20), ms(20), Reply::good())]);
            let call = stage.budgets.call(surface, &credential, script.requests(&stage.clock));
            let ended = driven(&stage.clock, dropped_after(polls, call)).await;
            if let Some(answered) = ended {
                answered.unwrap();
                break;
            }
            assert_eq!(stage.breaker(surface).view().shown, Shown::ProbeDue, "{surface}: dropped after {polls} polls");
            let answered = stage.call(surface, "desk", &Script::default()).await;
            assert_eq!(answered.unwrap().finding.verdict, Verdict::Good, "{surface}: dropped after {polls} polls");
            assert_eq!(stage.breaker(surface).view().shown, Shown::Closed, "{surface}: dropped after {polls} polls");
            assert_eq!(stage.breaker(surface).view().failures, 0);
            polls += 1;
            assert!(polls < 300);
        }
        assert!(polls >= 4, "it waited for a slot, for the head and for the body: {polls}");
    }
    // Each stage is gone, and with it its tasks; those that sleep find that out by the clock of nobody.
    settle().await;
    assert!(alive_tasks() <= before, "{} tasks, {before} before", alive_tasks());
}

#[tokio::test]
async fn a_caller_who_gives_up_on_silence_longer_than_the_slow_limit_has_learned_something() {
    // An answer that was coming says nothing.
    for (answer_comes, shown) in [(false, Shown::Open), (true, Shown::Closed)] {
        let stage = Stage::new();
        let credential = Credential::new("desk");
        for _ in 0..10 {
            let script = Script::of([if answer_comes { Step::HeadThenHang(ms(100)) } else { Step::Hang }]);
            let call = stage.budgets.call("kis/real/depth", &credential, script.requests(&stage.clock));
            let gives_up = stage.clock.now() + ms(2900);
            assert!(driven(&stage.clock, stage.clock.until(gives_up, call)).await.is_none());
        }
        let view = stage.breaker("kis/real/depth").view();
        assert_eq!((view.shown, view.failures), (Shown::Closed, 0), "shorter than the limit: {view:?}");
        for _ in 0..10 {
            let script = Script::of([if answer_comes { Step::HeadThenHang(ms(100)) } else { Step::Hang }]);
            let call = stage.budgets.call("kis/real/depth", &credential, script.requests(&stage.clock));
            let gives_up = stage.clock.now() + 5 * SECOND;
            if driven(&stage.clock, stage.clock.until(gives_up, call)).await.is_some() {
                break;
            }
        }
        let view = stage.breaker("kis/real/depth").view();
        assert_eq!((view.shown, view.failures), (shown, 0), "{view:?}");
    }
}

#[tokio::test]
async fn a_probe_given_up_in_silence_past_the_slow_limit_has_failed() {
    for (waits, shown) in [(2 * SECOND, Shown::ProbeDue), (5 * SECOND, Shown::Open)] {
        let stage = Stage::new();
        let breaker = stage.breaker("kis/real/depth");
        for _ in 0..10 {
            breaker.admit().unwrap().settle(Verdict::Bad);
        }
        stage.clock.advance(30 * SECOND);
        let probe = breaker.admit().unwrap();
        probe.settle(Verdict::Bad);
        let credential = Credential::new("desk");
        let script = Script::of([Step::Hang]);
        let call = stage.budgets.call("kis/real/depth", &credential, script.requests(&stage.clock));
        let gives_up = stage.clock.now() + waits;
        driven(&stage.clock, stage.clock.until(gives_up, call)).await;
        assert_eq!(stage.breaker("kis/real/depth").view().shown, shown, "2/1/3: a second bad one fails the round");
    }
}
