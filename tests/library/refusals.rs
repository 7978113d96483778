//! The store's no, and arguments that are refused before anybody is asked.

use call_budget::store::Refusal;
use call_budget::{CallBudget, Code, Settings};
use tokio::task::JoinSet;

use crate::script::{Step, standing};
use crate::{Duration, all_ended, costing, ended, in_memory, limit, ms, pass, settle, within};

#[tokio::test]
async fn whoever_cannot_be_served_in_time_is_refused_before_waiting_and_others_are_not_touched() {
    let (budget, _, clock) = in_memory(limit(1, 1));
    drop(budget.acquire("kis-real", "order").await.unwrap());
    let acquire = |max_wait| {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire_with("kis-real", "order", within(max_wait)).await.map(drop) })
    };
    let (impatient, patient) = (acquire(ms(500)), acquire(ms(30_000)));
    settle().await;
    let error = ended(impatient).await.unwrap_err();
    assert_eq!((error.code(), error.may_have_spent()), (Code::WaitExceeded, false));
    assert_eq!(error.retry_after(), Some(Duration::from_micros(1_101_101)));
    pass(&clock, ms(1101)).await;
    assert!(!patient.is_finished());
    pass(&clock, ms(1)).await;
    ended(patient).await.unwrap();
}

#[tokio::test]
async fn those_behind_one_who_is_refused_keep_their_place_before_other_processes() {
    let (budget, store, clock) = in_memory(limit(1, 1));
    let other = CallBudget::with_store(&Settings::default(), clock.clone(), store.clone()).unwrap();
    drop(budget.acquire("kis-real", "order").await.unwrap());
    let acquire = |budget: &CallBudget<_, _>, max_wait| {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire_with("kis-real", "order", within(max_wait)).await.map(drop) })
    };
    let (impatient, patient) = (acquire(&budget, ms(2_000)), acquire(&budget, ms(30_000)));
    pass(&clock, ms(10)).await;
    let later = acquire(&other, ms(30_000));
    settle().await;
    store.push_back("kis-real", ms(6_000));
    pass(&clock, ms(1_900)).await;
    assert_eq!(ended(impatient).await.unwrap_err().code(), Code::WaitExceeded);
    pass(&clock, ms(4_150)).await;
    ended(patient).await.unwrap();
    assert!(!later.is_finished(), "it came later, and has to wait for the next slot");
    pass(&clock, ms(1_150)).await;
    ended(later).await.unwrap();
}

#[tokio::test]
async fn a_crowd_without_patience_is_refused_by_one_call() {
    let (_, script) = standing(|_, _| Step::Refuse(Refusal::Patience { retry_after: ms(700) }));
    let budget = script.budget(&Settings::default());
    let mut tasks = JoinSet::new();
    for _ in 0..1000 {
        let budget = budget.clone();
        tasks.spawn(async move { budget.acquire_with("a", "b", within(ms(500))).await.unwrap_err().retry_after() });
    }
    assert!(all_ended(tasks).await.into_iter().all(|retry_after| retry_after == Some(ms(700))));
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn a_paused_budget_refuses_at_once_and_serves_again_once_resumed() {
    let (budget, store, clock) = in_memory(limit(18, 1));
    store.pause("kis-real");
    let error = budget.acquire("kis-real", "order").await.unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Code::Paused, Some(ms(1000))));
    assert!(error.to_string().contains("resume"), "{error}");
    store.resume("kis-real");
    drop(budget.acquire("kis-real", "order").await.unwrap());

    store.push_back("kis-real", ms(700));
    let waiting = tokio::spawn({
        let budget = budget.clone();
        async move { budget.acquire("kis-real", "order").await.map(drop) }
    });
    settle().await;
    pass(&clock, ms(699)).await;
    assert!(!waiting.is_finished(), "pushed back");
    pass(&clock, ms(1)).await;
    ended(waiting).await.unwrap();
    assert_eq!(store.granted("kis-real", "order"), budget.counters().granted);
}

#[tokio::test]
async fn unknown_names_are_told_apart() {
    let (budget, ..) = in_memory(limit(18, 1));
    for (name, class, code) in [
        ("nobody", "order", Code::UnknownBudget),
        ("kis-real", "nobody", Code::UnknownClass),
        ("한국", "주문", Code::UnknownBudget),
    ] {
        let error = budget.acquire(name, class).await.unwrap_err();
        assert_eq!(error.code(), code);
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(class) && text.contains("list"), "{text}");
    }
}

#[tokio::test]
async fn a_cost_over_the_largest_is_refused_and_others_in_the_same_call_are_served() {
    let (budget, _, clock) = in_memory(limit(18, 3));
    let acquire = |cost| {
        let budget = budget.clone();
        tokio::spawn(async move {
            budget.acquire_with("kis-real", "order", costing(cost)).await.map(|permit| permit.cost())
        })
    };
    let (small, over, large, absurd) = (acquire(1), acquire(4), acquire(3), acquire(u32::MAX));
    settle().await;
    for refused in [over, absurd] {
        let error = ended(refused).await.unwrap_err();
        assert_eq!(error.code(), Code::Misconfigured);
        assert!(error.to_string().contains("max_cost 3"), "{error}");
    }
    pass(&clock, ms(70)).await;
    assert_eq!((ended(small).await.unwrap(), ended(large).await.unwrap()), (Some(1), Some(3)));
}

#[tokio::test]
async fn impossible_arguments_are_refused_without_asking_anybody() {
    let (_, script) = standing(|_, _| Step::GrantAll);
    let budget = script.budget(&Settings::default());
    for (name, options, says) in [
        ("a", costing(0), "at least 1"),
        ("a", within(Duration::from_secs(86_401)), "1 day"),
        ("", costing(1), "a budget has a name"),
    ] {
        let error = budget.acquire_with(name, "b", options).await.unwrap_err();
        assert_eq!(error.code(), Code::Misconfigured);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(script.calls(), 0);
    assert!(budget.acquire_with("a", "b", within(Duration::from_secs(86_400))).await.is_ok());
}

#[test]
fn each_code_has_its_stable_string_and_says_whether_to_go_on() {
    for (code, text, pair, transient, stops) in [
        (Code::StoreUnavailable, "CALL_BUDGET_STORE_UNAVAILABLE", "CALL_BUDGET_BLOCKED", true, true),
        (Code::Uncertain, "CALL_BUDGET_UNCERTAIN", "CALL_BUDGET_BLOCKED", true, true),
        (Code::WaitExceeded, "CALL_BUDGET_WAIT_EXCEEDED", "CALL_BUDGET_BLOCKED", true, false),
        (Code::Paused, "CALL_BUDGET_PAUSED", "CALL_BUDGET_BLOCKED", true, true),
        (Code::UnknownBudget, "CALL_BUDGET_UNKNOWN_BUDGET", "CALL_BUDGET_MISCONFIGURED", false, true),
        (Code::UnknownClass, "CALL_BUDGET_UNKNOWN_CLASS", "CALL_BUDGET_MISCONFIGURED", false, true),
        (Code::Misconfigured, "CALL_BUDGET_MISCONFIGURED", "CALL_BUDGET_MISCONFIGURED", false, true),
    ] {
        assert_eq!((code.as_str(), code.failure().code, code.failure().transient), (text, pair, transient));
        assert_eq!(code.stops_the_run(), stops, "{text}");
    }
}
