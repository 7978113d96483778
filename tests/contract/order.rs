//! Who gets the slots, how soon, and at how many calls: fleets in simulated time on the SQL function, and single calls at
//! chosen times.

use call_budget::store::memory::scheduler::{Call, Settings};

use crate::fleet::{Demand, Fleet, Report, keep};
use crate::model;
use crate::store::{KIS, START_US, Store};

const KIS_CLASSES: [(&str, i32, i32); 4] =
    [("order", 0, 100_000), ("minute", 1, 400_000), ("index", 2, 200_000), ("eod", 3, 100_000)];
const THREE: [(&str, i32, i32); 3] = [("orders", 0, 300_000), ("quotes", 1, 200_000), ("batch", 2, 100_000)];
const SIXTEEN: Settings = Settings { interval_us: 62_500, ..KIS };
const ONE: Settings = Settings { interval_us: 1_101_101, ..KIS };

#[tokio::test]
async fn each_class_gets_its_floor_and_then_priority_decides() {
    let expected = model::shares();
    let whole = vec![("a", 0, 500_000), ("b", 1, 300_000), ("c", 2, 200_000)];
    let odd = vec![("a", 0, 100_000), ("b", 1, 450_000), ("c", 2, 200_000), ("d", 3, 250_000)];
    let fleets = [
        ("kis", KIS_CLASSES.to_vec(), SIXTEEN, 60),
        ("equal", vec![("a", 1, 0), ("b", 1, 0), ("c", 1, 0)], SIXTEEN, 60),
        ("whole", whole, SIXTEEN, 60),
        // Slower than the lookahead.
        ("slow", vec![("a", 0, 0), ("b", 1, 300_000)], ONE, 600),
        ("slow and odd", odd, ONE, 600),
    ];
    for (name, classes, settings, seconds) in fleets {
        let lanes = classes.iter().flat_map(|(class, ..)| keep(class, 4, 2)).collect();
        let report = on_sql(&classes, Fleet { lanes, settings, seconds, ..Fleet::default() }).await;
        for (class, _, floor_ppm) in classes {
            let (share, floor) = (report.share(class), f64::from(floor_ppm) / 1e6);
            let model = expected[name][class].as_f64().unwrap();
            let one_slot = 1.0 / report.grants.len() as f64;
            assert!(share >= floor - one_slot, "{name}: {class} got {share:.3}, less than its floor {floor}");
            assert!((share - model).abs() <= 0.02, "{name}: {class} got {share:.3}, {model:.3} in the model");
        }
        let used = report.use_between(1, seconds, settings.interval_us);
        assert!(used >= 0.99, "{name}: use {used:.3}");
    }
}

#[tokio::test]
async fn a_class_long_absent_takes_no_burst_by_its_floor() {
    let classes = [("top", 0, 0), ("below", 1, 300_000)];
    for settings in [SIXTEEN, ONE] {
        // Never served before, it is due since the beginning.
        let lanes = classes.iter().flat_map(|(class, ..)| keep(class, 4, 2)).collect();
        let report = on_sql(&classes, Fleet { lanes, settings, seconds: 20, ..Fleet::default() }).await;
        let first = &report.grants[..10];
        let below = first.iter().filter(|grant| grant.class == "below").count();
        // The one that it claims, what three calls of others would have earned it, and its floor.
        assert!(below <= 5, "{below} of the first {} slots, its floor is 0.3", first.len());
    }
}

#[tokio::test]
async fn a_lone_class_gets_everything_whatever_its_floor() {
    let report = on_sql(&THREE, Fleet { lanes: keep("batch", 1, 4), seconds: 20, ..Fleet::default() }).await;
    let used = report.use_between(1, 20, SIXTEEN.interval_us);
    assert!(used >= 0.99, "use {used:.3}");
}

#[tokio::test]
async fn a_top_class_below_its_floor_waits_for_promises_and_due_floors_only() {
    let classes = [("order", 0, 300_000), ("minute", 1, 400_000), ("index", 2, 200_000), ("eod", 3, 100_000)];
    let mut lanes = vec![("order", Demand::Poisson(1.0))];
    lanes.extend(["minute", "index", "eod"].iter().flat_map(|class| keep(class, 4, 2)));
    let report = on_sql(&classes, Fleet { lanes, seconds: 120, ..Fleet::default() }).await;
    // Its own demand comes by chance: only callers that found nobody of their class before them count.
    let bound_us = SIXTEEN.lookahead_us + SIXTEEN.interval_us + 3 * SIXTEEN.interval_us;
    // The way to the store and back to it at the appointment.
    let round_trips_us = 2 * (2000 + 800);
    let orders: Vec<_> = report.grants.iter().filter(|grant| grant.class == "order").collect();
    let mut alone = 0;
    for pair in orders.windows(2) {
        if pair[1].arrived_us > pair[0].slot_us + 4 * SIXTEEN.interval_us {
            alone += 1;
            let wait_us = pair[1].slot_us - pair[1].arrived_us;
            assert!(wait_us <= bound_us + round_trips_us, "an order waited {wait_us} us, the bound is {bound_us} us");
        }
    }
    assert!(alone >= 50, "only {alone} orders came alone");
}

