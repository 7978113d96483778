//! The breaker on its own, as a program that uses nothing else of this library holds it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant as StdInstant};

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Wall;
use call_budget::policy::breaker::calendar::{Calendar, Mode, Window};
use call_budget::policy::breaker::rules::Probes;
use call_budget::policy::breaker::{Caller, Counted, Reason, Rules, Shown};
use call_budget::policy::verdict::Verdict;
use call_budget::test_util::{Instant, ManualClock};
use call_budget::{Breaker, CallBudget, Credential, Settings};
use jiff::tz::TimeZone;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tracing::Level;

use crate::stage::{Reply, SURFACES, Script, Stage, Step, driven};
use crate::told::Told;

const SECOND: Duration = Duration::from_secs(1);

/// 2026-01-05 00:00:07 UTC.
const MONDAY: Wall = Wall::from_unix_us(1_767_571_207_000_000);

fn one_bad(probes: Probes) -> Rules {
    Rules { streak: Some(1), jitter: 0.0, probes, ..Rules::escalating() }
}

fn breaker(rules: Rules) -> (Breaker<ManualClock>, ManualClock) {
    let clock = ManualClock::at(Instant::default());
    clock.set_wall(MONDAY);
    (Breaker::with_clock("kis/real/quote", rules, clock.clone()).unwrap(), clock)
}

fn escalating() -> (Breaker<ManualClock>, ManualClock) {
    breaker(Rules { jitter: 0.0, ..Rules::escalating() })
}

fn trip<C: Clock>(breaker: &Breaker<C>) {
    while let Ok(pass) = breaker.admit() {
        pass.settle(Verdict::Bad);
    }
}

#[test]
fn of_a_thousand_callers_released_at_once_exactly_the_permitted_probes_pass() {
    let runtime = Builder::new_multi_thread().worker_threads(4).build().unwrap();
    for (needed, allowed_bad, parallel) in [(1, 0, 1), (2, 1, 3)] {
        for round in 0..100 {
            let rules = one_bad(Probes { needed, allowed_bad, parallel, timeout: 60 * SECOND });
            let (breaker, clock) = breaker(rules);
            trip(&breaker);
            clock.advance(30 * SECOND);
            let passed = runtime.block_on(async {
                let gate = Arc::new(tokio::sync::Barrier::new(1000));
                let mut callers = JoinSet::new();
                for _ in 0..1000 {
                    let (breaker, gate) = (breaker.clone(), Arc::clone(&gate));
                    callers.spawn(async move {
                        gate.wait().await;
                        breaker.admit()
                    });
                }
                // Kept until all have asked: a pass that is dropped would free its place.
                callers.join_all().await
            });
            let refused = passed.iter().filter_map(|passed| passed.as_ref().err());
            assert!(refused.clone().all(|refusal| refusal.reason == Reason::Probing), "round {round}");
            assert_eq!(1000 - refused.count(), parallel as usize, "{needed}/{allowed_bad}/{parallel}, round {round}");
        }
    }
}

#[test]
fn threads_that_ask_in_the_same_instant_get_exactly_the_permitted_probes() {
    for _ in 0..100 {
        let (breaker, clock) =
            breaker(one_bad(Probes { needed: 2, allowed_bad: 1, parallel: 3, timeout: 60 * SECOND }));
        trip(&breaker);
        clock.advance(30 * SECOND);
        let gate = Barrier::new(8);
        let passes = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        gate.wait();
                        breaker.admit().ok()
                    })
                })
                .collect();
            callers.into_iter().filter_map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(passes.len(), 3);
    }
}

