//! What a breaker counts of each row: a row of `none` or `good` leaves the failure count where it was.

use super::{Ended, NOW, Vendor, Verdict, classify, every_case, secs};
use crate::policy::Instant;
use crate::policy::breaker::{Breaker, Caller, Moment, Outcome, Rules, Shown};
use crate::policy::verdict::{Broken, Finding};

struct Machine {
    breaker: Breaker,
    calls: u64,
}

impl Machine {
    fn new() -> Self {
        Self { breaker: Breaker::new(Rules::escalating(), 1).expect("a preset makes sense"), calls: 0 }
    }

    fn at(&self) -> Moment {
        Moment { now: Instant::from_boot(secs(1000) + secs(self.calls)), wall: NOW + secs(self.calls) }
    }

    fn call(&mut self, finding: &Finding) {
        self.calls += 1;
        let caller = Caller { call: self.calls, may_probe: true, starts_now: true };
        let pass = self.breaker.admit(self.at(), caller).expect("closed");
        let outcome = Outcome { verdict: finding.verdict, elapsed: None, retry_after: None };
        self.breaker.settle(self.at(), pass, outcome);
    }

    /// Bad verdicts in a row, failures in all, and whether it is closed.
    fn counted(&self) -> (u32, u64, bool) {
        let view = self.breaker.view(self.at());
        (view.streak, view.failures, view.shown == Shown::Closed)
    }
}

#[test]
fn five_401_open_nothing_and_leave_the_failure_count_where_it_was() {
    for vendor in Vendor::names().filter_map(Vendor::named) {
        let mut machine = Machine::new();
        machine.call(&vendor.classify(&Ended::Broken(Broken::Interrupted), NOW));
        assert_eq!(machine.counted(), (1, 1, true));
        for _ in 0..5 {
            machine.call(&classify(&vendor, 401, r#"{"message":"invalid key"}"#, None));
            assert_eq!(machine.counted(), (1, 1, true));
        }
    }
}

#[test]
fn rows_of_none_and_good_open_nothing_and_five_of_a_bad_row_do() {
    for (table, case) in every_case() {
        let vendor = Vendor::named(table).expect("known");
        let mut machine = Machine::new();
        let about = format!("{table}, rule \"{}\": {} {}", case.rule, case.status, case.body);
        // One failure before it: `none` neither adds to it nor ends it.
        machine.call(&vendor.classify(&Ended::Broken(Broken::Interrupted), NOW));
        for _ in 0..4 {
            machine.call(&case.finding(&vendor));
        }
        let (streak, failures, closed) = machine.counted();
        match case.verdict {
            Verdict::None => assert_eq!((streak, failures, closed), (1, 1, true), "{about}"),
            Verdict::Good => assert_eq!((streak, failures, closed), (0, 1, true), "{about}"),
            Verdict::Bad => assert!(!closed, "{about}"),
        }
    }
}

#[test]
fn a_500_with_the_code_of_the_rate_is_throttled_and_opens_nothing() {
    let kis = Vendor::named("kis").expect("known");
    let mut machine = Machine::new();
    for _ in 0..20 {
        let found = classify(&kis, 500, r#"{"rt_cd":"1","msg_cd":"EGW00201","msg1":"초당 거래건수"}"#, None);
        assert!(found.throttled && found.action.push_back() == Some(secs(1)));
        machine.call(&found);
    }
    assert_eq!(machine.counted(), (0, 0, true));
}
