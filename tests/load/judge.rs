//! What a run is worth: pure arithmetic over what callers noted and what was seen of the service. No clock, no socket.
//!
//! A zero counts only if the judge can say something else: `self_test` shows each of its rules to be broken.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::looks::Look;
use crate::notes::{Notes, Refusal, Send};
use crate::windows::Times;

/// A span of the machine's clock in microseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub from_us: u64,
    pub to_us: u64,
}

impl Span {
    fn holds(self, at_us: u64) -> bool {
        (self.from_us..=self.to_us).contains(&at_us)
    }

    fn length_us(self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }
}

/// The settings of every budget of the run, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rule {
    pub limit: u64,
    pub window_us: u64,
    pub send_window_us: u64,
    pub interval_us: u64,
    pub lookahead_us: u64,
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub rule: Rule,
    pub load: Load,
    pub kill: Kill,
    /// What the services had to say, which is only what is wrong.
    pub said: Vec<String>,
    pub machine_load_before: Option<f64>,
}

/// The load on one service, and the library beside it.
#[derive(Clone, Debug)]
pub struct Load {
    /// After the ramp-up. Notes are of all the time.
    pub span: Span,
    pub http: Notes,
    pub library: Notes,
    pub looks: Vec<Look>,
    /// That callers had to the service.
    pub connections: u64,
}

/// Two services, one of which was killed. Callers of even numbers began with the one that stays.
#[derive(Clone, Debug)]
pub struct Kill {
    pub span: Span,
    pub killed_us: u64,
    pub callers: u32,
    pub notes: Notes,
}

/// What is asked of a run. The limit and refusals have no margin.
#[derive(Clone, Debug, Serialize)]
pub struct Bounds {
    pub most_added_p99_ms: f64,
    pub least_use: f64,
    pub most_late_share: f64,
    /// The slope and the last minute over the first, in MiB; `None`: the run is too short to tell growth from warming up.
    pub most_growth_mib: Option<f64>,
    /// More than this is no warming up.
    pub most_resident_mib: f64,
    pub most_pause_ms: f64,
    pub most_carry_on_ms: f64,
    /// Besides what can be in flight.
    pub most_slots_lost: u64,
}

/// One side of the comparison.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Side {
    pub sends: usize,
    pub sends_per_s: f64,
    #[serde(rename = "use")]
    pub used: f64,
    pub worst_window: u64,
    pub over_limit_windows: u64,
    pub late: usize,
    pub late_share: f64,
    pub refusals: BTreeMap<String, u64>,
    pub refusals_not_due: u64,
    /// The first of them.
    pub not_due: Vec<Refusal>,
    pub broken: usize,
    pub gone_p50_ms: f64,
    pub gone_p99_ms: f64,
    pub gone_max_ms: f64,
    pub waited_p50_ms: f64,
    pub waited_p99_ms: f64,
    pub free_p50_ms: f64,
    pub free_p99_ms: f64,
    pub timer_late_p99_ms: f64,
    pub timer_late_max_ms: f64,
}

/// HTTP over the library, in ms.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Added {
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// p99 over HTTP less the median of the library.
    pub over_median_p99_ms: f64,
    pub free_p50_ms: f64,
    pub free_p99_ms: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    pub looks: usize,
    pub warm_up_s: f64,
    /// Means over a minute, or a quarter of a shorter run: after the warm-up, and the last.
    pub first_mib: f64,
    pub last_mib: f64,
    pub most_mib: f64,
    pub slope_mib_per_10_min: f64,
    pub first_descriptors: u64,
    pub last_descriptors: u64,
    pub most_descriptors: u64,
    pub first_threads: u64,
    pub last_threads: u64,
    pub most_threads: u64,
    /// Of one core.
    pub cpu_percent: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Killed {
    pub sends: usize,
    pub worst_window: u64,
    pub over_limit_windows: u64,
    pub late: usize,
    pub refusals: BTreeMap<String, u64>,
    /// Of the service that stayed, before they were joined by the others and after.
    pub survivors_refusals: u64,
    pub survivors_broken: u64,
    pub survivors_longest_pause_before_ms: f64,
    pub survivors_longest_pause_ms: f64,
    pub survivors_waited_most_before_ms: f64,
    pub survivors_waited_most_ms: f64,
    pub others_broken: u64,
    /// Until the last of them had a slot again; null: one never had.
    pub others_carry_on_ms: Option<f64>,
    /// Offered and not used in the 3 s before the kill, which is the machine's doing, and in the 3 s after it.
    pub slots_unused_before: u64,
    pub slots_unused_after: u64,
    /// What there is more of after it.
    pub slots_lost: u64,
    /// What a service can hold at once: promised, or handed out and not read.
    pub slots_in_flight_at_most: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    pub http: Side,
    pub library: Side,
    pub added: Added,
    pub memory: Option<Memory>,
    pub killed: Killed,
    /// What stands against the run, a sentence each.
    pub because: Vec<String>,
}

