//! What a run is worth: pure arithmetic over what the vendor saw and what was done to the fleet. No clock, no socket.
//!
//! A zero counts only if the judge can say something else: `self_test` shows each of its rules to be broken.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::schedule::{Kind, counts};
use super::steps;
use super::windows::{Times, Windows};

/// A span of the machine's clock in microseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub from_us: u64,
    pub to_us: u64,
}

impl Span {
    pub fn touches(self, other: Span) -> bool {
        self.from_us <= other.to_us && other.from_us <= self.to_us
    }
}

/// A request at the vendor.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub at_us: u64,
    pub pid: u32,
    pub nonce: u64,
    /// The end of its send window.
    pub closes_us: u64,
}

/// A fault as it was.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub begin_us: u64,
    pub healed_us: u64,
    /// When all that belongs to it was done, such as a new standby.
    pub over_us: u64,
    /// Whose arrival shows that it has recovered; `None`: anybody's.
    pub whom: Option<u32>,
    /// What it needs to recover besides what every fault needs.
    pub needs: Duration,
    /// Grants that the store may have forgotten by it.
    pub forgettable: u64,
    /// When nobody could be granted anything, where it is a fault of that sort.
    pub silent: Option<Span>,
    pub note: String,
}

/// A process that did not run.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    pub pid: u32,
    pub span: Span,
}

/// What a process did with its slots, by its own last word.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub class: String,
    pub permits: u64,
    pub dropped: u64,
    pub lost: u64,
    pub lapsed: u64,
    /// Of a killed one: from its last word until it was gone.
    pub unheard_us: Option<u64>,
}

/// The budget's settings, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub limit: u64,
    pub window_us: u64,
    pub interval_us: u64,
    pub send_window_us: u64,
    pub jitter_us: u64,
    pub lookahead_us: u64,
}

impl Rule {
    /// How long what had been promised before something happened may still arrive.
    pub fn under_way_us(self) -> u64 {
        self.lookahead_us + self.interval_us + self.send_window_us + self.jitter_us
    }
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub rule: Rule,
    pub run: Span,
    /// Those that were killed included.
    pub processes: usize,
    pub arrivals: Vec<Arrival>,
    /// When the vendor itself stood still.
    pub stalls: Vec<Span>,
    pub faults: Vec<Fault>,
    pub stops: Vec<Stop>,
    /// Forward steps of the store's clock.
    pub steps_us: Vec<u64>,
    pub accounts: Vec<Account>,
    /// What the store granted to each class.
    pub granted: BTreeMap<String, u64>,
    /// What was still running at the end.
    pub left_running: Vec<String>,
    /// What processes said of the store, in their order.
    pub told: Vec<Word>,
    /// What of the run itself did not work, and so ended it early.
    pub broken: Vec<String>,
}

/// Something that a process said.
#[derive(Clone, Debug)]
pub struct Word {
    pub at_us: u64,
    pub pid: u32,
    pub what: String,
}

/// What is asked of a run. The limit itself has no margin.
#[derive(Clone, Debug, Serialize)]
pub struct Bounds {
    pub least_use: f64,
    /// From healing to the first arrival, besides what the kind itself needs.
    #[serde(rename = "recovery_ms", serialize_with = "in_ms")]
    pub recovery: Duration,
    /// That were played, not planned.
    pub least_faults: usize,
    pub least_kinds: usize,
    /// Each of these must have happened.
    pub kinds: Vec<Kind>,
}

fn in_ms<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64() * 1e3)
}

/// What became of one class's slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Books {
    pub granted: u64,
    pub permits: u64,
    pub dropped: u64,
    pub lost: u64,
    /// What killed processes may have had besides, at most.
    pub killed_at_most: u64,
}

/// Something that may not be, and whether it can be said.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    pub what: String,
    #[serde(skip)]
    pub span: Span,
    /// The vendor itself stood still meanwhile: who did not run cannot say when a call came.
    pub during_a_stall: bool,
}

#[derive(Clone, Debug)]
pub struct Judgement {
    pub windows: Windows,
    pub over_limit: u64,
    pub over_limit_with_residuals: u64,
    pub worst_window: u64,
    pub late: u64,
    pub late_unexplained: u64,
    pub duplicate_nonces: u64,
    pub use_outside_faults: f64,
    pub calm_s: f64,
    /// By fault, in ms; `None`: it never did.
    pub recoveries: Vec<Option<f64>>,
    pub faults: BTreeMap<Kind, u64>,
    pub recovery_ms: BTreeMap<Kind, f64>,
    pub books: BTreeMap<String, Books>,
    pub forgotten_at_most: u64,
    pub violations: Vec<Violation>,
    /// There were violations, each while the vendor stood still, and nothing else stands against the run: neither pass nor
    /// fail.
    pub inconclusive: bool,
    /// What stands against the run, a sentence each.
    pub because: Vec<String>,
}

