//! The judge of the fault suite must be able to say no.

#[path = "../fault/suite/judge.rs"]
mod rules;

use std::time::Duration;

use rules::{Account, Arrival, Doubt, GRACE, JITTER_US, Leave, Measured, Span, Spread, balance, doubt, spread};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn arrival(at_us: u64, nonce: u64) -> Arrival {
    Arrival { at_us, nonce }
}

const LEAVE: &[Leave] = &[Leave { nonce: 7, given_us: 50_000, closes_us: 100_000 }];

fn in_doubt(in_doubt: usize) -> Doubt {
    Doubt { in_doubt, inconclusive: 0 }
}

#[test]
fn an_arrival_with_leave_and_in_its_window_is_in_no_doubt() {
    assert_eq!(doubt(&[arrival(100_000 + JITTER_US, 7)], LEAVE, &[], &[]), in_doubt(0));
}

#[test]
fn an_arrival_without_leave_is_in_doubt_and_leave_is_good_for_one() {
    assert_eq!(doubt(&[arrival(50_000, 8)], LEAVE, &[], &[]), in_doubt(1));
    assert_eq!(doubt(&[arrival(50_000, 7), arrival(50_001, 7)], LEAVE, &[], &[]), in_doubt(1));
}

#[test]
fn an_arrival_after_its_window_is_in_doubt_unless_the_receiver_stood_still() {
    let late = [arrival(100_001 + JITTER_US, 7)];
    assert_eq!(doubt(&late, LEAVE, &[], &[]), in_doubt(1));
    let stall = |from_us, to_us| [Span { from_us, to_us }];
    assert_eq!(doubt(&late, LEAVE, &[], &stall(0, 99_999)), in_doubt(1), "a stall before the window closed");
    assert_eq!(doubt(&late, LEAVE, &[], &stall(90_000, 105_000)), Doubt { in_doubt: 0, inconclusive: 1 });
}

#[test]
fn an_arrival_with_leave_from_when_none_may_be_given_is_in_doubt() {
    let span = |from_us, to_us| [Span { from_us, to_us }];
    assert_eq!(doubt(&[arrival(70_000, 7)], LEAVE, &span(50_000, 60_000), &[]), in_doubt(1));
    assert_eq!(doubt(&[arrival(70_000, 7)], LEAVE, &span(50_001, 60_000), &[]), in_doubt(0));
}

#[test]
fn books_balance_between_what_is_known_and_what_may_have_been_lost_and_nowhere_else() {
    let account = |class: &str, permits, dropped, lost| Account { class: class.into(), permits, dropped, lost };
    let accounts = [account("order", 3, 1, 2), account("order", 1, 0, 0), account("minute", 100, 0, 0)];
    for (granted, balanced) in [(4, false), (5, true), (6, true), (7, true), (8, false)] {
        assert_eq!(balance("order", granted, &accounts).is_ok(), balanced, "{granted}");
    }
    assert!(balance("nobody", 1, &accounts).is_err(), "a slot that no caller knows of");
}

#[test]
fn a_median_is_never_kinder_than_the_truth() {
    assert_eq!(spread(&[]), None);
    assert_eq!(spread(&[ms(3)]), Some(Spread { median: ms(3), worst: ms(3) }));
    assert_eq!(spread(&[ms(9), ms(1), ms(2), ms(3)]), Some(Spread { median: ms(3), worst: ms(9) }));
}

const BOUND: Option<Spread> = Some(Spread { median: ms(700), worst: ms(1300) });

fn good() -> Measured {
    Measured {
        ends: vec![ms(1000), ms(1000) + GRACE],
        recoveries: vec![ms(1300), ms(700), ms(600)],
        ..Measured::default()
    }
}

#[test]
fn a_case_passes_at_its_bounds() {
    assert_eq!(good().faults(ms(1000), BOUND), [""; 0]);
    assert_eq!(Measured { recoveries: vec![], ..good() }.faults(ms(1000), None), [""; 0]);
}

#[test]
fn each_broken_rule_alone_fails_a_case() {
    let broken: [(&str, Measured); 9] = [
        ("its deadline", Measured { ends: vec![ms(1101)], ..good() }),
        ("nothing was measured", Measured { ends: vec![], ..good() }),
        ("sent in doubt", Measured { sends_in_doubt: 1, ..good() }),
        ("do not balance", Measured { unbalanced: vec!["x".into()], ..good() }),
        ("left behind", Measured { leaks: vec!["x".into()], ..good() }),
        ("asserted", Measured { failures: vec!["asserted".into()], ..good() }),
        ("no recovery was measured", Measured { recoveries: vec![], ..good() }),
        ("recovery took", Measured { recoveries: vec![ms(1301), ms(1), ms(1)], ..good() }),
        ("recovery took", Measured { recoveries: vec![ms(701)], ..good() }),
    ];
    for (word, measured) in broken {
        let faults = measured.faults(ms(1000), BOUND);
        assert!(faults.len() == 1 && faults[0].contains(word), "{word}: {faults:?}");
    }
}

#[test]
fn the_rounds_of_a_case_add_up() {
    let mut sum = good();
    sum.add(Measured { sends_in_doubt: 2, lost: 3, ends: vec![ms(5)], ..Measured::default() });
    sum.add(Measured { lost: 1, leaks: vec!["x".into()], ..Measured::default() });
    assert_eq!((sum.sends_in_doubt, sum.lost, sum.ends.len(), sum.recoveries.len(), sum.leaks.len()), (2, 4, 3, 3, 1));
}