const S: u64 = 1_000_000;
const SHOWN: usize = 5;
/// A caller is told no later than this after its patience is over.
const TELLING_US: u64 = S;
/// Before and after the kill.
const AROUND_US: u64 = 3 * S;
/// A service has its listener, the store's connections, and what its runtime needs.
const OTHER_DESCRIPTORS: u64 = 64;

/// The verdict over a run.
pub fn judge(evidence: &Evidence, bounds: &Bounds) -> Judgement {
    let Evidence { rule, load, kill, .. } = evidence;
    let mut because = Vec::new();
    let http = side(rule, load.span, &load.http);
    let library = side(rule, load.span, &load.library);
    for (name, side) in [("over HTTP", &http), ("by the library", &library)] {
        against_a_side(name, side, rule, bounds, &mut because);
    }
    if http.broken > 0 {
        because.push(format!("{} connections to the one service ended while an answer was due", http.broken));
    }
    if !load.http.refusals.iter().any(is_due) {
        because.push("nobody was refused who should have been: there was no load".into());
    }
    let added = Added {
        p50_ms: http.gone_p50_ms - library.gone_p50_ms,
        p99_ms: http.gone_p99_ms - library.gone_p99_ms,
        over_median_p99_ms: http.gone_p99_ms - library.gone_p50_ms,
        free_p50_ms: http.free_p50_ms - library.free_p50_ms,
        free_p99_ms: http.free_p99_ms - library.free_p99_ms,
    };
    for (what, p99_ms) in [("what HTTP adds", added.p99_ms), ("what HTTP adds to a free slot", added.free_p99_ms)] {
        let most = bounds.most_added_p99_ms;
        // Not a number: nothing was measured.
        if p99_ms.is_nan() || p99_ms > most {
            because.push(format!("{what} has a p99 of {p99_ms:.2} ms, {most} ms is its bound"));
        }
    }
    let memory = memory(load);
    if let Some(memory) = &memory {
        against_memory(memory, bounds, load, &mut because);
    }
    let killed = killed(rule, kill);
    against_the_kill(&killed, rule, bounds, &mut because);
    Judgement { http, library, added, memory, killed, because }
}