#[tokio::test]
async fn many_waiting_lanes_do_not_starve_the_row() {
    let classes = ["orders", "quotes", "batch"];
    let lanes = classes.iter().flat_map(|class| keep(class, 100, 8)).collect();
    let settings = Settings { interval_us: 1000, ..KIS };
    // 1.5 ms a call: the row bears 670 calls a second, so each has to bring its share of the 1,000 slots.
    let report = on_sql(&THREE, Fleet { lanes, settings, seconds: 6, service_us: 1500, ..Fleet::default() }).await;
    report.assert_spaced(1000);
    let used = report.use_between(1, 6, 1000);
    assert!(used >= 0.99, "24 lanes at 1,000/s use {used:.3} of the slots");
}

#[tokio::test]
async fn sixty_saturated_lanes_need_at_most_five_calls_a_send() {
    let lanes = ["orders", "quotes", "batch"].iter().flat_map(|class| keep(class, 4, 20)).collect();
    let report = on_sql(&THREE, Fleet { lanes, seconds: 40, ..Fleet::default() }).await;
    let (calls, used) = (report.calls_per_send(), report.use_between(1, 40, SIXTEEN.interval_us));
    assert!(calls <= 5.0, "{calls:.2} calls a send");
    assert!(used >= 0.99, "use {used:.3}");
}

#[tokio::test]
async fn one_caller_alone_needs_one_call_a_send() {
    let lanes = vec![("orders", Demand::Poisson(0.5))];
    let report = on_sql(&THREE, Fleet { lanes, seconds: 120, ..Fleet::default() }).await;
    // Of two that come within one interval the second has to come again.
    let second_calls =
        report.grants.windows(2).filter(|pair| pair[1].slot_us - pair[0].slot_us < 2 * SIXTEEN.interval_us).count();
    assert!(
        report.calls <= report.grants.len() + 2 * second_calls,
        "{} calls, {} sends",
        report.calls,
        report.grants.len()
    );
}

#[tokio::test]
async fn ten_thousand_a_second_need_few_calls() {
    let mut lanes = keep("orders", 500, 4);
    lanes.extend(keep("quotes", 1000, 4));
    lanes.extend(keep("batch", 2000, 4));
    let settings = Settings { interval_us: 100, ..KIS };
    let report = on_sql(&THREE, Fleet { lanes, settings, seconds: 3, ..Fleet::default() }).await;
    report.assert_spaced(100);
    let (calls, used) = (report.calls_per_send(), report.use_between(1, 3, 100));
    assert!(calls <= 0.05, "{calls:.3} calls a send");
    assert!(used >= 0.99, "use {used:.3}");
}

#[tokio::test]
async fn after_twelve_seconds_of_lost_answers_the_full_rate_is_back_within_one() {
    let mut lanes = keep("orders", 4, 20);
    lanes.extend(keep("batch", 4, 40));
    let report = on_sql(&THREE, Fleet { lanes, seconds: 30, lost: Some((5, 17)), ..Fleet::default() }).await;
    let sent = |from: i64, to: i64| {
        let span = from * 1_000_000..to * 1_000_000;
        report.grants.iter().filter(|grant| grant.sent && span.contains(&grant.slot_us)).count() as f64
    };
    assert_eq!(sent(6, 17), 0.0, "answers were lost");
    let healed = sent(18, 30) / (12.0 * 16.0);
    assert!(healed >= 0.99, "{healed:.3} of the rate from one second after the healing");
}

#[tokio::test]
async fn after_the_rate_rises_it_is_full_within_the_nap() {
    let mut lanes = keep("orders", 4, 4);
    lanes.extend(keep("batch", 4, 8));
    let slow = Settings { interval_us: 10_000_000, ..KIS };
    let fleet = Fleet { lanes, settings: slow, seconds: 50, change: Some((30, SIXTEEN)), ..Fleet::default() };
    let used = on_sql(&THREE, fleet).await.use_between(35, 50, SIXTEEN.interval_us);
    assert!(used >= 0.99, "use {used:.3} from 5 s after the change");
}