#[test]
fn a_dropped_probe_frees_its_place_at_once_and_its_late_answer_is_stale() {
    let (breaker, clock) = escalating();
    trip(&breaker);
    clock.advance(30 * SECOND);
    drop(breaker.admit().unwrap());
    let hung = breaker.admit().unwrap();
    assert_eq!(breaker.admit().unwrap_err().reason, Reason::Probing);
    clock.advance(60 * SECOND);
    let next = breaker.admit().expect("the hung one is replaced");
    assert_eq!(hung.settle(Verdict::Good), Counted::Stale);
    assert_eq!(breaker.view().shown, Shown::Probing);
    assert_eq!(next.settle(Verdict::Good), Counted::Yes);
    assert_eq!((breaker.view().shown, breaker.view().stale), (Shown::Closed, 1));
}

#[test]
fn a_panic_while_a_probe_is_out_gives_its_place_back() {
    let (breaker, clock) = escalating();
    trip(&breaker);
    clock.advance(30 * SECOND);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _probe = breaker.admit().unwrap();
        panic!("as the test wants it");
    }));
    assert!(panicked.is_err());
    breaker.admit().expect("its place is free").settle(Verdict::Good);
    assert_eq!(breaker.view().shown, Shown::Closed);
}

#[test]
fn one_episode_is_told_in_order_with_the_fields_that_alerts_are_built_on() {
    let told = Told::listen();
    let (breaker, clock) = escalating();
    trip(&breaker);
    clock.advance(30 * SECOND);
    breaker.admit().unwrap().settle(Verdict::Bad);
    clock.advance(60 * SECOND);
    breaker.admit().unwrap().settle(Verdict::Good);
    for _ in 0..3 {
        breaker.admit().unwrap().settle(Verdict::Good);
    }
    let failures = vec!["circuit_breaker_failure"; 5];
    let rest = [
        "circuit_breaker_opened",
        "circuit_breaker_failure",
        "circuit_breaker_reopened",
        "circuit_breaker_closed",
        "circuit_episode_summary",
    ];
    assert_eq!(told.names(), [failures, rest.to_vec()].concat());
    let lines = told.lines();
    let warned: Vec<_> = lines.iter().map(|line| line.level == Level::WARN).collect();
    assert_eq!(warned, [true, true, true, true, true, true, true, true, false, false]);
    for (at, field, value) in [
        (4, "breaker", "kis/real/quote"),
        (4, "fail_count", "5"),
        (4, "threshold", "5"),
        (4, "verdict", "bad"),
        (5, "fail_count", "5"),
        (5, "reopen_count", "0"),
        (5, "open_seconds", "30.0"),
        (5, "cause", "streak"),
        (5, "rung", "0"),
        (6, "fail_count", "1"),
        (6, "threshold", "1"),
        (7, "reopen_count", "1"),
        (7, "open_seconds", "60.0"),
        (7, "cause", "probe"),
        (8, "probe_count", "2"),
        (9, "total_open_seconds", "90.0"),
        (9, "reopen_count", "1"),
        (9, "probe_count", "2"),
        (9, "episode_started_at", "2026-01-05T00:00:07Z"),
        (9, "lost_probes", "0"),
        (9, "rejected", "1"),
        (9, "cause", "streak"),
    ] {
        assert_eq!(lines[at].field(field), value, "{field} of {:?}", lines[at]);
    }
}

#[test]
fn a_subscriber_that_panics_damages_no_call() {
    let told = Told::listen_and(|line| panic!("{} is too much", line.name()));
    let (breaker, clock) = escalating();
    trip(&breaker);
    assert_eq!(breaker.view().shown, Shown::Open);
    clock.advance(30 * SECOND);
    assert_eq!(breaker.admit().unwrap().settle(Verdict::Good), Counted::Yes);
    breaker.force_open("ops", "test", None);
    breaker.reset("ops", "test");
    assert_eq!(breaker.view().shown, Shown::Closed);
    assert!(told.names().contains(&"circuit_breaker_by_hand".to_owned()), "the others are told all the same");
}