fn side(rule: &Rule, span: Span, notes: &Notes) -> Side {
    let within: Vec<&Send> = notes.sends.iter().filter(|send| span.holds(send.at_us)).collect();
    // Of those who take what comes: who is refused when it takes long has only the short waits.
    let impatient: HashSet<u32> = notes.refusals.iter().map(|refusal| refusal.caller).collect();
    let gone = Sorted::of(within.iter().map(|send| send.gone_us));
    let waited = within.iter().filter(|send| !impatient.contains(&send.caller)).map(|send| send.waited_us as i64);
    let waited = Sorted::of(waited);
    let free = Sorted::of(notes.free_us.iter().map(|us| *us as i64));
    let timer = Sorted::of(notes.timer_late_us.iter().map(|us| *us as i64));
    let all = Times::of(notes.sends.iter().map(|send| send.at_us));
    let late = notes.late.iter().filter(|late| span.holds(late.at_us)).count();
    let seconds = span.length_us() as f64 / S as f64;
    Side {
        sends: within.len(),
        sends_per_s: within.len() as f64 / seconds,
        used: within.len() as f64 * rule.interval_us as f64 / span.length_us() as f64,
        worst_window: all.worst(rule.window_us),
        over_limit_windows: all.over_limit(rule.window_us, rule.limit).count() as u64,
        late,
        late_share: late as f64 / (within.len() + late).max(1) as f64,
        refusals: by_code(&notes.refusals),
        refusals_not_due: notes.refusals.iter().filter(|refusal| !is_due(refusal)).count() as u64,
        not_due: notes.refusals.iter().filter(|refusal| !is_due(refusal)).take(SHOWN).cloned().collect(),
        broken: notes.broken.len(),
        gone_p50_ms: gone.ms(0.5),
        gone_p99_ms: gone.ms(0.99),
        gone_max_ms: gone.ms(1.0),
        waited_p50_ms: waited.ms(0.5),
        waited_p99_ms: waited.ms(0.99),
        free_p50_ms: free.ms(0.5),
        free_p99_ms: free.ms(0.99),
        timer_late_p99_ms: timer.ms(0.99),
        timer_late_max_ms: timer.ms(1.0),
    }
}

fn against_a_side(name: &str, side: &Side, rule: &Rule, bounds: &Bounds, because: &mut Vec<String>) {
    if side.over_limit_windows > 0 {
        because.push(format!("{name}: {} windows held more than {} calls", side.over_limit_windows, rule.limit));
    }
    if side.refusals_not_due > 0 {
        because.push(format!("{name}: {} refusals were not due", side.refusals_not_due));
    }
    if side.late_share > bounds.most_late_share {
        because.push(format!(
            "{name}: {} of {} answers came after their window, {} % may",
            side.late,
            side.sends + side.late,
            100.0 * bounds.most_late_share
        ));
    }
    if side.used < bounds.least_use {
        because.push(format!(
            "{name}: {:.1} % of the slots were used, {:.0} % is due",
            100.0 * side.used,
            100.0 * bounds.least_use
        ));
    }
}

/// Its slot would have come only after its patience, and it was told in time. Whose patience ends while the store is being
/// asked on its behalf may have spent a slot, and is told so.
fn is_due(refusal: &Refusal) -> bool {
    let Refusal { waited_us, max_wait_us, retry_after_us, .. } = *refusal;
    let too_far = match refusal.code.as_str() {
        "CALL_BUDGET_WAIT_EXCEEDED" => waited_us + retry_after_us.unwrap_or(0) >= max_wait_us,
        "CALL_BUDGET_UNCERTAIN" => waited_us >= max_wait_us,
        _ => false,
    };
    too_far && waited_us <= max_wait_us + TELLING_US
}

fn by_code(refusals: &[Refusal]) -> BTreeMap<String, u64> {
    let mut codes = BTreeMap::new();
    for refusal in refusals {
        *codes.entry(refusal.code.clone()).or_default() += 1;
    }
    codes
}

/// Values in their order; what is asked of none is not a number.
struct Sorted(Vec<i64>);

impl Sorted {
    fn of(values: impl Iterator<Item = i64>) -> Self {
        let mut values: Vec<i64> = values.collect();
        values.sort_unstable();
        Self(values)
    }

    fn ms(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let at = (last as f64 * part).round() as usize;
        self.0.get(at).map_or(f64::NAN, |us| *us as f64 / 1000.0)
    }
}

/// How long the service may take to warm up: its page shows two minutes, which it has to collect first.
fn warm_up_us(length_us: u64) -> u64 {
    (length_us / 4).min(150 * S)
}

