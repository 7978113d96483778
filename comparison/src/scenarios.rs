//! The faults, each as something that is done to a breaker and seen of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::Duration;

use crate::listeners;
use crate::subject::{Kind, LATER, OPEN, Policy, Report, Seen, Subject};
use crate::{wall, wrapped};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    Holds,
    Fault,
    NotApplicable,
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub finding: Finding,
    pub observed: String,
}

pub struct Scenario {
    pub fault: &'static str,
    /// What is done, and what must come of it.
    pub done: &'static str,
    pub run: fn(&dyn Kind) -> Cell,
}

pub const ALL: [Scenario; 14] = [
    Scenario {
        fault: "all callers let through in half-open",
        done: "Ten times: tripped, the wait over, 32 threads ask at once and keep what they get. One may pass.",
        run: everybody_in_half_open,
    },
    Scenario {
        fault: "a success admitted before the trip closes it",
        done: "Calls admitted before the trip succeed while it is open; and again while a probe is out. It must not close.",
        run: late_success,
    },
    Scenario {
        fault: "a failure admitted before the trip escalates it",
        done: "Calls admitted before the trip fail late in the open wait: it must not become longer. And while a probe is \
               out, which then succeeds: it must close.",
        run: late_failure,
    },
    Scenario {
        fault: "a cancelled probe closes or sticks it",
        done: "The probe is dropped in flight. It must not close, another must be let through within three open waits, and \
               a good one must close it.",
        run: cancelled_probe,
    },
    Scenario {
        fault: "a hung probe sticks it for ever",
        done: "The probe never ends and is never dropped. Within ten open waits another must be let through.",
        run: hung_probe,
    },
    Scenario {
        fault: "a count window that never slides",
        done: "Rate policy: 1000 good outcomes, then good and bad in turn, 20 of them. It must trip.",
        run: count_window,
    },
    Scenario {
        fault: "local bulkhead refusals trip it",
        done: "Either policy: 30 calls whose own bulkhead refused. It must stay closed.",
        run: local_refusals,
    },
    Scenario {
        fault: "an excluded error as the probe closes it",
        done: "The probe ends with an error that is not the vendor's. It must not close, and let another through within \
               three open waits.",
        run: excluded_probe,
    },
    Scenario {
        fault: "rejections dilute the rate",
        done: "Rate policy: tripped, 1000 callers refused while open, 1000 more ask while a probe is out, recovered. It must \
               trip on about as many bad outcomes as at first.",
        run: diluting_rejections,
    },
    Scenario {
        fault: "a clock step makes a wait longer than one rung",
        done: "Tripped, then the wall clock is set back by an hour. After the open wait a caller must be let through.",
        run: clock_step,
    },
    Scenario {
        fault: "a throwing listener damages the call",
        done: "Every listener panics: the breaker's own where it has some, and the `tracing` subscriber. Trip and recovery \
               must look to callers as without.",
        run: throwing_listener,
    },
    Scenario {
        fault: "a read that transitions",
        done: "Tripped, the wait over, its state is looked at 1000 times. The answers must be the same, no event may be \
               told, and the next caller must be let through.",
        run: transitions_by_reading,
    },
    Scenario {
        fault: "one call's retries trip it alone",
        done: "Streak policy: five bad attempts of one logical call, each admitted. It must stay closed.",
        run: retries_of_one_call,
    },
    Scenario {
        fault: "local refusals and excluded errors hide the vendor's failures",
        done: "Rate policy: a local refusal and an excluded error after every bad outcome. It must trip on about as many \
               bad ones as without them.",
        run: hiding_failures,
    },
];

fn judge(fault: bool, observed: impl Into<String>) -> Cell {
    Cell { finding: if fault { Finding::Fault } else { Finding::Holds }, observed: observed.into() }
}

fn not_applicable(observed: impl Into<String>) -> Cell {
    Cell { finding: Finding::NotApplicable, observed: observed.into() }
}

fn quiet() {}

fn closed(kind: &dyn Kind) -> Box<dyn Subject> {
    kind.make(Policy::Streak, quiet)
}

/// Open, its wait begun now.
fn open(kind: &dyn Kind) -> Box<dyn Subject> {
    let subject = closed(kind);
    subject.trip().expect("a row of failures trips it");
    subject
}

/// Open, its wait over.
fn due(kind: &dyn Kind) -> Box<dyn Subject> {
    let subject = open(kind);
    subject.pass(LATER);
    subject
}

fn everybody_in_half_open(kind: &dyn Kind) -> Cell {
    const THREADS: u64 = 32;
    let passed = |_| {
        let subject = due(kind);
        let subject = &*subject;
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            let ask = |nth| {
                barrier.wait();
                subject.admit(nth)
            };
            let threads: Vec<_> = (0..THREADS).map(|nth| scope.spawn(move || ask(nth))).collect();
            // All tickets are in hand before one is dropped: a place that is given back would be given out again.
            let asked: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect();
            asked.iter().flatten().count()
        })
    };
    let unwoken = wrapped::unwoken();
    let rounds: Vec<usize> = (0..10).map(passed).collect();
    let unwoken = wrapped::unwoken() - unwoken;
    let (least, most) = (rounds.iter().min().expect("ten rounds"), rounds.iter().max().expect("ten rounds"));
    let mut observed = format!("{least} to {most} of {THREADS} were let through");
    if unwoken > 0 {
        // Another fault than the row's: told, and not judged.
        observed += &format!("; {unwoken} of all {} waited for an answer and were never woken", THREADS * 10);
    }
    judge(*most > 1 || *least == 0, observed)
}

