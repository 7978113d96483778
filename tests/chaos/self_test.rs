//! The judge is shown broken evidence of each kind, and sound evidence that looks broken: a zero counts only if it can be
//! something else. Runs before each run.

use std::time::Duration;

use super::judge::{Account, Arrival, Bounds, Evidence, Fault, Judgement, Span, Stop, judge};
use super::run::rule;
use super::schedule::{Kind, plan};

/// A case: what it is, how sound evidence is spoilt, and what must be said of it.
type Case = (&'static str, fn(&mut Evidence), fn(&Judgement) -> bool);

const S: u64 = 1_000_000;
/// The run begins at an odd time: nothing may depend on where a second begins.
const BEGIN: u64 = 1_000 * S + 337_000;
const PID: u32 = 7;
const OTHER: u32 = 8;

const CASES: &[Case] = &[
    ("sound evidence passes", |_| {}, |it| it.because.is_empty() && !it.inconclusive && it.over_limit == 0),
    ("arrivals too many", too_many, |it| says(it, "windows held more than 18") && it.windows.sliding.worst == 19),
    (
        "arrivals too many in a fixed window alone would be seen there too",
        |evidence| burst(evidence, BEGIN / S * S + 5 * S + 100_000, 40),
        |it| it.windows.fixed_whole_seconds.over_limit > 0 && it.windows.opened_by_a_call.over_limit > 0,
    ),
    ("a late arrival without a stop", late, |it| says(it, "had not been stopped") && it.late == 1),
    (
        "a late arrival of a process that was stopped",
        |evidence| {
            late(evidence);
            stop(evidence, PID);
        },
        |it| it.because.is_empty() && (it.late, it.late_unexplained) == (1, 0),
    ),
    (
        "a late arrival while another process was stopped",
        |evidence| {
            late(evidence);
            stop(evidence, OTHER);
        },
        |it| says(it, "had not been stopped"),
    ),
    (
        "late arrivals of a stopped process fill a window",
        |evidence| {
            stop(evidence, PID);
            (0..3).for_each(|_| late(evidence));
        },
        |it| it.because.is_empty() && it.over_limit == 0 && it.over_limit_with_residuals > 0,
    ),
    (
        "one call too many after a forward step",
        |evidence| {
            evidence.steps_us.push(BEGIN + 20 * S);
            too_many(evidence);
        },
        |it| it.because.is_empty() && it.over_limit == 0 && it.over_limit_with_residuals > 0,
    ),
    (
        "the same, of a process that has called before the step",
        |evidence| {
            evidence.steps_us.push(BEGIN + 20 * S);
            burst(evidence, BEGIN + 5 * S, 1);
            too_many(evidence);
        },
        |it| says(it, "windows held more than 18"),
    ),
    (
        "more calls too many than a forward step explains",
        |evidence| {
            evidence.steps_us.push(BEGIN + 20 * S);
            burst(evidence, BEGIN + 20 * S, 4);
        },
        |it| says(it, "windows held more than 18"),
    ),
    (
        "one call too many, far from any step",
        |evidence| {
            evidence.steps_us.push(BEGIN + 40 * S);
            too_many(evidence);
        },
        |it| says(it, "windows held more than 18"),
    ),
    (
        "a violation while the vendor stood still",
        |evidence| {
            too_many(evidence);
            evidence.stalls.push(Span { from_us: BEGIN + 20 * S, to_us: BEGIN + 20 * S + 80_000 });
        },
        |it| it.inconclusive && it.over_limit > 0,
    ),
    (
        "a violation while the vendor stood still, and a nonce twice",
        |evidence| {
            too_many(evidence);
            evidence.stalls.push(Span { from_us: BEGIN + 20 * S, to_us: BEGIN + 20 * S + 80_000 });
            evidence.arrivals[9].nonce = 3;
        },
        |it| !it.inconclusive && says(it, "nonces came twice"),
    ),
    (
        "a violation while the vendor stood still, and a run that broke",
        |evidence| {
            too_many(evidence);
            evidence.stalls.push(Span { from_us: BEGIN + 20 * S, to_us: BEGIN + 20 * S + 80_000 });
            evidence.broken.push("no server".into());
        },
        |it| !it.inconclusive && says(it, "no server") && it.over_limit > 0,
    ),
    (
        "a violation while the vendor stood still, and another while it did not",
        |evidence| {
            too_many(evidence);
            burst(evidence, BEGIN + 50 * S, 2);
            evidence.stalls.push(Span { from_us: BEGIN + 20 * S, to_us: BEGIN + 20 * S + 80_000 });
        },
        |it| !it.inconclusive && it.over_limit > 0,
    ),
    (
        "a stall without a violation",
        |evidence| evidence.stalls.push(Span { from_us: BEGIN + 20 * S, to_us: BEGIN + 20 * S + 80_000 }),
        |it| !it.inconclusive && it.because.is_empty(),
    ),
    ("a nonce that came twice", |evidence| evidence.arrivals[9].nonce = 3, |it| says(it, "1 nonces came twice")),
    (
        "a use that is too low",
        |evidence| keep(evidence, |number, _| number % 20 != 0),
        |it| says(it, "of the slots outside faults") && (0.94..0.96).contains(&it.use_outside_faults),
    ),
    (
        "slots that a fault cost are not counted",
        |evidence| keep(evidence, |_, at_us| !(BEGIN + 10 * S..BEGIN + 12 * S).contains(&at_us)),
        |it| it.because.is_empty(),
    ),
    (
        "a silence that begins by itself before a fault",
        |evidence| keep(evidence, |_, at_us| !(BEGIN + 26 * S..BEGIN + 32 * S).contains(&at_us)),
        |it| says(it, "of the slots outside faults"),
    ),
    (
        "a fault that recovers too late",
        |evidence| keep(evidence, |_, at_us| !(BEGIN + 10 * S..BEGIN + 14 * S).contains(&at_us)),
        |it| says(it, "backend_killed at 10.0 s recovered in 2"),
    ),
    (
        "a fault that never recovers",
        |evidence| keep(evidence, |_, at_us| at_us < BEGIN + 30 * S),
        |it| says(it, "caller_stopped at 30.0 s never recovered"),
    ),
    (
        "a process that never calls again while others do",
        |evidence| evidence.faults[1].whom = Some(99),
        |it| says(it, "caller_stopped at 30.0 s never recovered"),
    ),
    (
        "a kind that is missing",
        |evidence| {
            evidence.faults.remove(0);
        },
        |it| says(it, "there was no backend_killed") && says(it, "1 faults of 1 kinds were played, 2 of 2 are due"),
    ),
    (
        "faults enough, of too few kinds",
        |evidence| evidence.faults[1].kind = Kind::BackendKilled,
        |it| says(it, "2 faults of 1 kinds were played"),
    ),
    (
        "a fault that should have kept everybody from calling",
        |evidence| evidence.faults[0].silent = Some(Span { from_us: BEGIN + 10 * S, to_us: BEGIN + 12 * S }),
        |it| says(it, "backend_killed at 10.0 s did not bite: 2"),
    ),
    (
        "a fault that kept everybody from calling",
        |evidence| {
            evidence.faults[0].silent = Some(Span { from_us: BEGIN + 10 * S, to_us: BEGIN + 12 * S });
            keep(evidence, |_, at_us| !(BEGIN + 10 * S..BEGIN + 12 * S).contains(&at_us));
        },
        |it| it.because.is_empty(),
    ),
    ("a run that broke", |evidence| evidence.broken.push("no server".into()), |it| says(it, "no server")),
    (
        "more granted than anybody knows of",
        |evidence| *evidence.granted.get_mut("order").expect("the class") += 1,
        |it| says(it, "the books of class order"),
    ),
    (
        "the same, as an answer was lost",
        |evidence| {
            *evidence.granted.get_mut("order").expect("the class") += 1;
            evidence.accounts[0].lost = 1;
        },
        |it| it.because.is_empty(),
    ),
    (
        "the same, as a process was killed",
        |evidence| {
            *evidence.granted.get_mut("order").expect("the class") += 1;
            evidence.accounts[0].unheard_us = Some(50_000);
        },
        |it| it.because.is_empty(),
    ),
    (
        "less granted than was used",
        |evidence| evidence.accounts[0].permits += 1,
        |it| says(it, "1 that the store has not granted, 0 can be forgotten"),
    ),
    (
        "less granted than was used in two classes, as a crash may have forgotten one",
        |evidence| {
            evidence.accounts[0].permits += 1;
            evidence.accounts.push(Account { class: "index".into(), permits: 1, ..Account::default() });
            evidence.granted.insert("index".into(), 0);
            evidence.faults[0].forgettable = 1;
        },
        |it| says(it, "2 that the store has not granted, 1 can be forgotten"),
    ),
    (
        "less granted than was used, as a crash may have forgotten it",
        |evidence| {
            evidence.accounts[0].permits += 1;
            evidence.faults[0].forgettable = 1;
        },
        |it| it.because.is_empty(),
    ),
    (
        "a process that is left running",
        |evidence| evidence.left_running.push("7 (chaos)".into()),
        |it| says(it, "left running: 7 (chaos)"),
    ),
];

/// The name of the first case that is not judged as it must be, and what was said instead.
pub fn run() -> Result<(), String> {
    let bounds = Bounds {
        least_use: 0.97,
        recovery: Duration::from_millis(1300),
        least_faults: 2,
        least_kinds: 2,
        kinds: vec![Kind::BackendKilled, Kind::CallerStopped],
    };
    for (name, spoil, is_judged) in CASES {
        let mut evidence = sound();
        spoil(&mut evidence);
        evidence.arrivals.sort_by_key(|arrival| arrival.at_us);
        let judgement = judge(&evidence, &bounds);
        if !is_judged(&judgement) {
            return Err(format!("{name}: {judgement:?}"));
        }
    }
    long_form_holds_every_kind()
}

/// 10 minutes have room for 40 faults and every kind, and the same seed is the same plan.
fn long_form_holds_every_kind() -> Result<(), String> {
    let length = Duration::from_secs(600);
    for seed in 0..20 {
        let planned = plan(seed, length, &Kind::ALL);
        let missing = Kind::ALL.iter().find(|kind| planned.iter().filter(|one| one.kind == **kind).count() < 2);
        if planned.len() < 44 || missing.is_some() || planned != plan(seed, length, &Kind::ALL) {
            return Err(format!("seed {seed} plans {} faults, {missing:?} not twice", planned.len()));
        }
    }
    Ok(())
}

/// 60 s at full pace with two faults that cost nothing.
fn sound() -> Evidence {
    let rule = rule();
    let run = Span { from_us: BEGIN, to_us: BEGIN + 60 * S };
    let times = (0..).map(|number| BEGIN + number * rule.interval_us).take_while(|at_us| *at_us <= run.to_us);
    let arrivals: Vec<Arrival> = times
        .zip(1..)
        .map(|(at_us, nonce)| Arrival { at_us, pid: PID, nonce, closes_us: at_us + rule.send_window_us })
        .collect();
    let fault = |kind, at_s, whom| Fault {
        kind,
        begin_us: BEGIN + at_s * S,
        healed_us: BEGIN + (at_s + 2) * S,
        over_us: BEGIN + (at_s + 2) * S,
        whom,
        needs: Duration::ZERO,
        forgettable: 0,
        silent: None,
        note: String::new(),
    };
    let sent = arrivals.len() as u64;
    Evidence {
        rule,
        run,
        processes: 1,
        arrivals,
        stalls: Vec::new(),
        faults: vec![fault(Kind::BackendKilled, 10, None), fault(Kind::CallerStopped, 30, Some(PID))],
        stops: Vec::new(),
        steps_us: Vec::new(),
        accounts: vec![Account { class: "order".into(), permits: sent, ..Account::default() }],
        granted: [("order".to_owned(), sent)].into(),
        left_running: Vec::new(),
        told: Vec::new(),
        broken: Vec::new(),
    }
}

fn says(judgement: &Judgement, words: &str) -> bool {
    judgement.because.iter().any(|why| why.contains(words))
}

/// As many more at once, each in its window.
fn burst(evidence: &mut Evidence, at_us: u64, count: u64) {
    let more = (0..count).map(|number| Arrival { at_us, pid: OTHER, nonce: at_us + number, closes_us: at_us + 50_000 });
    evidence.arrivals.extend(more);
    evidence.accounts[0].permits += count;
    *evidence.granted.get_mut("order").expect("the class") += count;
}

/// One over the limit: at full pace a closed window holds 17.
fn too_many(evidence: &mut Evidence) {
    burst(evidence, BEGIN + 20 * S, 2);
}

/// One that came after its window, in good time for nothing else.
fn late(evidence: &mut Evidence) {
    let at_us = BEGIN + 40 * S + 1000 * evidence.arrivals.len() as u64 % 100;
    burst(evidence, at_us, 1);
    let last = evidence.arrivals.last_mut().expect("it was just added");
    (last.pid, last.closes_us) = (PID, at_us - 200_000);
    last.nonce = u64::from(u32::MAX) + evidence.accounts[0].permits;
}

/// Around that moment.
fn stop(evidence: &mut Evidence, pid: u32) {
    let span = Span { from_us: BEGIN + 39 * S + 790_000, to_us: BEGIN + 39 * S + 990_000 };
    evidence.stops.push(Stop { pid, span });
}

/// Only the arrivals wanted, by their number and time; the others were never granted.
fn keep(evidence: &mut Evidence, wanted: fn(u64, u64) -> bool) {
    let mut number = 0;
    evidence.arrivals.retain(|arrival| {
        number += 1;
        wanted(number, arrival.at_us)
    });
    let sent = evidence.arrivals.len() as u64;
    evidence.accounts[0].permits = sent;
    *evidence.granted.get_mut("order").expect("the class") = sent;
}