#[tokio::test]
async fn costs_are_granted_whole_and_spaced_by_their_size() {
    let mut lanes = keep("orders", 4, 2);
    lanes.extend(keep("batch", 4, 2));
    let settings = Settings { max_cost: 5, ..SIXTEEN };
    let report = on_sql(&THREE, Fleet { lanes, settings, costs: &[1, 1, 3, 5], ..Fleet::default() }).await;
    report.assert_spaced(SIXTEEN.interval_us);
    let used = report.use_between(1, 60, SIXTEEN.interval_us);
    assert!(used >= 0.98, "use {used:.3}");
}

#[tokio::test]
async fn a_lane_that_missed_its_appointment_blocks_nobody_but_keeps_its_place() {
    let store = Store::with_classes(SIXTEEN, &[("order", 0, 0), ("eod", 1, 0)]).await;
    let ask = |class, lane| Call { class, lane, costs: &[1], patience_us: 10_000_000 };
    assert_eq!(store.reserve(ask("eod", 1), START_US).await.waits_us, [0]);
    let retry_us = store.reserve(ask("order", 2), START_US + 1).await.retry_us.expect("the slot is taken");
    let appointment_us = START_US + 1 + retry_us;
    // In time it stands before the class below it.
    let blocked = store.reserve(ask("eod", 3), appointment_us + SIXTEEN.send_window_us).await;
    assert_eq!(blocked.waits_us, [0; 0]);
    // Past its appointment and the grace it does not.
    let late_us = appointment_us + SIXTEEN.send_window_us + 1;
    assert_eq!(store.reserve(ask("eod", 4), late_us).await.waits_us.len(), 1);
    assert_eq!(store.rows().await.waiters[&2].place_us, START_US + 1);
}

#[tokio::test]
async fn a_newcomer_queues_behind_its_own_class_and_nobody_takes_a_place() {
    let store = Store::with_classes(SIXTEEN, &[("order", 0, 0)]).await;
    let ask = |lane| Call { class: "order", lane, costs: &[1], patience_us: 10_000_000 };
    assert_eq!(store.reserve(ask(1), START_US).await.waits_us, [0]);
    let first_us = START_US + 1 + store.reserve(ask(2), START_US + 1).await.retry_us.unwrap();
    let second_us = START_US + 2 + store.reserve(ask(3), START_US + 2).await.retry_us.unwrap();
    assert!(first_us < second_us, "appointments come in the order of the queue");
    let newcomer = store.reserve(ask(4), first_us).await;
    assert_eq!(newcomer.waits_us, [0; 0], "somebody is due before him");
    assert_eq!(store.reserve(ask(2), first_us).await.waits_us.len(), 1);
    assert_eq!(store.reserve(ask(3), second_us).await.waits_us.len(), 1);
}

#[tokio::test]
async fn a_repeated_call_changes_nothing_and_leaves_no_ghost() {
    let store = Store::with_classes(SIXTEEN, &[("order", 0, 0)]).await;
    let ask = |lane| Call { class: "order", lane, costs: &[1], patience_us: 10_000_000 };
    store.reserve(ask(1), START_US).await;
    let first = store.reserve(ask(2), START_US + 1).await;
    let rows = store.rows().await;
    for _ in 0..50 {
        assert_eq!(store.reserve(ask(2), START_US + 1).await, first);
    }
    assert_eq!(store.rows().await, rows);
}

#[tokio::test]
async fn a_wait_longer_than_the_patience_is_refused_at_once_and_books_nothing() {
    let store = Store::with_classes(SIXTEEN, &[("order", 0, 0)]).await;
    let ask = |lane, patience_us| Call { class: "order", lane, costs: &[1], patience_us };
    store.reserve(ask(1, 0), START_US).await;
    let rows = store.rows().await;
    let refused = store.reserve(ask(2, 50_000), START_US).await;
    assert_eq!((refused.reason, refused.retry_us), (Some("patience"), Some(62_500)));
    assert_eq!(store.rows().await, rows);
    assert_eq!(store.reserve(ask(2, 62_500), START_US).await.reason, None);
}