/// The verdict over a run.
pub fn judge(evidence: &Evidence, bounds: &Bounds) -> Judgement {
    let Evidence { rule, arrivals, .. } = evidence;
    let mut because = Vec::new();
    let mut violations = Vec::new();
    let violation = |what: String, span: Span| Violation {
        what,
        span,
        during_a_stall: evidence.stalls.iter().any(|stall| stall.touches(span)),
    };

    let is_late = |arrival: &&Arrival| arrival.at_us > arrival.closes_us + rule.jitter_us;
    let excused = |arrival: &Arrival| explained_by_a_stop(evidence, arrival);
    let late: Vec<&Arrival> = arrivals.iter().filter(is_late).collect();
    let unexplained: Vec<&Arrival> = late.iter().copied().filter(|arrival| !excused(arrival)).collect();
    violations.extend(unexplained.iter().map(|late| {
        let after_ms = (late.at_us - late.closes_us) as f64 / 1e3;
        let what = format!("process {} came {after_ms:.0} ms after its window", late.pid);
        violation(what, Span { from_us: late.closes_us, to_us: late.at_us })
    }));
    if !unexplained.is_empty() {
        because.push(format!("{} arrivals were late, and their process had not been stopped", unexplained.len()));
    }

    let all = Times::of(arrivals.iter().map(|arrival| arrival.at_us));
    let kept = Times::of(arrivals.iter().filter(|one| !is_late(one) || !excused(one)).map(|arrival| arrival.at_us));
    let over: Vec<(Span, u64)> = kept
        .over_limit(rule.window_us, rule.limit)
        .filter(|(span, units)| !steps::explain(evidence, *span, units - rule.limit))
        .collect();
    if !over.is_empty() {
        because.push(format!("{} windows held more than {} calls", over.len(), rule.limit));
    }
    violations.extend(over.iter().map(|(span, units)| violation(format!("a window held {units} calls"), *span)));

    // From here on it is nothing that the vendor's own clock could have got wrong.
    let by_the_clock = because.len();
    because.extend(evidence.broken.iter().cloned());
    let duplicate_nonces = duplicates(arrivals);
    if duplicate_nonces > 0 {
        because.push(format!("{duplicate_nonces} nonces came twice"));
    }
    let recoveries = recoveries(evidence, bounds, &mut because);
    let (used, calm_us) = use_outside_faults(evidence);
    if used < bounds.least_use {
        let (percent, least) = (100.0 * used, 100.0 * bounds.least_use);
        because.push(format!("{percent:.1} % of the slots outside faults were used, {least:.0} % is due"));
    }
    let faults = counts(evidence.faults.iter().map(|fault| fault.kind));
    for kind in bounds.kinds.iter().filter(|kind| !faults.contains_key(kind)) {
        because.push(format!("there was no {}", kind.name()));
    }
    if evidence.faults.len() < bounds.least_faults || faults.len() < bounds.least_kinds {
        because.push(format!(
            "{} faults of {} kinds were played, {} of {} are due",
            evidence.faults.len(),
            faults.len(),
            bounds.least_faults,
            bounds.least_kinds
        ));
    }
    because.extend(evidence.faults.iter().filter_map(|fault| toothless(evidence, fault)));
    let forgotten_at_most = evidence.faults.iter().map(|fault| fault.forgettable).sum();
    let books = books(evidence, forgotten_at_most, &mut because);
    because.extend(evidence.left_running.iter().map(|what| format!("left running: {what}")));

    let mut recovery_ms = BTreeMap::new();
    for (fault, took) in evidence.faults.iter().zip(&recoveries) {
        let worst: &mut f64 = recovery_ms.entry(fault.kind).or_default();
        *worst = worst.max(took.unwrap_or(f64::INFINITY));
    }
    recovery_ms.retain(|_, worst| worst.is_finite());
    Judgement {
        windows: all.windows(rule.window_us, rule.limit),
        over_limit: over.len() as u64,
        over_limit_with_residuals: all.over_limit(rule.window_us, rule.limit).count() as u64,
        worst_window: all.worst(rule.window_us),
        late: late.len() as u64,
        late_unexplained: unexplained.len() as u64,
        duplicate_nonces,
        use_outside_faults: used,
        calm_s: calm_us as f64 / 1e6,
        recoveries,
        faults,
        recovery_ms,
        books,
        forgotten_at_most,
        inconclusive: !violations.is_empty()
            && violations.iter().all(|violation| violation.during_a_stall)
            && because.len() == by_the_clock,
        violations,
        because,
    }
}

/// Its process stood still after the check, which is made before the window closes, and before the wire.
fn explained_by_a_stop(evidence: &Evidence, arrival: &Arrival) -> bool {
    let open = arrival.closes_us.saturating_sub(evidence.rule.send_window_us);
    let between = Span { from_us: open, to_us: arrival.at_us };
    evidence.stops.iter().any(|stop| stop.pid == arrival.pid && stop.span.touches(between))
}

fn duplicates(arrivals: &[Arrival]) -> u64 {
    let mut seen = HashSet::new();
    arrivals.iter().filter(|arrival| !seen.insert(arrival.nonce)).count() as u64
}