fn memory(load: &Load) -> Option<Memory> {
    let looks: Vec<&Look> = load.looks.iter().filter(|look| load.span.holds(look.at_us)).collect();
    let (first, last) = (*looks.first()?, *looks.last()?);
    let warm_us = warm_up_us(last.at_us - first.at_us);
    let settled: Vec<&Look> = looks.iter().copied().filter(|look| look.at_us >= first.at_us + warm_us).collect();
    let minute_us = (60 * S).min((last.at_us - first.at_us) / 4);
    let mib = |kib: u64| kib as f64 / 1024.0;
    let mean = |inside: &dyn Fn(&Look) -> bool| {
        let within: Vec<f64> =
            settled.iter().filter(|look| inside(look)).map(|look| mib(look.resident_kib)).collect();
        within.iter().sum::<f64>() / within.len() as f64
    };
    let most = |part: fn(&Look) -> u64| looks.iter().map(|look| part(look)).max().unwrap_or(0);
    let settled_first = settled.first()?;
    Some(Memory {
        looks: looks.len(),
        warm_up_s: warm_us as f64 / S as f64,
        first_mib: mean(&|look| look.at_us <= first.at_us + warm_us + minute_us),
        last_mib: mean(&|look| look.at_us + minute_us >= last.at_us),
        most_mib: mib(most(|look| look.resident_kib)),
        slope_mib_per_10_min: slope(&settled) * 600.0,
        first_descriptors: settled_first.descriptors,
        last_descriptors: last.descriptors,
        most_descriptors: most(|look| look.descriptors),
        first_threads: settled_first.threads,
        last_threads: last.threads,
        most_threads: most(|look| look.threads),
        cpu_percent: 100.0 * (last.cpu_us - first.cpu_us) as f64 / (last.at_us - first.at_us).max(1) as f64,
    })
}

/// Of the line that lies closest to all of them, in MiB a second.
fn slope(looks: &[&Look]) -> f64 {
    let Some(first) = looks.first() else { return 0.0 };
    let points = || {
        looks.iter().map(|look| ((look.at_us - first.at_us) as f64 / S as f64, look.resident_kib as f64 / 1024.0))
    };
    let count = looks.len() as f64;
    let (sum_x, sum_y) = points().fold((0.0, 0.0), |(sum_x, sum_y), (x, y)| (sum_x + x, sum_y + y));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (up, across) = points().fold((0.0, 0.0), |(up, across), (x, y)| {
        (up + (x - mean_x) * (y - mean_y), across + (x - mean_x) * (x - mean_x))
    });
    if across > 0.0 { up / across } else { 0.0 }
}

fn against_memory(memory: &Memory, bounds: &Bounds, load: &Load, because: &mut Vec<String>) {
    if let Some(most) = bounds.most_growth_mib {
        let grown = memory.last_mib - memory.first_mib;
        if memory.slope_mib_per_10_min > most || grown > most {
            because.push(format!(
                "memory grew: {grown:.2} MiB from minute to minute, {:.2} MiB in 10 minutes by its slope, {most} MiB may be",
                memory.slope_mib_per_10_min
            ));
        }
    }
    if memory.most_mib > bounds.most_resident_mib {
        because.push(format!("{:.0} MiB were resident, {:.0} may be", memory.most_mib, bounds.most_resident_mib));
    }
    let callers = load.connections;
    if memory.most_descriptors > callers + OTHER_DESCRIPTORS || memory.last_descriptors > memory.first_descriptors + 8 {
        because.push(format!(
            "the service had {} descriptors at most and {} in the end, for {callers} callers",
            memory.most_descriptors, memory.last_descriptors
        ));
    }
    if memory.last_threads > memory.first_threads + 4 {
        because.push(format!("from {} threads to {}", memory.first_threads, memory.last_threads));
    }
}