fn late_success(kind: &dyn Kind) -> Cell {
    let after = |probe_out: bool| {
        let subject = closed(kind);
        let late = subject.tickets();
        subject.trip().expect("a row of failures trips it");
        let probe = probe_out.then(|| {
            subject.pass(LATER);
            subject.admit(1)
        });
        for ticket in late {
            ticket.settle(Report::Good);
        }
        let seen = subject.seen();
        drop(probe);
        seen
    };
    let (while_open, while_probing) = (after(false), after(true));
    let fault = while_open == Seen::Closed || while_probing == Seen::Closed;
    judge(fault, format!("while open: then {}; while a probe was out: then {}", word(while_open), word(while_probing)))
}

fn late_failure(kind: &dyn Kind) -> Cell {
    let subject = closed(kind);
    let late = subject.tickets();
    subject.trip().expect("a row of failures trips it");
    subject.pass(OPEN * 3 / 4);
    late.into_iter().for_each(|ticket| ticket.settle(Report::Bad));
    subject.pass(LATER - OPEN * 3 / 4);
    let longer = subject.admit(1).is_none();

    let subject = closed(kind);
    let late = subject.tickets();
    subject.trip().expect("a row of failures trips it");
    subject.pass(LATER);
    let probes = subject.tickets();
    late.into_iter().for_each(|ticket| ticket.settle(Report::Bad));
    probes.into_iter().for_each(|ticket| ticket.settle(Report::Good));
    let seen = subject.seen();
    let wait = if longer { "the wait became longer" } else { "the wait stayed" };
    judge(longer || seen != Seen::Closed, format!("{wait}; a good probe after a late failure left it {}", word(seen)))
}

/// Whether a caller is let through within three open waits, and then a good round closes it.
fn recovers(subject: &dyn Subject) -> Result<(), String> {
    for _ in 0..3 {
        if let Some(ticket) = subject.admit(5000) {
            ticket.settle(Report::Good);
            (1..subject.evidence()).for_each(|nth| {
                subject.attempt(5000 + nth, Report::Good);
            });
            let seen = subject.seen();
            return if seen == Seen::Closed { Ok(()) } else { Err(format!("a good probe left it {}", word(seen))) };
        }
        subject.pass(LATER);
    }
    Err("then nobody was let through for three open waits".to_owned())
}

fn cancelled_probe(kind: &dyn Kind) -> Cell {
    let dropped = || {
        let subject = due(kind);
        drop(subject.admit(1));
        subject
    };
    let seen = dropped().seen();
    let recovery = recovers(&*dropped());
    let fault = seen == Seen::Closed || recovery.is_err();
    let then = recovery.err().unwrap_or_else(|| "the next one, good, closed it".to_owned());
    judge(fault, format!("after the drop {}; {then}", word(seen)))
}

fn hung_probe(kind: &dyn Kind) -> Cell {
    let subject = due(kind);
    let hung = subject.admit(1);
    let waits = (0..10).find(|_| {
        let passed = subject.admit(2).is_some();
        if !passed {
            subject.pass(OPEN);
        }
        passed
    });
    drop(hung);
    match waits {
        Some(0) => judge(false, "the next caller was let through at once"),
        Some(waits) => judge(false, format!("another was let through after {waits} open waits")),
        None => judge(true, "nobody was let through for ten open waits"),
    }
}

fn count_window(kind: &dyn Kind) -> Cell {
    let subject = kind.make(Policy::Rate, quiet);
    for nth in 0..1000 {
        subject.attempt(nth, Report::Good);
    }
    if !kind.counts() {
        subject.pass(Duration::from_secs(1));
        return match subject.trip() {
            Some(bad) => not_applicable(format!("no count window; its average over time tripped on {bad} bad ones")),
            None => not_applicable("no count window; its average over time did not trip on 64 bad ones"),
        };
    }
    for nth in 0..10 {
        subject.attempt(2 * nth, Report::Good);
        subject.attempt(2 * nth + 1, Report::Bad);
    }
    let seen = subject.seen();
    judge(seen != Seen::Open, format!("{} after 10 bad of the last 20", word(seen)))
}

fn local_refusals(kind: &dyn Kind) -> Cell {
    let after = |policy| {
        let subject = kind.make(policy, quiet);
        let passed = (0..30).filter(|nth| {
            subject.pass(subject.pace());
            subject.attempt(*nth, Report::Local)
        });
        passed.count()
    };
    let (streak, rate) = (after(Policy::Streak), after(Policy::Rate));
    judge(streak < 30 || rate < 30, format!("let through: {streak} of 30 with the streak, {rate} of 30 with the rate"))
}

