//! Shows the judge evidence that is sound, and the same with one thing spoilt: each must be told.

use crate::judge::{Bounds, Evidence, Judgement, Kill, Load, Rule, Span, judge};
use crate::looks::Look;
use crate::notes::{Mark, Notes, Refusal, Send};

const S: u64 = 1_000_000;
const BEGIN: u64 = 100 * S;
const LENGTH: u64 = 600 * S;
const CALLERS: u32 = 500;
const KILL_BEGIN: u64 = BEGIN + LENGTH + 10 * S;
const KILLED: u64 = KILL_BEGIN + 5 * S;
const KILL_END: u64 = KILL_BEGIN + 12 * S;

/// What it is called, how the evidence is spoilt, and how it must then be judged.
type Case = (&'static str, fn(&mut Evidence), fn(&Judgement) -> bool);

const CASES: &[Case] = &[
    ("a sound run", |_| {}, |it| it.because.is_empty()),
    (
        "a window over the limit",
        |evidence| {
            // At full pace a closed window holds all 11 already.
            let more = send(1, BEGIN + 30 * S + 1);
            evidence.load.http.sends.extend(std::iter::repeat_n(more, 2));
        },
        |it| says(it, "over HTTP: ") && says(it, "windows held more than 11 calls"),
    ),
    (
        "a window over the limit by the library",
        |evidence| evidence.load.library.sends.extend(std::iter::repeat_n(send(1, BEGIN + 30 * S + 1), 2)),
        |it| says(it, "by the library: "),
    ),
    (
        "a window over the limit around the kill",
        |evidence| evidence.kill.notes.sends.extend(std::iter::repeat_n(send(0, KILLED), 2)),
        |it| says(it, "around the kill") && says(it, "more than 11 calls"),
    ),
    (
        "a refusal of somebody who would have waited",
        |evidence| evidence.load.http.refusals.push(refusal(30 * S, 2 * S, None)),
        |it| says(it, "over HTTP: 1 refusals were not due"),
    ),
    (
        "a refusal before waiting, of a slot that was too far away",
        |evidence| evidence.load.http.refusals.push(refusal(S / 10, 0, Some(S / 2))),
        |it| it.because.is_empty(),
    ),
    (
        "a refusal before waiting, of a slot that was near enough",
        |evidence| evidence.load.http.refusals.push(refusal(S, 0, Some(S / 2))),
        |it| says(it, "1 refusals were not due"),
    ),
    (
        "a refusal that is due, told much too late",
        |evidence| evidence.load.http.refusals.push(refusal(S / 10, 3 * S, None)),
        |it| says(it, "1 refusals were not due"),
    ),
    (
        "patience that ends while the store is asked",
        |evidence| {
            let code = "CALL_BUDGET_UNCERTAIN".to_owned();
            evidence.load.http.refusals.push(Refusal { code, ..refusal(S / 10, S / 10, None) });
        },
        |it| it.because.is_empty(),
    ),
    (
        "an answer of the store that is lost",
        |evidence| {
            let code = "CALL_BUDGET_UNCERTAIN".to_owned();
            evidence.load.http.refusals.push(Refusal { code, ..refusal(30 * S, S, Some(30 * S)) });
        },
        |it| says(it, "1 refusals were not due"),
    ),
    (
        "a refusal with another code",
        |evidence| {
            let code = "CALL_BUDGET_STORE_UNAVAILABLE".to_owned();
            evidence.load.http.refusals.push(Refusal { code, ..refusal(S / 10, S / 10, None) });
        },
        |it| says(it, "1 refusals were not due"),
    ),
    (
        "nobody refused: there was no load",
        |evidence| evidence.load.http.refusals.clear(),
        |it| says(it, "there was no load"),
    ),
    (
        "a broken connection",
        |evidence| evidence.load.http.broken.push(mark(7, BEGIN + 9 * S)),
        |it| says(it, "1 connections to the one service ended"),
    ),
    (
        "answers after their window",
        |evidence| {
            let late = (0..20).map(|number| Send { gone_us: 51_000, ..send(3, BEGIN + number * S) });
            evidence.load.http.late.extend(late);
        },
        |it| says(it, "20 of ") && says(it, "came after their window"),
    ),
    (
        "so many answers after their window that they are the slow ones",
        |evidence| {
            let late = (0..100).map(|number| Send { gone_us: 51_000, ..send(3, BEGIN + number * S) });
            evidence.load.http.late.extend(late);
        },
        |it| says(it, "what HTTP adds has a p99 of 48.00 ms"),
    ),
    (
        "slots that nobody used",
        |evidence| {
            let mut number = 0;
            evidence.load.http.sends.retain(|_| {
                number += 1;
                number % 20 != 0
            });
        },
        |it| says(it, "over HTTP: 95.0 % of the slots were used"),
    ),
    (
        "2 in 100 answers that are slow",
        |evidence| slow(&mut evidence.load.http, 50),
        |it| says(it, "what HTTP adds has a p99 of 6.00 ms"),
    ),
    ("1 in 200 answers that are slow", |evidence| slow(&mut evidence.load.http, 200), |it| it.because.is_empty()),
    (
        "every answer slow, where the library has a tail of its own",
        |evidence| {
            slow(&mut evidence.load.http, 1);
            slow(&mut evidence.load.library, 50);
        },
        |it| says(it, "what HTTP adds has a median of 6.00 ms") && it.added.p99_ms < 5.0,
    ),
    (
        "the library as slow",
        |evidence| {
            slow(&mut evidence.load.http, 50);
            slow(&mut evidence.load.library, 50);
        },
        |it| it.because.is_empty() && it.added.over_median_p99_ms > 5.0,
    ),
    (
        "an acquire of a free slot that is slow",
        |evidence| evidence.load.http.free_us.iter_mut().step_by(50).for_each(|us| *us += 6_000),
        |it| says(it, "adds to a free slot has a p99 of 6.00 ms"),
    ),
    ("nothing measured", |evidence| evidence.load.library.free_us.clear(), |it| says(it, "p99 of NaN ms")),
    (
        "memory that grows by 2 MiB in 10 minutes",
        |evidence| {
            for look in &mut evidence.load.looks {
                look.resident_kib += 2048 * (look.at_us - BEGIN) / LENGTH;
            }
        },
        |it| says(it, "memory grew"),
    ),
    (
        "memory that grows while it warms up",
        |evidence| {
            for look in &mut evidence.load.looks {
                look.resident_kib += 4096.min(4096 * (look.at_us - BEGIN) / (120 * S));
            }
        },
        |it| it.because.is_empty(),
    ),
    (
        "far too much memory, for a moment",
        |evidence| evidence.load.looks[40].resident_kib = 512 * 1024,
        |it| says(it, "512 MiB were resident"),
    ),
    (
        "descriptors that are not given back",
        |evidence| {
            for look in &mut evidence.load.looks {
                look.descriptors += 100 * (look.at_us - BEGIN) / LENGTH;
            }
        },
        |it| says(it, "descriptors at most"),
    ),
    (
        "threads that are not given back",
        |evidence| {
            for look in &mut evidence.load.looks {
                look.threads += 10 * (look.at_us - BEGIN) / LENGTH;
            }
        },
        |it| says(it, "from 6 threads to 14"),
    ),
    (
        "a refusal around the kill",
        |evidence| evidence.kill.notes.refusals.push(refusal(30 * S, S, None)),
        |it| says(it, "around the kill callers were refused"),
    ),
    (
        "a broken connection to the service that stayed",
        |evidence| evidence.kill.notes.broken.push(mark(4, KILLED + 10)),
        |it| says(it, "1 connections to the service that stayed"),
    ),
    ("a kill that broke nothing", |evidence| evidence.kill.notes.broken.clear(), |it| says(it, "it did not bite")),
    (
        "a pause of those whose service stayed",
        |evidence| {
            let pause = KILLED + S..KILLED + 2 * S + S / 2;
            evidence.kill.notes.sends.retain(|send| !pause.contains(&send.at_us) || send.caller % 2 == 1);
        },
        |it| says(it, "the service that stayed paused for"),
    ),
    (
        "a caller of the killed one that never comes back",
        |evidence| evidence.kill.notes.sends.retain(|send| send.caller != 7 || send.at_us < KILLED),
        |it| says(it, "not every caller of the killed service"),
    ),
    (
        "a caller of the killed one that comes back late",
        |evidence| {
            let away = KILLED..KILLED + 4 * S;
            evidence.kill.notes.sends.retain(|send| send.caller != 7 || !away.contains(&send.at_us));
        },
        |it| says(it, "the last caller of the killed service had a slot after"),
    ),
    (
        "slots that the killed one took along",
        |evidence| {
            let mut number = 0;
            evidence.kill.notes.sends.retain(|send| {
                number += u64::from(send.at_us > KILLED);
                send.at_us <= KILLED || number > 30 || number % 2 == 0
            });
        },
        |it| says(it, "slots were lost in the 3 s after the kill"),
    ),
];

/// The name of the first case that is not judged as it must be, and what was said instead.
pub fn run() -> Result<(), String> {
    let bounds = Bounds {
        most_added_p50_ms: 5.0,
        most_added_p99_ms: 5.0,
        most_added_free_p99_ms: 5.0,
        least_use: 0.97,
        most_late_share: 0.001,
        most_growth_mib: Some(1.0),
        most_resident_mib: 128.0,
        most_pause_ms: 1000.0,
        most_carry_on_ms: 3000.0,
        most_slots_lost: 4,
    };
    let sound = sound();
    for (name, spoil, is_judged) in CASES {
        let mut evidence = sound.clone();
        spoil(&mut evidence);
        let judgement = judge(&evidence, &bounds);
        if !is_judged(&judgement) {
            return Err(format!("{name}: {judgement:?}"));
        }
    }
    Ok(())
}

/// Ten minutes at a hundredth of the pace, with as much at rest as there can be.
fn sound() -> Evidence {
    let rule = Rule { limit: 11, window_us: S, send_window_us: 50_000, interval_us: 100_000, lookahead_us: 60_000 };
    let span = Span { from_us: BEGIN, to_us: BEGIN + LENGTH };
    let notes = |impatient: Vec<Refusal>| Notes {
        sends: paced(BEGIN, span.to_us, rule.interval_us),
        refusals: impatient,
        free_us: vec![2_000; 1000],
        timer_late_us: vec![500; 1000],
        ..Notes::default()
    };
    let look = |second: u64| Look {
        at_us: BEGIN + second * S,
        // It breathes.
        resident_kib: 20_480 + 100 * (second % 3),
        threads: 4,
        descriptors: 510,
        cpu_us: second * 100_000,
    };
    let kill_sends = paced(KILL_BEGIN, KILL_END, rule.interval_us);
    Evidence {
        rule,
        load: Load {
            span,
            http: notes(vec![refusal(S / 10, S / 10, None)]),
            library: notes(Vec::new()),
            looks: (0..=LENGTH / S).map(look).collect(),
            connections: u64::from(CALLERS) + 1,
        },
        kill: Kill {
            span: Span { from_us: KILL_BEGIN, to_us: KILL_END },
            killed_us: KILLED,
            callers: 20,
            notes: Notes { sends: kill_sends, broken: vec![mark(7, KILLED + 1)], ..Notes::default() },
        },
        said: Vec::new(),
        machine_load_before: None,
    }
}

/// Callers of 20 in turns.
fn paced(from_us: u64, to_us: u64, interval_us: u64) -> Vec<Send> {
    let times = (0..).map(|number| from_us + number * interval_us).take_while(|at_us| *at_us <= to_us);
    times.zip(0..).map(|(at_us, number)| send(number % 20, at_us)).collect()
}

fn send(caller: u32, at_us: u64) -> Send {
    Send { caller, at_us, gone_us: 3_000, waited_us: S / 2 }
}

fn mark(caller: u32, at_us: u64) -> Mark {
    Mark { caller, at_us }
}

fn refusal(max_wait_us: u64, waited_us: u64, retry_after_us: Option<u64>) -> Refusal {
    let code = "CALL_BUDGET_WAIT_EXCEEDED".to_owned();
    Refusal { caller: 600, at_us: BEGIN + 20 * S, code, max_wait_us, waited_us, retry_after_us }
}

/// One in so many.
fn slow(notes: &mut Notes, one_in: usize) {
    notes.sends.iter_mut().step_by(one_in).for_each(|send| send.gone_us += 6_000);
}

fn says(judgement: &Judgement, words: &str) -> bool {
    judgement.because.iter().any(|why| why.contains(words))
}
