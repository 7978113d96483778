//! Two breakers that must fail: each scenario has to find its fault in one of them, or it proves nothing.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use crate::subject::{Kind, OPEN, Policy, Report, Subject, Ticket};

/// As it is written in an afternoon: a count of failures in a row and the time of the last one.
pub struct TwoState;

/// With the half-open state that the other lacks, and every other convenience taken.
pub struct Naive;

#[derive(Default)]
struct Failures {
    in_a_row: u32,
    last: Option<Instant>,
}

struct InARow(Arc<Mutex<Failures>>);

impl Kind for TwoState {
    fn name(&self) -> &'static str {
        "control: two states"
    }

    fn package(&self) -> Option<&'static str> {
        None
    }

    fn expressed(&self) -> &'static str {
        "Not a crate: five failures in a row refuse everybody until the last one is long enough ago; a success sets the \
         count back, and an excluded error is one. It has no rate policy (rows about one ask its streak) and no state to \
         look at."
    }

    fn make(&self, _: Policy, _: fn()) -> Box<dyn Subject> {
        Box::new(InARow(Arc::default()))
    }
}

impl Subject for InARow {
    fn admit(&self, _: u64) -> Option<Box<dyn Ticket>> {
        let failures = self.0.lock().expect("nothing panics under it");
        let open = failures.in_a_row >= 5 && failures.last.is_some_and(|last| last.elapsed() < OPEN);
        if open { None } else { Some(Box::new(InARow(Arc::clone(&self.0)))) }
    }

    fn read(&self) -> Option<String> {
        None
    }
}

impl Ticket for InARow {
    fn settle(self: Box<Self>, report: Report) {
        let mut failures = self.0.lock().expect("nothing panics under it");
        match report {
            Report::Bad => *failures = Failures { in_a_row: failures.in_a_row + 1, last: Some(Instant::now()) },
            Report::Good | Report::Excluded | Report::Local => failures.in_a_row = 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    Open(SystemTime),
    HalfOpen { probing: bool },
}

struct Counts {
    state: State,
    in_a_row: u32,
    bad: u32,
    total: u32,
}

#[derive(Clone)]
struct Flagged {
    policy: Policy,
    listener: fn(),
    counts: Arc<Mutex<Counts>>,
}

impl Kind for Naive {
    fn name(&self) -> &'static str {
        "control: naive"
    }

    fn package(&self) -> Option<&'static str> {
        None
    }

    fn expressed(&self) -> &'static str {
        "Not a crate: a flag for the probe that only its verdict takes back, counts that never slide and take in refusals, \
         the wall clock, listeners called under the lock, every error a failure, and a look that asks as callers do."
    }

    fn make(&self, policy: Policy, listener: fn()) -> Box<dyn Subject> {
        let counts = Counts { state: State::Closed, in_a_row: 0, bad: 0, total: 0 };
        Box::new(Flagged { policy, listener, counts: Arc::new(Mutex::new(counts)) })
    }
}

impl Flagged {
    #[expect(clippy::disallowed_methods, reason = "the fault that a row of the table is about")]
    fn now() -> SystemTime {
        SystemTime::now()
    }

    fn allows(&self) -> bool {
        let mut counts = self.counts.lock().expect("not poisoned");
        let due = match counts.state {
            State::Closed => return true,
            State::Open(until) => Self::now() >= until,
            State::HalfOpen { probing } => !probing,
        };
        if due {
            counts.state = State::HalfOpen { probing: true };
            (self.listener)();
        } else {
            counts.total += 1;
        }
        due
    }
}

impl Subject for Flagged {
    fn admit(&self, _: u64) -> Option<Box<dyn Ticket>> {
        if self.allows() { Some(Box::new(self.clone())) } else { None }
    }

    fn read(&self) -> Option<String> {
        Some(if self.allows() { "allows" } else { "refuses" }.to_owned())
    }
}

impl Ticket for Flagged {
    fn settle(self: Box<Self>, report: Report) {
        let mut counts = self.counts.lock().expect("not poisoned");
        counts.total += 1;
        if report == Report::Good {
            counts.in_a_row = 0;
            counts.state = State::Closed;
            return;
        }
        counts.bad += 1;
        counts.in_a_row += 1;
        let trips = match (counts.state, self.policy) {
            (State::Closed, Policy::Streak) => counts.in_a_row >= 5,
            (State::Closed, Policy::Rate) => counts.total >= 10 && counts.bad * 2 >= counts.total,
            _ => true,
        };
        if trips {
            counts.state = State::Open(Self::now() + OPEN);
            (self.listener)();
        }
    }
}