fn excluded_probe(kind: &dyn Kind) -> Cell {
    let answered = || {
        let subject = due(kind);
        subject.round(Report::Excluded);
        subject
    };
    let seen = answered().seen();
    let subject = answered();
    let stuck = (0..3).all(|_| {
        let refused = subject.admit(2).is_none();
        if refused {
            subject.pass(LATER);
        }
        refused
    });
    let then = if stuck { "nobody" } else { "the next caller" };
    judge(seen == Seen::Closed || stuck, format!("afterwards {}; {then} was let through", word(seen)))
}

fn diluting_rejections(kind: &dyn Kind) -> Cell {
    let subject = kind.make(Policy::Rate, quiet);
    let Some(first) = subject.trip() else { return not_applicable("its rate policy did not trip on 64 bad outcomes") };
    let refused = (0..1000).filter(|nth| subject.admit(*nth).is_none()).count();
    subject.pass(LATER);
    let probes = subject.tickets();
    let more = (0..1000).filter(|nth| subject.admit(*nth).is_none()).count();
    probes.into_iter().for_each(|ticket| ticket.settle(Report::Good));
    let again = subject.trip();
    let fault = again.is_none_or(|again| again * 2 > first * 3);
    let told = again.map_or_else(|| "more than 64".to_owned(), |again| again.to_string());
    judge(fault, format!("bad outcomes to trip: {first} at first, {told} after {} refusals", refused + more))
}

fn clock_step(kind: &dyn Kind) -> Cell {
    const BACK: i64 = 3600;
    if !wall::CAN_STEP {
        return not_applicable("the wall clock cannot be set for one process on this system");
    }
    let subject = open(kind);
    subject.step_wall(-BACK);
    subject.pass(LATER);
    let passed = subject.admit(1).is_some();
    subject.step_wall(BACK);
    let what = if passed { "a caller was let through" } else { "still refused" };
    judge(!passed, format!("{what} after the open wait"))
}

fn throwing_listener(kind: &dyn Kind) -> Cell {
    let subject = kind.make(Policy::Streak, listeners::throw);
    let told = listeners::told();
    let (thrown, end) = listeners::with_throwing_subscriber(|| {
        let throws = |nth, report| catch_unwind(AssertUnwindSafe(|| subject.attempt(nth, report))).is_err();
        let tripping = (0..6).filter(|nth| throws(*nth, Report::Bad)).count();
        subject.pass(LATER);
        let recovering = (10..10 + subject.evidence()).filter(|nth| throws(*nth, Report::Good)).count();
        (tripping + recovering, catch_unwind(AssertUnwindSafe(|| subject.seen())))
    });
    let told = listeners::told() - told;
    if told == 0 {
        return not_applicable("it tells nobody anything");
    }
    let seen = end.map_or("unusable: it panics", word);
    let fault = thrown > 0 || seen != word(Seen::Closed);
    judge(fault, format!("{told} events told, {thrown} panics came out of calls; at the end {seen}"))
}

fn transitions_by_reading(kind: &dyn Kind) -> Cell {
    let subject = kind.make(Policy::Streak, listeners::count);
    if subject.read().is_none() {
        return not_applicable("its state cannot be looked at");
    }
    subject.trip().expect("a row of failures trips it");
    subject.pass(LATER);
    let told = listeners::told();
    let first = subject.read();
    let same = (0..1000).all(|_| subject.read() == first);
    let told = listeners::told() - told;
    let passed = subject.admit(1).is_some();
    let answers = if same { "the same answer each time" } else { "different answers" };
    let then = if passed { "let through" } else { "refused" };
    judge(!same || told > 0 || !passed, format!("{answers}, {told} events told, the next caller {then}"))
}

fn retries_of_one_call(kind: &dyn Kind) -> Cell {
    let subject = closed(kind);
    let attempts = (0..5).filter(|_| subject.attempt(7, Report::Bad)).count();
    let refused = subject.admit(8).is_none();
    let others = if refused { "another call was refused" } else { "another call was let through" };
    judge(refused, format!("after {attempts} bad attempts of one call {others}"))
}

fn hiding_failures(kind: &dyn Kind) -> Cell {
    let Some(alone) = kind.make(Policy::Rate, quiet).trip() else {
        return not_applicable("its rate policy did not trip on 64 bad outcomes");
    };
    let subject = kind.make(Policy::Rate, quiet);
    let paced = |call, report| {
        subject.pass(subject.pace());
        subject.attempt(call, report)
    };
    let limit = alone * 3 / 2;
    let among = (0..=limit).find(|nth| {
        let refused = !paced(10 * nth, Report::Bad);
        if !refused {
            paced(10 * nth + 1, Report::Local);
            paced(10 * nth + 2, Report::Excluded);
        }
        refused
    });
    let told = among.map_or_else(|| format!("more than {limit}"), |among| among.to_string());
    judge(among.is_none(), format!("bad outcomes to trip: {alone} alone, {told} among the others"))
}

fn word(seen: Seen) -> &'static str {
    match seen {
        Seen::Closed => "closed",
        Seen::HalfOpen => "half-open",
        Seen::Open => "refusing",
    }
}
