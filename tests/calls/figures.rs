//! What calls came to, told by surface and by breaker.

use call_budget::policy::breaker::Shown;
use call_budget::{CallOptions, SurfaceFigures};

use crate::stage::{Reply, SECOND, Script, Stage, Step, driven, ms, settle};

fn surface(stage: &Stage, name: &str) -> SurfaceFigures {
    let figures = stage.budgets.figures();
    figures.surfaces.into_iter().find(|figures| &*figures.surface == name).unwrap_or_else(|| panic!("no {name:?}"))
}

/// How often the breaker of this name changed into each state, where it did.
fn transitions(stage: &Stage, name: &str) -> Vec<(Shown, u64)> {
    let figures = stage.budgets.figures();
    let breaker = figures.breakers.into_iter().find(|figures| &*figures.breaker == name).expect("it has a breaker");
    breaker.transitions.into_iter().filter(|(_, times)| *times > 0).collect()
}

#[tokio::test]
async fn sends_are_told_by_budget_class_and_surface() {
    let stage = Stage::new();
    stage.call("kis/real/quote", "desk", &Script::default()).await.unwrap();
    let eager = CallOptions { class: Some("order".into()), ..CallOptions::default() };
    for _ in 0..2 {
        stage.call_with("kis/real/quote", "desk", eager.clone(), &Script::default()).await.unwrap();
    }
    stage.call("kis/real/order", "desk", &Script::default()).await.unwrap();
    driven(&stage.clock, stage.budgets.acquire("kis-real", "order")).await.unwrap().start().map(drop).unwrap();
    let figures = stage.budgets.figures();
    let sends = |class: &str| {
        let class = figures.classes.iter().find(|figures| &*figures.class == class).expect("it was used");
        class.sends.iter().map(|(surface, times)| (&**surface, *times)).collect::<Vec<_>>()
    };
    assert_eq!(sends("minute"), [("", 0), ("kis/real/quote", 1)]);
    assert_eq!(sends("order"), [("", 1), ("kis/real/order", 1), ("kis/real/quote", 2)]);
    assert_eq!(surface(&stage, "kis/real/quote").sends, 3);
}

#[tokio::test]
async fn calls_refusals_verdicts_and_throttling_are_told_by_surface_and_add_up() {
    let stage = Stage::new();
    let too_many = || Step::Answer(Reply::kis(500, "EGW00201", "초당 거래건수를 초과하였습니다."));
    stage.call("kis/real/quote", "desk", &Script::of([too_many()])).await.unwrap();
    stage.call("kis/real/chart", "desk", &Script::of([too_many()])).await.unwrap();
    stage.call("kis/real/quote", "desk", &Script::default()).await.unwrap();
    for _ in 0..5 {
        stage.call("kis/real/balance", "desk", &Script::of([Step::Answer(Reply::bad())])).await.unwrap();
    }
    stage.call("kis/real/balance", "desk", &Script::default()).await.unwrap_err();
    stage.call("no/such/surface", "desk", &Script::default()).await.unwrap_err();
    settle().await;

    let (quote, balance) = (surface(&stage, "kis/real/quote"), surface(&stage, "kis/real/balance"));
    assert_eq!((quote.calls, quote.sends, quote.verdicts_good, quote.verdicts_none), (2, 2, 1, 1));
    assert_eq!(quote.throttled.iter().map(|(code, times)| (&**code, *times)).collect::<Vec<_>>(), [("EGW00201", 1)]);
    assert_eq!((balance.calls, balance.sends, balance.verdicts_bad, balance.refused_by_breaker), (6, 5, 5, 1));
    assert_eq!(surface(&stage, "").calls, 1);
    let figures = stage.budgets.figures();
    let sum = |of: fn(&SurfaceFigures) -> u64| figures.surfaces.iter().map(of).sum::<u64>();
    let process = &figures.process;
    assert_eq!(sum(|surface| surface.calls), process.calls);
    assert_eq!(sum(|surface| surface.sends), process.attempts);
    assert_eq!(sum(|surface| surface.refused_by_breaker), process.refused_by_breaker);
    assert_eq!(sum(|surface| surface.refused_by_hold), process.refused_by_hold);
    assert_eq!(sum(|surface| surface.verdicts_good), process.verdicts_good);
    assert_eq!(sum(|surface| surface.verdicts_bad), process.verdicts_bad);
    assert_eq!(sum(|surface| surface.verdicts_none), process.verdicts_none);
    assert_eq!(sum(|surface| surface.throttled.values().sum()), stage.budgets.throttled().values().sum::<u64>());
    let sent: u64 = figures.classes.iter().map(call_budget::ClassFigures::sent).sum();
    assert_eq!(sent, process.attempts, "every call here is one of a surface");
}

#[tokio::test]
async fn a_breaker_tells_how_often_it_changed_and_how_many_episodes_have_ended() {
    let stage = Stage::new();
    let state = || {
        let figures = stage.budgets.figures();
        figures.breakers.iter().find(|figures| &*figures.breaker == "kis/real/chart").map(|figures| figures.state)
    };
    assert_eq!((state(), transitions(&stage, "kis/real/chart")), (Some(Shown::Closed), vec![]));
    stage.trip("kis/real/chart");
    assert_eq!(state(), Some(Shown::Open));
    stage.clock.advance(31 * SECOND);
    assert_eq!(state(), Some(Shown::ProbeDue));
    stage.breaker("kis/real/chart").reset("ann", "a drill");
    stage.trip("kis/real/chart");
    stage.clock.advance(31 * SECOND);
    for _ in 0..4 {
        stage.call("kis/real/chart", "desk", &Script::default()).await.unwrap();
        stage.clock.advance(ms(10));
    }
    stage.breaker("kis/real/chart").force_open("ann", "a drill", Some(SECOND));
    stage.clock.advance(2 * SECOND);
    stage.breaker("kis/real/chart").tend();
    let changes = transitions(&stage, "kis/real/chart");
    // Closed: by the reset, by the probe, and when the order had run out.
    assert_eq!(changes, [(Shown::Closed, 3), (Shown::Open, 2), (Shown::ForcedOpen, 1)]);
    let figures = stage.budgets.figures();
    let chart = figures.breakers.iter().find(|figures| &*figures.breaker == "kis/real/chart").unwrap();
    assert_eq!(chart.episodes, 2);
    let shared = figures.breakers.iter().find(|figures| figures.surfaces.len() == 2).expect("two share one");
    assert_eq!(
        shared.surfaces.iter().map(|surface| &**surface).collect::<Vec<_>>(),
        ["kis/real/order", "kis/real/quote"]
    );
}