fn killed(rule: &Rule, kill: &Kill) -> Killed {
    let Kill { span, killed_us, callers, notes } = kill;
    let stays = |caller: u32| caller % 2 == 0;
    let all = Times::of(notes.sends.iter().map(|send| send.at_us));
    let (before, after) = (Span { to_us: *killed_us, ..*span }, Span { from_us: *killed_us, ..*span });
    let survivors: Vec<&Send> = notes.sends.iter().filter(|send| stays(send.caller)).collect();
    let waited_most = |span: Span| {
        let waits = survivors.iter().filter(|send| span.holds(send.at_us)).map(|send| send.waited_us);
        waits.max().unwrap_or(0) as f64 / 1000.0
    };
    let mut again: HashMap<u32, u64> = HashMap::new();
    for send in notes.sends.iter().filter(|send| !stays(send.caller) && send.at_us > *killed_us) {
        let first = again.entry(send.caller).or_insert(send.at_us);
        *first = send.at_us.min(*first);
    }
    let all_again = again.len() as u32 == callers / 2;
    let unused = |from_us: u64, to_us: u64| {
        let used = notes.sends.iter().filter(|send| (from_us..to_us).contains(&send.at_us)).count() as u64;
        ((to_us - from_us) / rule.interval_us).saturating_sub(used)
    };
    let slots_unused_before = unused(killed_us - AROUND_US, *killed_us);
    let slots_unused_after = unused(*killed_us, killed_us + AROUND_US);
    Killed {
        sends: notes.sends.len(),
        worst_window: all.worst(rule.window_us),
        over_limit_windows: all.over_limit(rule.window_us, rule.limit).count() as u64,
        late: notes.late.len(),
        refusals: by_code(&notes.refusals),
        survivors_refusals: notes.refusals.iter().filter(|refusal| stays(refusal.caller)).count() as u64,
        survivors_broken: notes.broken.iter().filter(|broken| stays(broken.caller)).count() as u64,
        survivors_longest_pause_before_ms: longest_pause_ms(&survivors, before),
        survivors_longest_pause_ms: longest_pause_ms(&survivors, after),
        survivors_waited_most_before_ms: waited_most(before),
        survivors_waited_most_ms: waited_most(after),
        others_broken: notes.broken.iter().filter(|broken| !stays(broken.caller)).count() as u64,
        others_carry_on_ms: all_again
            .then(|| (again.values().max().map_or(0, |at_us| at_us - killed_us)) as f64 / 1000.0),
        slots_unused_before,
        slots_unused_after,
        slots_lost: slots_unused_after.saturating_sub(slots_unused_before),
        slots_in_flight_at_most: (rule.lookahead_us + rule.send_window_us) / rule.interval_us,
    }
}

/// Between two sends of them all, the span's ends among them.
fn longest_pause_ms(sends: &[&Send], span: Span) -> f64 {
    let mut times: Vec<u64> = sends.iter().map(|send| send.at_us).filter(|at_us| span.holds(*at_us)).collect();
    times.extend([span.from_us, span.to_us]);
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as f64 / 1000.0
}

fn against_the_kill(killed: &Killed, rule: &Rule, bounds: &Bounds, because: &mut Vec<String>) {
    if killed.over_limit_windows > 0 {
        because.push(format!(
            "around the kill {} windows held more than {} calls",
            killed.over_limit_windows, rule.limit
        ));
    }
    if !killed.refusals.is_empty() {
        because.push(format!("around the kill callers were refused: {:?}", killed.refusals));
    }
    if killed.survivors_broken > 0 {
        because.push(format!("{} connections to the service that stayed were broken", killed.survivors_broken));
    }
    if killed.others_broken == 0 {
        because.push("the kill broke no connection: it did not bite".into());
    }
    if killed.survivors_longest_pause_ms > bounds.most_pause_ms {
        because.push(format!(
            "the callers of the service that stayed paused for {:.0} ms, {:.0} may be",
            killed.survivors_longest_pause_ms, bounds.most_pause_ms
        ));
    }
    match killed.others_carry_on_ms {
        None => because.push("not every caller of the killed service had a slot again".into()),
        Some(ms) if ms > bounds.most_carry_on_ms => because.push(format!(
            "the last caller of the killed service had a slot after {ms:.0} ms, {:.0} may be",
            bounds.most_carry_on_ms
        )),
        Some(_) => {}
    }
    let most = killed.slots_in_flight_at_most + bounds.most_slots_lost;
    if killed.slots_lost > most {
        because.push(format!("{} slots were lost in the 3 s after the kill, {most} may be", killed.slots_lost));
    }
}
