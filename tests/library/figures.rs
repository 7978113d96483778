//! Figures by name say what the counters say, and where time went.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::stage::Stage;
use call_budget::store::{Failing, Store};
use call_budget::test_util::MemoryStore;
use call_budget::{CallBudget, ClassFigures, Code, Figures, Settings};

use crate::script::{Step, standing};
use crate::{all_ended, costing, ended, in_memory, limit, ms, pass, send, settle, within};

/// Panics unless the sums over all names are what the process counted.
#[track_caller]
pub fn agreed(figures: &Figures) {
    let process = &figures.process;
    let sum = |of: fn(&ClassFigures) -> u64| figures.classes.iter().map(of).sum::<u64>();
    assert_eq!(sum(|class| class.granted), process.granted);
    assert_eq!(sum(|class| class.permits), process.permits);
    assert_eq!(sum(|class| class.dropped.round_trip), process.dropped_round_trip);
    assert_eq!(sum(|class| class.dropped.late), process.dropped_late);
    assert_eq!(sum(|class| class.dropped.unwanted), process.dropped_unwanted);
    assert_eq!(sum(|class| class.dropped.clock_step), process.dropped_clock_step);
    assert_eq!(sum(|class| class.lost), process.lost);
    assert_eq!(sum(|class| class.lapsed), process.lapsed);
    // While no permit is in anybody's hand, and the switch is on.
    assert_eq!(sum(ClassFigures::sent), process.permits - process.lapsed);
    for class in &figures.classes {
        assert_eq!(class.granted, class.permits + class.dropped.all(), "{class:?}");
        assert_eq!(class.sent(), class.permits - class.lapsed, "{class:?}");
    }
    let ended: u64 = figures.store.calls.iter().map(|calls| calls.took.count()).sum();
    assert_eq!(ended, process.store_calls + process.probes + process.fence_requests + process.pushbacks);
}

pub fn class<'a>(figures: &'a Figures, name: &str) -> &'a ClassFigures {
    let found = figures.classes.iter().find(|class| &*class.class == name);
    found.unwrap_or_else(|| panic!("no class {name:?} in {:?}", figures.classes))
}

fn refused(class: &ClassFigures) -> Vec<(Code, u64)> {
    class.refusals.iter().copied().filter(|(_, times)| *times > 0).collect()
}

#[tokio::test]
async fn waits_sends_and_refusals_are_told_by_class() {
    let (budget, store, clock) = in_memory(limit(18, 2));
    store.set_class("kis-real", "eod", 3, 0.0);
    send(budget.acquire("kis-real", "order").await);
    let second = tokio::spawn({
        let budget = budget.clone();
        async move { send(budget.acquire("kis-real", "eod").await) }
    });
    pass(&clock, ms(70)).await;
    ended(second).await;
    let refused_before_waiting = budget.acquire_with("kis-real", "eod", within(ms(1))).await.unwrap_err();
    assert_eq!(refused_before_waiting.code(), Code::WaitExceeded);
    for cost in [0, 3] {
        assert_eq!(
            budget.acquire_with("kis-real", "eod", costing(cost)).await.unwrap_err().code(),
            Code::Misconfigured
        );
    }
    store.pause("kis-real");
    assert_eq!(budget.acquire("kis-real", "order").await.unwrap_err().code(), Code::Paused);
    settle().await;

    let figures = budget.figures();
    agreed(&figures);
    let (order, eod) = (class(&figures, "order"), class(&figures, "eod"));
    assert_eq!((order.permits, order.sends[""], order.waits.count()), (1, 1, 1));
    assert_eq!(order.waits.sum(), Duration::ZERO);
    assert!(eod.waits.sum() >= ms(50) && eod.waits.sum() <= ms(70), "{:?}", eod.waits);
    let step: Vec<_> = eod.waits.steps().filter(|(_, count)| *count > 0).collect();
    assert_eq!(step, [(Some(ms(100)), 1)]);
    assert_eq!(refused(order), [(Code::Paused, 1)]);
    assert_eq!(refused(eod), [(Code::WaitExceeded, 1), (Code::Misconfigured, 1)]);
    assert_eq!(refused(class(&figures, "")), [(Code::Misconfigured, 1)], "a cost of 0 asks nobody");
}

#[tokio::test]
async fn names_that_do_not_exist_leave_one_line_however_many_they_are() {
    let (budget, _, _) = in_memory(limit(18, 1));
    for n in 0..50 {
        let (budget_name, class_name) = (format!("budget-{n}"), format!("class-{n}"));
        assert_eq!(budget.acquire(&budget_name, "order").await.unwrap_err().code(), Code::UnknownBudget);
        assert_eq!(budget.acquire("kis-real", &class_name).await.unwrap_err().code(), Code::UnknownClass);
    }
    settle().await;
    let figures = budget.figures();
    agreed(&figures);
    let [rest] = &figures.classes[..] else { panic!("{:?}", figures.classes) };
    assert_eq!((&*rest.budget, &*rest.class), ("", ""));
    assert_eq!(refused(rest), [(Code::UnknownBudget, 50), (Code::UnknownClass, 50)]);
}