#[tokio::test]
async fn a_refusal_of_the_first_in_a_lane_keeps_the_place_for_those_behind_it() {
    let store = Store::with_classes(SIXTEEN, &[("order", 0, 0)]).await;
    let ask = |lane, costs, patience_us| Call { class: "order", lane, costs, patience_us };
    store.reserve(ask(1, &[1], 0), START_US).await;
    store.reserve(ask(2, &[1, 1, 1], 10_000_000), START_US + 1).await;
    // Twice in a row the patience of the first runs out.
    for (at_us, costs) in [(START_US + 2, &[1, 1, 1][..]), (START_US + 3, &[1, 1])] {
        assert_eq!(store.reserve(ask(2, costs, 0), at_us).await.reason, Some("patience"));
        let waiter = &store.rows().await.waiters[&2];
        let behind = costs.len() as i64 - 1;
        assert_eq!((waiter.units, waiter.place_us, waiter.appointment_us), (behind, START_US + 1, at_us));
    }
    // The lane is expected at once: a newcomer lets it go first, and it does.
    let opens_us = START_US + SIXTEEN.interval_us - SIXTEEN.lookahead_us;
    assert_eq!(store.reserve(ask(3, &[1], 10_000_000), opens_us).await.waits_us, [0; 0]);
    assert_eq!(store.reserve(ask(2, &[1], 10_000_000), opens_us).await.waits_us, [SIXTEEN.lookahead_us]);
}

#[tokio::test]
async fn a_lane_that_does_not_come_back_after_a_refusal_blocks_nobody_for_long() {
    let store = Store::with_classes(SIXTEEN, &[("order", 0, 0)]).await;
    let ask = |lane, costs, patience_us| Call { class: "order", lane, costs, patience_us };
    store.reserve(ask(1, &[1], 0), START_US).await;
    store.reserve(ask(2, &[1, 1], 10_000_000), START_US + 1).await;
    let refused_us = START_US + 2;
    assert_eq!(store.reserve(ask(2, &[1, 1], 0), refused_us).await.reason, Some("patience"));
    let graced_us = refused_us + SIXTEEN.send_window_us;
    assert_eq!(store.reserve(ask(3, &[1], 10_000_000), graced_us).await.waits_us, [0; 0]);
    assert_eq!(store.reserve(ask(4, &[1], 10_000_000), graced_us + 1).await.waits_us.len(), 1);
}

#[tokio::test]
async fn a_refusal_books_nothing_for_a_lane_without_a_place_or_without_anybody_else() {
    let store = Store::with_classes(SIXTEEN, &[("order", 0, 0), ("eod", 1, 0)]).await;
    let ask = |class, lane, costs, patience_us| Call { class, lane, costs, patience_us };
    store.reserve(ask("order", 1, &[1], 0), START_US).await;
    // A newcomer; one who waits alone; one whose place is in another class.
    for (lane, booked_in, costs) in [(2, None, &[1, 1][..]), (3, Some("order"), &[1]), (4, Some("eod"), &[1, 1])] {
        if let Some(class) = booked_in {
            store.reserve(ask(class, lane, &[1], 10_000_000), START_US).await;
        }
        assert_eq!(store.reserve(ask("order", lane, costs, 0), START_US).await.reason, Some("patience"));
        assert_eq!(store.rows().await.waiters.get(&lane).map_or(0, |waiter| waiter.units), 0, "lane {lane}");
    }
    let waiting = "SELECT waiting::bigint FROM call_budget.call_budget_schedule WHERE budget = $1";
    assert_eq!(store.number(waiting).await, 0);
}

#[tokio::test]
async fn a_lane_id_under_another_class_is_a_newcomer_there() {
    let store = Store::with_classes(SIXTEEN, &[("order", 0, 0), ("eod", 1, 0)]).await;
    let ask = |class, lane| Call { class, lane, costs: &[1], patience_us: 10_000_000 };
    store.reserve(ask("order", 1), START_US).await;
    store.reserve(ask("eod", 2), START_US + 1).await;
    store.reserve(ask("order", 2), START_US + 2).await;
    let waiter = &store.rows().await.waiters[&2];
    assert_eq!((waiter.class.as_str(), waiter.place_us), ("order", START_US + 2));
}

async fn on_sql(classes: &[(&str, i32, i32)], fleet: Fleet) -> Report {
    let store = Store::with_classes(fleet.settings, classes).await;
    let report = fleet.run(&store).await;
    let rows = store.rows().await;
    let granted: i64 = rows.classes.values().map(|class| class.granted).sum();
    assert_eq!(granted, report.grants.len() as i64, "the books balance");
    report
}