#[test]
fn a_subscriber_may_ask_the_breaker_and_what_it_causes_is_told_afterwards() {
    let (breaker, clock) = escalating();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let told = {
        let (breaker, asked) = (breaker.clone(), Arc::clone(&asked));
        Told::listen_and(move |line| {
            if line.name() == "circuit_breaker_opened" {
                asked.lock().unwrap().push(breaker.view().shown);
                breaker.reset("listener", "it was a drill");
            }
        })
    };
    trip_once(&breaker);
    clock.advance(SECOND);
    assert_eq!(*asked.lock().unwrap(), [Shown::Open]);
    assert_eq!(breaker.view().shown, Shown::Closed);
    let names = told.names();
    let at =
        |name: &str| names.iter().position(|told| told == name).unwrap_or_else(|| panic!("no {name} in {names:?}"));
    assert!(at("circuit_breaker_opened") < at("circuit_breaker_by_hand"));
    assert!(at("circuit_breaker_by_hand") < at("circuit_episode_summary"));
}

#[test]
fn failures_that_come_faster_than_they_can_be_told_keep_nobody_and_are_counted() {
    let (breaker, _clock) = escalating();
    breaker.observe("ops", "a flood", None);
    let fail = |breaker: &Breaker<ManualClock>| breaker.admit().unwrap().settle(Verdict::Bad);
    let flood = Arc::new(AtomicU64::new(1500));
    let told = {
        let (breaker, flood) = (breaker.clone(), Arc::clone(&flood));
        Told::listen_and(move |line| {
            if line.name() == "circuit_breaker_failure" {
                for _ in 0..flood.swap(50, Ordering::SeqCst) {
                    fail(&breaker);
                }
            }
        })
    };
    // Without a bound this would never return: each that is told makes 50 more.
    let (first, failed) = (fail(&breaker), breaker.view().failures);
    assert_eq!((first, failed), (Counted::Yes, 1 + 1500 + 99 * 50));
    flood.store(0, Ordering::SeqCst);
    while told.names().len() < 1100 {
        breaker.tend();
    }
    let lines = told.all("circuit_breaker_failure");
    let left_out: u64 = lines.iter().filter_map(|line| line.fields.get("left_out")?.parse::<u64>().ok()).sum();
    assert_eq!(lines.len() as u64 + left_out, failed, "each is told or counted");
    assert_eq!(lines.last().unwrap().field("fail_count"), failed.to_string(), "the latest is told");
}

fn trip_once<C: Clock>(breaker: &Breaker<C>) {
    for _ in 0..5 {
        breaker.admit().unwrap().settle(Verdict::Bad);
    }
}

#[tokio::test]
async fn a_surface_without_a_breaker_is_reported_while_something_is_held_on_it() {
    let surfaces = SURFACES.replace(
        "[surface.\"ai/chat\"]",
        "[surface.\"alone/a\"]\nbudget = \"ai\"\nclass = \"minute\"\nvendor = \"kis\"\nbreaker = \"none\"\n\n[surface.\"ai/chat\"]",
    );
    let stage = Stage::new();
    let settings = Settings::of_toml(&surfaces, Path::new("")).unwrap();
    let budgets = CallBudget::with_store(&settings, stage.clock.clone(), stage.store.clone()).unwrap();
    let alone = || budgets.breakers().into_iter().find(|report| &*report.name == "alone/a");
    assert!(alone().is_none());
    let over = Script::of([Step::Answer(Reply::kis(500, "EGW00215", ""))]);
    let credential = Credential::new("desk");
    driven(&stage.clock, budgets.call("alone/a", &credential, over.requests(&stage.clock))).await.unwrap();
    let report = alone().expect("it is held");
    assert_eq!((report.view.shown, report.surfaces, report.holds.len()), (Shown::Held, vec!["alone/a".into()], 1));
    assert!(report.view.retry_at.unwrap() > stage.clock.now());
    stage.clock.advance(60 * SECOND);
    assert!(alone().is_none());
}