#[tokio::test]
async fn an_outage_is_told_in_seconds_while_it_lasts_and_by_the_stage_in_which_calls_ended() {
    let (clock, script) = standing(|call, _| match call {
        0 => Step::GrantAll,
        1..4 => Step::Fail(Stage::Connect, Failing::Unavailable),
        4 => Step::Hang(Stage::Tls),
        5 => Step::Hang(Stage::Query),
        _ => Step::GrantAll,
    });
    let mut settings = Settings::default();
    settings.store_outage_max = ms(60_000);
    let budget = script.budget(&settings);
    send(budget.acquire("a", "b").await);
    assert_eq!((budget.figures().store.failing, budget.figures().store.outage), (false, Duration::ZERO));
    let waiting = tokio::spawn({
        let budget = budget.clone();
        async move { send(budget.acquire("a", "b").await) }
    });
    settle().await;
    let failed_at = clock.now();
    pass(&clock, ms(300)).await;
    let during = budget.figures().store;
    assert!(during.failing);
    assert_eq!(during.outage, clock.now().saturating_since(failed_at));
    pass(&clock, ms(4_000)).await;
    ended(waiting).await;
    let figures = budget.figures();
    agreed(&figures);
    let store = &figures.store;
    assert!(!store.failing && store.outage >= ms(2_500) && store.outage < ms(4_300), "{:?}", store.outage);
    pass(&clock, ms(1_000)).await;
    assert_eq!(budget.figures().store.outage, store.outage, "it is over");
    let calls = |stage, answered| {
        let calls = store.calls.iter().find(|calls| calls.stage == stage && calls.answered == answered);
        calls.unwrap_or_else(|| panic!("{stage}")).took.clone()
    };
    assert_eq!(calls(Stage::Query, true).count(), 2);
    assert_eq!(calls(Stage::Connect, false).count(), 3);
    assert_eq!(
        (calls(Stage::Tls, false).count(), calls(Stage::Tls, false).sum()),
        (1, ms(1_000)),
        "statement_timeout + 0.5 s"
    );
    assert_eq!(calls(Stage::Query, false).count(), 1);
    assert_eq!((class(&figures, "b").lost, figures.process.store_failures), (1, 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn figures_and_counters_agree_while_callers_of_many_classes_come_and_go() {
    let store = MemoryStore::new(SystemClock);
    store.set_budget("kis-real", limit(400, 1));
    for (priority, class) in ["order", "index", "eod"].into_iter().enumerate() {
        store.set_class("kis-real", class, priority as u16, 0.0);
    }
    let budget = CallBudget::with_store(&Settings::default(), SystemClock, store.clone()).unwrap();
    let returned = come_and_go(&budget, &["order", "index", "eod", "nobody"]).await;
    let figures = budget.figures();
    agreed(&figures);
    let waits: u64 = figures.classes.iter().map(|class| class.waits.count()).sum();
    let refusals: u64 = figures.classes.iter().map(ClassFigures::refused).sum();
    assert_eq!((waits, refusals), returned);
    for name in ["order", "index", "eod"] {
        assert_eq!(class(&figures, name).granted, store.granted("kis-real", name));
    }
    assert!(waits > 50 && refusals >= 100, "{waits} {refusals}");
    assert!(figures.classes.iter().all(|class| &*class.class != "nobody"));
}

/// 400 callers; every second one leaves at an odd moment. How many acquires returned a permit, and how many an error.
async fn come_and_go<C: Clock, S: Store>(budget: &CallBudget<C, S>, classes: &[&'static str]) -> (u64, u64) {
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..400 {
        // Of each class some stay and some leave.
        let (budget, class, stays) =
            (budget.clone(), classes[caller % classes.len()], (caller / classes.len()).is_multiple_of(2));
        tasks.spawn(async move {
            let acquire = budget.acquire_with("kis-real", class, within(ms(2_000)));
            let acquired = match stays {
                true => Some(acquire.await),
                false => tokio::time::timeout(ms(fastrand::u64(0..300)), acquire).await.ok(),
            };
            match acquired {
                Some(Ok(permit)) => {
                    let _ = permit.start();
                    (1, 0)
                }
                Some(Err(_)) => (0, 1),
                None => (0, 0),
            }
        });
    }
    let returned = all_ended(tasks).await.into_iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    crate::support::eventually("the lanes' tasks have ended", async || {
        tokio::runtime::Handle::current().metrics().num_alive_tasks() <= before + 1
    })
    .await;
    returned
}

#[tokio::test]
async fn with_the_switch_off_the_process_counts_by_class_as_well() {
    let mut settings = Settings::default();
    settings.polite_interval = Duration::ZERO;
    let budget = CallBudget::new(&settings).unwrap();
    for _ in 0..3 {
        send(budget.acquire("kis-real", "order").await);
    }
    drop(budget.acquire("kis-real", "eod").await.unwrap());
    let figures = budget.figures();
    let (order, eod) = (class(&figures, "order"), class(&figures, "eod"));
    assert_eq!((order.permits, order.sent(), order.lapsed, order.waits.count()), (3, 3, 0, 3));
    assert_eq!((eod.permits, eod.sent(), eod.lapsed), (1, 0, 1));
    assert_eq!(figures.process.permits, 4);
    assert!(figures.store.calls.iter().all(|calls| calls.took.count() == 0));
}
