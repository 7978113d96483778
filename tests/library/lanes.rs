//! One call asks for everybody, and the lane stays the same.

use std::collections::HashSet;

use call_budget::Settings;
use call_budget::clock::SystemClock;
use call_budget::policy::stage::Stage;
use call_budget::store::{Failing, Refusal};
use tokio::task::JoinSet;

use crate::script::{Script, Step, standing};
use crate::{costing, ms, pass, settle};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_waiting_tasks_make_one_store_call_at_a_time_and_few_in_all() {
    let script = Script::new(SystemClock, ms(60_000), |_, _| Step::After(ms(20), Box::new(Step::GrantAll)));
    let mut settings = Settings::default();
    settings.rtt_max = ms(60_000);
    let budget = script.budget(&settings);
    let mut tasks = JoinSet::new();
    for _ in 0..1000 {
        let budget = budget.clone();
        tasks.spawn(async move { budget.acquire("kis-real", "order").await.unwrap().start().unwrap() });
    }
    assert_eq!(tasks.join_all().await.len(), 1000);
    assert_eq!(script.most_in_flight(), 1);
    assert!(script.calls() <= 50, "{} calls", script.calls());
    assert_eq!(budget.counters().permits, 1000);
}

#[tokio::test]
async fn one_call_asks_for_everybody_in_order_and_the_lane_id_stays_over_failures() {
    let (clock, script) = standing(|before, _| match before {
        0 => Step::Grant(vec![ms(0), ms(1)], Some(ms(40))),
        1 => Step::Fail(Stage::Connect, Failing::Unavailable),
        2 => Step::Fail(Stage::Query, Failing::Uncertain),
        _ => Step::GrantAll,
    });
    let budget = script.budget(&Settings::default());
    let mut tasks = JoinSet::new();
    for cost in 1..=5 {
        let budget = budget.clone();
        tasks.spawn(async move {
            let permit = budget.acquire_with("kis-real", "order", costing(cost)).await.unwrap();
            (permit.nonce(), permit.cost())
        });
    }
    settle().await;
    pass(&clock, ms(600)).await;
    let mut last: Vec<_> = tasks.join_all().await.split_off(2);
    last.sort_unstable();
    assert_eq!(last.iter().map(|(_, cost)| cost.unwrap()).collect::<Vec<_>>(), [3, 4, 5], "by slot");
    assert_eq!(script.costs(), [vec![1, 2, 3, 4, 5], vec![3, 4, 5], vec![3, 4, 5], vec![3, 4, 5]]);
    assert_eq!(script.asked_at()[1], crate::at(ms(40)), "at the appointment");
    assert_eq!(HashSet::<i64>::from_iter(script.lanes()).len(), 1);
    assert!(script.lanes()[0] >= 0);
}

#[tokio::test]
async fn several_call_budgets_on_one_budget_never_share_a_lane() {
    let (_, script) = standing(|_, _| Step::GrantAll);
    for _ in 0..300 {
        let budget = script.budget(&Settings::default());
        for class in ["order", "eod"] {
            drop(budget.acquire("kis-real", class).await.unwrap());
        }
    }
    assert_eq!(HashSet::<i64>::from_iter(script.lanes()).len(), 600);
}

#[tokio::test]
async fn whoever_leaves_the_queue_is_not_asked_for_again_and_his_slot_goes_to_the_next() {
    let (release, held) = tokio::sync::oneshot::channel();
    let mut held = Some(held);
    let (clock, script) = standing(move |before, _| match before {
        0 => Step::When(held.take().unwrap(), Box::new(Step::Grant(vec![ms(0)], Some(ms(30))))),
        _ => Step::GrantAll,
    });
    let budget = script.budget(&Settings::default());
    let mut tasks = Vec::new();
    for cost in [2, 1, 3, 4] {
        let budget = budget.clone();
        tasks.push(tokio::spawn(async move { budget.acquire_with("kis-real", "order", costing(cost)).await }));
    }
    settle().await;
    tasks[0].abort();
    tasks[3].abort();
    settle().await;
    release.send(()).unwrap();
    settle().await;
    assert!(tasks[1].is_finished(), "the first slot, of cost 2, serves the next");
    pass(&clock, ms(30)).await;
    assert!(tasks[2].is_finished());
    assert_eq!(script.costs(), [vec![2, 1, 3, 4], vec![3]]);
}

#[tokio::test]
async fn a_lane_that_nobody_waits_in_leaves_no_task_behind() {
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (_, script) = standing(|_, _| Step::Grant(vec![], Some(ms(5000))));
    let budget = script.budget(&Settings::default());
    let waiting = tokio::spawn(async move { budget.acquire("kis-real", "order").await.map(drop) });
    settle().await;
    waiting.abort();
    settle().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
}

/// Names that do not exist must not pile up, and forgetting one must not split a lane that others have joined since.
#[tokio::test]
async fn a_lane_is_one_lane_even_when_its_name_was_unknown_a_moment_ago() {
    let (clock, script) = standing(|before, _| match before {
        0 => Step::Refuse(Refusal::UnknownBudget),
        1 => Step::Grant(vec![], Some(ms(40))),
        _ => Step::GrantAll,
    });
    let budget = script.budget(&Settings::default());
    let acquire = || {
        let budget = budget.clone();
        Box::pin(async move { budget.acquire("kis-real", "order").await.map(drop) })
    };
    // Two are refused together; the second hears of it only after others have joined the lane anew.
    let (mut first, mut second) = (acquire(), acquire());
    for refused in [&mut first, &mut second] {
        assert!(futures_poll(refused).await.is_none());
    }
    settle().await;
    assert!(first.await.is_err());
    let third = tokio::spawn(acquire());
    settle().await;
    assert!(second.await.is_err());
    let fourth = tokio::spawn(acquire());
    settle().await;
    pass(&clock, ms(40)).await;
    third.await.unwrap().unwrap();
    fourth.await.unwrap().unwrap();
    assert_eq!(script.costs(), [vec![1, 1], vec![1], vec![1, 1]], "the third and the fourth are asked for together");
}

/// One poll.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