/// When the first arrival after the healing came; the fault before it had to be over by then.
fn recovered_us(evidence: &Evidence, fault: &Fault) -> Option<u64> {
    let shows =
        |arrival: &&Arrival| arrival.at_us >= fault.healed_us && fault.whom.is_none_or(|pid| pid == arrival.pid);
    evidence.arrivals.iter().find(shows).map(|arrival| arrival.at_us)
}

fn recoveries(evidence: &Evidence, bounds: &Bounds, because: &mut Vec<String>) -> Vec<Option<f64>> {
    let mut took = Vec::new();
    for fault in &evidence.faults {
        let at_s = fault.begin_us.saturating_sub(evidence.run.from_us) as f64 / 1e6;
        let recovered = recovered_us(evidence, fault).map(|at_us| (at_us - fault.healed_us) as f64 / 1e3);
        let bound = (bounds.recovery + fault.needs).as_secs_f64() * 1e3;
        match recovered {
            None => because.push(format!("{} at {at_s:.1} s never recovered", fault.kind.name())),
            Some(ms) if ms > bound => because.push(format!(
                "{} at {at_s:.1} s recovered in {ms:.0} ms, {bound:.0} ms is its bound",
                fault.kind.name()
            )),
            Some(_) => {}
        }
        took.push(recovered);
    }
    took
}

/// The share of the offered slots that was used from each fault's recovery to the next fault, and how long that was.
fn use_outside_faults(evidence: &Evidence) -> (f64, u64) {
    let ends = evidence.faults.iter().map(|fault| fault.begin_us).chain([evidence.run.to_us]);
    let calm_from = |fault: &Fault| Some(recovered_us(evidence, fault)?.max(fault.over_us));
    let begins = [Some(evidence.run.from_us)].into_iter().chain(evidence.faults.iter().map(calm_from));
    let (mut sent, mut offered, mut calm_us) = (0, 0, 0);
    for (from_us, to_us) in begins.zip(ends).filter_map(|(from, to)| Some((from?, to))) {
        let inside = || evidence.arrivals.iter().filter(|one| (from_us..=to_us).contains(&one.at_us));
        let Some(first) = inside().next() else {
            offered += to_us.saturating_sub(from_us) / evidence.rule.interval_us;
            continue;
        };
        sent += inside().count() as u64;
        // To the span's end, not to its last arrival: a silence before the next fault is use that is missing.
        offered += (to_us - first.at_us) / evidence.rule.interval_us + 1;
        calm_us += to_us - first.at_us;
    }
    (if offered == 0 { 0.0 } else { sent as f64 / offered as f64 }, calm_us)
}

/// What to say of a fault that must keep everybody from calling, and did not. What had been promised before may still come.
fn toothless(evidence: &Evidence, fault: &Fault) -> Option<String> {
    let Span { from_us, to_us } = fault.silent?;
    let from_us = from_us + evidence.rule.under_way_us();
    let came = evidence.arrivals.iter().filter(|one| (from_us..to_us).contains(&one.at_us)).count();
    let at_s = fault.begin_us.saturating_sub(evidence.run.from_us) as f64 / 1e6;
    (came > 0).then(|| format!("{} at {at_s:.1} s did not bite: {came} calls came meanwhile", fault.kind.name()))
}

/// Per class: what the store granted is what the processes know of, give or take what was lost, what killed ones took along, and what
/// the store has forgotten. That last is one allowance for all classes together.
fn books(evidence: &Evidence, forgotten_at_most: u64, because: &mut Vec<String>) -> BTreeMap<String, Books> {
    let Rule { interval_us, lookahead_us, .. } = evidence.rule;
    let mut books = BTreeMap::new();
    let mut forgotten = 0;
    for (class, granted) in &evidence.granted {
        let of_class = || evidence.accounts.iter().filter(|account| account.class == *class);
        let sum = |part: fn(&Account) -> u64| of_class().map(part).sum::<u64>();
        let killed_at_most =
            of_class().filter_map(|one| one.unheard_us).map(|us| (us + lookahead_us) / interval_us + 1).sum();
        let class_books = Books {
            granted: *granted,
            permits: sum(|one| one.permits),
            dropped: sum(|one| one.dropped),
            lost: sum(|one| one.lost),
            killed_at_most,
        };
        let known = class_books.permits + class_books.dropped;
        let most = known + class_books.lost + killed_at_most;
        if *granted > most {
            because.push(format!(
                "the books of class {class} do not balance: {granted} granted, {known} known, {} lost and {killed_at_most} \
                 with killed processes at most",
                class_books.lost
            ));
        }
        forgotten += known.saturating_sub(*granted);
        books.insert(class.clone(), class_books);
    }
    if forgotten > forgotten_at_most {
        because.push(format!(
            "the books do not balance: processes know of {forgotten} that the store has not granted, {forgotten_at_most} \
             can be forgotten"
        ));
    }
    books
}
