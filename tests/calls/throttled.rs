//! "Too many": whose rate it was, and who waits.

use std::path::Path;

use call_budget::clock::Clock;
use call_budget::policy::breaker::Shown;
use call_budget::policy::verdict::Verdict;
use call_budget::{CallBudget, Credential, Options, Settings};

use crate::stage::{Reply, SECOND, SURFACES, Script, Stage, Step, driven, ms, settle};
use crate::told::Told;

fn over_the_rate() -> Step {
    Step::Answer(Reply::kis(500, "EGW00201", "초당 거래건수를 초과하였습니다."))
}

#[tokio::test]
async fn http_500_with_egw00201_is_counted_as_throttled_opens_nothing_and_pushes_everybody_back() {
    let (stage, told) = (Stage::new(), Told::listen());
    let another = stage.another();
    for _ in 0..6 {
        let answered = stage.call("kis/real/quote", "desk", &Script::of([over_the_rate()])).await.unwrap();
        assert_eq!((answered.finding.verdict, answered.finding.throttled), (Verdict::None, true));
    }
    let throttled = stage.budgets.throttled();
    assert_eq!(throttled.iter().map(|(code, times)| (&**code, *times)).collect::<Vec<_>>(), [("EGW00201", 6)]);
    let view = stage.breaker("kis/real/quote").view();
    assert_eq!((view.shown, view.streak, view.failures), (Shown::Closed, 0, 0));
    let lines = told.all("call_budget_throttled");
    assert_eq!(lines.len(), 6);
    assert_eq!((lines[0].field("surface"), lines[0].field("code")), ("kis/real/quote", "EGW00201"));
    assert_eq!(lines[0].field("pushback_seconds"), "1.0");

    settle().await;
    let pushed_back = stage.clock.now();
    drop(driven(&stage.clock, another.acquire("kis-real", "order")).await.unwrap());
    assert!(stage.clock.now() >= pushed_back + ms(990), "another process, another class: {:?}", stage.clock.now());
    let counters = stage.budgets.counters();
    assert!(counters.pushbacks >= 1 && counters.pushback_failures == 0, "{counters:?}");
    drop(driven(&stage.clock, another.acquire("kis-token", "token")).await.unwrap());
}

#[tokio::test]
async fn egw00215_holds_its_surface_and_does_not_touch_the_own_rate() {
    for (code, text) in
        [("EGW00215", "원장의 초당 거래건수를 초과하였습니다."), ("EGW00201", "원장의 초당 거래건수를 초과하였습니다.")]
    {
        let stage = Stage::new();
        let script = Script::of([Step::Answer(Reply::kis(500, code, text))]);
        stage.call("kis/real/balance", "desk", &script).await.unwrap();
        settle().await;
        let now = stage.clock.now();
        stage.call("kis/real/quote", "desk", &script).await.unwrap();
        assert!(stage.clock.now() < now + ms(10), "the rate is as it was");
        let error = stage.call("kis/real/balance", "other", &script).await.unwrap_err();
        assert_eq!(error.code(), "CALL_BUDGET_HELD");
        assert!(error.retry_after().unwrap() <= SECOND);
        assert_eq!(stage.breaker("kis/real/balance").view().failures, 0);
        assert_eq!((stage.budgets.throttled().len(), stage.budgets.counters().pushbacks), (0, 0));
        let held = |report: &&call_budget::BreakerReport| report.view.shown == Shown::Held;
        let reports = stage.budgets.breakers();
        let names: Vec<_> = reports.iter().filter(held).map(|report| &*report.name).collect();
        assert_eq!(names, ["kis/real/balance"]);
        stage.clock.advance(SECOND);
        stage.call("kis/real/balance", "other", &script).await.unwrap();
    }
}

#[tokio::test]
async fn a_pushback_that_cannot_be_reported_delays_no_answer_and_is_counted() {
    let (stage, told) = (Stage::new(), Told::listen());
    let settings = Settings::of_toml(&SURFACES.replace("kis-real", "gone"), Path::new("")).unwrap();
    stage.store.set_budget(
        "gone",
        call_budget::test_util::Limit {
            units: 1000,
            window: SECOND,
            send_window: ms(50),
            arrival_jitter: ms(50),
            max_cost: 1,
        },
    );
    stage.store.set_class("gone", "minute", 0, 0.0);
    let budgets =
        CallBudget::with_store(&settings, stage.clock.clone(), crate::deaf::Deaf(stage.store.clone())).unwrap();
    let credential = Credential::new("desk");
    let began = stage.clock.now();
    let call = budgets.call("kis/real/quote", &credential, Script::of([over_the_rate()]).requests(&stage.clock));
    assert!(driven(&stage.clock, call).await.unwrap().finding.throttled);
    assert!(stage.clock.now() < began + ms(10));
    driven(&stage.clock, async { stage.clock.sleep_until(began + 2 * SECOND).await }).await;
    settle().await;
    let counters = budgets.counters();
    assert_eq!((counters.pushbacks, counters.pushback_failures), (1, 1));
    assert_eq!(told.all("call_budget_pushback_not_reported").len(), 1);
}

#[tokio::test]
async fn with_the_switch_off_the_process_pushes_itself_back() {
    let mut settings = Settings::of_toml(SURFACES, Path::new("")).unwrap();
    settings.polite_interval = ms(0);
    let budgets = CallBudget::new(&settings).unwrap();
    let (credential, clock) = (Credential::new("desk"), Stage::new().clock);
    let script = Script::of([Step::Answer(Reply::bad()), over_the_rate()]);
    let mut requests = script.requests(&clock);
    for verdict in [Verdict::Bad, Verdict::None] {
        let answered = budgets.call("kis/real/quote", &credential, &mut requests).await.unwrap();
        assert_eq!(answered.finding.verdict, verdict);
    }
    assert_eq!(budgets.breaker("kis/real/quote").unwrap().view().streak, 1, "breakers work all the same");
    for class in ["minute", "order"] {
        let options = Options { max_wait: Some(ms(100)), ..Options::default() };
        let error = budgets.acquire_with("kis-real", class, options).await.unwrap_err();
        let wait = error.retry_after().unwrap();
        assert!(wait > ms(100) && wait <= SECOND, "{class}: {wait:?}");
    }
    drop(budgets.acquire("kis-token", "token").await.unwrap());
}