#[test]
fn orders_by_hand_say_who_and_why_and_run_out() {
    let told = Told::listen();
    let (breaker, clock) = escalating();
    breaker.force_open("ops", "the vendor asked for it", Some(10 * SECOND));
    let refusal = breaker.admit().unwrap_err();
    let Reason::ForcedOpen { who, why } = refusal.reason else { panic!("{refusal:?}") };
    assert_eq!((&*who, &*why), ("ops", "the vendor asked for it"));
    assert_eq!(refusal.retry_at, clock.now() + 10 * SECOND);
    clock.advance(10 * SECOND);
    breaker.tend();
    assert_eq!(breaker.view().shown, Shown::Closed);
    breaker.bypass("ops", "drill", None);
    for _ in 0..20 {
        breaker.admit().unwrap().settle(Verdict::Bad);
    }
    breaker.observe("ops", "drill", None);
    trip_once(&breaker);
    assert_eq!(breaker.view().shown, Shown::Observe);
    breaker.reset("ops", "drill is over");
    assert_eq!((breaker.view().shown, breaker.view().streak), (Shown::Closed, 0));
    let by_hand = told.all("circuit_breaker_by_hand");
    assert_eq!(by_hand.len(), 5, "given, run out, bypass, observe, reset: {by_hand:?}");
    assert!(by_hand.iter().all(|line| line.field("who") == "ops"));
    assert_eq!(by_hand[0].field("for_seconds"), "10.0");
    assert!(by_hand[1..].iter().all(|line| !line.fields.contains_key("for_seconds")));
}

#[test]
fn a_breaker_made_before_a_closed_window_and_first_called_after_it_probes_first() {
    let closed = Window {
        tz: TimeZone::UTC,
        days: [true; 7],
        holidays: BTreeSet::new(),
        from: jiff::civil::time(1, 0, 0, 0),
        to: jiff::civil::time(2, 0, 0, 0),
        mode: Mode::Closed,
    };
    let (breaker, clock) = breaker(Rules { calendar: Calendar { windows: vec![closed] }, ..Rules::escalating() });
    clock.advance(3 * 3600 * SECOND);
    let order = Caller { call: 1, may_probe: false, starts_now: true };
    assert_eq!(breaker.admit_as(order).unwrap_err().reason, Reason::NoProbe);
    breaker.admit().unwrap().settle(Verdict::Good);
    assert_eq!(breaker.view().shown, Shown::Closed);
}

#[test]
fn rules_that_make_no_sense_are_refused_with_the_name_of_the_breaker() {
    let refused = Breaker::new("kis/real/quote", Rules { schedule: Vec::new(), ..Rules::escalating() });
    assert!(refused.unwrap_err().to_string().starts_with("the breaker \"kis/real/quote\": "));
}

#[test]
fn an_attempt_that_begins_later_than_its_admission_is_not_slow_for_it() {
    let (breaker, clock) = breaker(Rules { jitter: 0.0, ..Rules::rate_kis() });
    for call in 0..20 {
        let mut pass = breaker.admit_as(Caller { call, may_probe: true, starts_now: false }).unwrap();
        clock.advance(5 * SECOND);
        pass.sending().unwrap();
        clock.advance(SECOND);
        pass.settle(Verdict::Good);
    }
    assert_eq!(breaker.view().slow_rate, Some(0.0));
}

/// Wide: what it really takes is measured beside other crates, on a machine that is otherwise idle.
#[test]
fn admit_and_settle_take_no_longer_than_a_few_clock_readings() {
    let breaker = Breaker::new("b", Rules::rate_kis()).unwrap();
    let _ = SystemClock.now();
    let best = (0..50)
        .map(|_| {
            let began = StdInstant::now();
            for _ in 0..1000 {
                breaker.admit().unwrap().settle(Verdict::Good);
            }
            began.elapsed() / 1000
        })
        .min()
        .unwrap();
    println!("admit + settle, uncontended, the best of 50 rounds: {best:?}");
    assert!(best < Duration::from_micros(5), "{best:?}");
}
