//! When a granted call may leave, to the microsecond.

use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::{Closed, Code, Settings};
use tokio::sync::oneshot;

use crate::script::{Step, standing};
use crate::{at, ms, pass, settle, within};

const US: Duration = Duration::from_micros(1);

#[tokio::test]
async fn a_permit_opens_at_the_answer_plus_wait_and_closes_at_the_request_plus_wait_plus_window() {
    let (clock, script) = standing(|_, _| Step::After(ms(10), Box::new(Step::Grant(vec![ms(30)], None))));
    let budget = script.budget(&Settings::default());
    let waiting = tokio::spawn(async move { budget.acquire("kis-real", "order").await.unwrap() });
    settle().await;
    pass(&clock, ms(10)).await;
    clock.advance(ms(30) - US);
    settle().await;
    assert!(!waiting.is_finished(), "39.999 ms after the request");
    clock.advance(US);
    settle().await;
    assert!(waiting.is_finished(), "40 ms after the request");
    let permit = waiting.await.unwrap();
    assert!(permit.governed());
    assert_eq!(permit.closes_at(), Some(at(ms(80))));
    clock.advance(ms(40));
    assert!(permit.start().is_ok(), "the last moment belongs to it");
}

#[tokio::test]
async fn start_and_call_refuse_once_the_window_has_closed() {
    let (clock, script) = standing(|_, _| Step::GrantAll);
    let budget = script.budget(&Settings::default());
    let (one, two) = (budget.acquire("a", "b").await.unwrap(), budget.acquire("a", "b").await.unwrap());
    clock.advance(ms(50) + US);
    assert_eq!(one.start().unwrap_err(), Closed);
    let mut sent = false;
    assert_eq!(two.call(async || sent = true).await.unwrap_err(), Closed);
    assert!(!sent);
    assert_eq!(budget.counters().lapsed, 2);
}

#[tokio::test]
async fn a_permit_that_is_dropped_has_lapsed_and_a_used_one_has_not() {
    let (_, script) = standing(|_, _| Step::GrantAll);
    let budget = script.budget(&Settings::default());
    drop(budget.acquire("a", "b").await.unwrap());
    assert_eq!(budget.acquire("a", "b").await.unwrap().call(async || 7).await, Ok(7));
    let counters = budget.counters();
    assert_eq!((counters.permits, counters.lapsed), (2, 1));
}

#[tokio::test]
async fn a_caller_woken_too_late_does_not_send_but_asks_again_at_the_place_it_had() {
    let (clock, script) = standing(|before, _| match before {
        0 => Step::Grant(vec![ms(30)], None),
        1 => Step::Grant(vec![], Some(ms(1000))),
        _ => Step::GrantAll,
    });
    let budget = script.budget(&Settings::default());
    let acquire = |cost| {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire_with("a", "b", crate::costing(cost)).await.unwrap().closes_at() })
    };
    let stalled = acquire(1);
    settle().await;
    let newcomer = acquire(2);
    settle().await;
    assert_eq!(script.costs(), [[1], [2]], "the newcomer waits for an appointment at 1 s");
    clock.advance(ms(81));
    settle().await;
    assert!(!stalled.is_finished(), "its window closed at 80 ms");
    assert_eq!(budget.counters().lapsed, 1);
    clock.advance(ms(919));
    settle().await;
    assert_eq!(script.costs()[2], [1, 2], "it goes before the newcomer");
    assert_eq!(stalled.await.unwrap(), Some(at(ms(1050))));
    newcomer.await.unwrap();
}

#[tokio::test]
async fn a_round_trip_over_rtt_max_drops_its_slots_and_probes_with_back_off_before_it_asks_again() {
    let (clock, script) = standing(|before, _| match before {
        0 => Step::After(ms(26), Box::new(Step::GrantAll)),
        _ => Step::GrantAll,
    });
    let mut probes = [ms(30), ms(26), ms(25)].into_iter();
    script.probes_take(move || probes.next().unwrap());
    let budget = script.budget(&Settings::default());
    let waiting = {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire("a", "b").await.unwrap().closes_at() })
    };
    settle().await;
    pass(&clock, ms(400)).await;
    let dropped_at = 26;
    let probes = [dropped_at + 20, dropped_at + 20 + 40, dropped_at + 20 + 40 + 80];
    assert_eq!(script.probed_at(), probes.map(|at_ms| at(ms(at_ms))));
    assert_eq!(script.asked_at(), [at(ms(0)), at(ms(probes[2]))]);
    assert_eq!(waiting.await.unwrap(), Some(at(ms(probes[2] + 50))));
    let counters = budget.counters();
    assert_eq!((counters.granted, counters.permits, counters.dropped_round_trip), (2, 1, 1));
    assert_eq!((counters.probes, counters.store_calls), (3, 2));
}

#[tokio::test]
async fn a_round_trip_of_exactly_rtt_max_is_used() {
    let (clock, script) = standing(|_, _| Step::After(ms(25), Box::new(Step::GrantAll)));
    let budget = script.budget(&Settings::default());
    let waiting = tokio::spawn(async move { budget.acquire("a", "b").await.unwrap().closes_at() });
    settle().await;
    pass(&clock, ms(25)).await;
    assert_eq!(waiting.await.unwrap(), Some(at(ms(50))));
}

/// The answer and the deadline of the store call (1 s) meet in one poll.
#[tokio::test]
async fn an_answer_after_the_deadline_is_a_loss() {
    let (release, held) = oneshot::channel();
    let mut held = Some(held);
    let (clock, script) = standing(move |before, _| match before {
        0 => Step::When(held.take().unwrap(), Box::new(Step::GrantAll)),
        _ => Step::Hang(Stage::Connect),
    });
    let mut settings = Settings::default();
    settings.rtt_max = ms(60_000);
    let budget = script.budget(&settings);
    let waiting = {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire_with("a", "b", within(ms(1500))).await.unwrap_err() })
    };
    settle().await;
    clock.advance(ms(1000) + US);
    release.send(()).unwrap();
    settle().await;
    let counters = budget.counters();
    assert_eq!((counters.granted, counters.permits, counters.dropped_late), (1, 0, 1));
    pass(&clock, ms(500)).await;
    let error = waiting.await.unwrap();
    assert!(error.may_have_spent() && error.lost() == 1, "{error:?}");
    assert_eq!(error.code(), Code::Uncertain, "{error}");
}

#[tokio::test]
async fn a_slot_that_opens_only_after_max_wait_goes_to_the_next() {
    let (clock, script) = standing(|before, _| match before {
        0 => Step::Grant(vec![ms(40)], Some(ms(40))),
        _ => Step::GrantAll,
    });
    let budget = script.budget(&Settings::default());
    let acquire = |max_wait| {
        let budget = budget.clone();
        tokio::spawn(
            async move { budget.acquire_with("a", "b", within(max_wait)).await.map(|permit| permit.closes_at()) },
        )
    };
    let (impatient, patient) = (acquire(ms(39)), acquire(ms(40)));
    settle().await;
    let refused = impatient.await.unwrap().unwrap_err();
    assert_eq!((refused.code(), refused.retry_after()), (Code::WaitExceeded, Some(ms(40))));
    pass(&clock, ms(40)).await;
    assert_eq!(patient.await.unwrap().unwrap(), Some(at(ms(90))));
    assert_eq!(script.calls(), 1);
}
