//! What a run is worth: pure arithmetic over what callers noted and what was seen of the service. No clock, no socket.
//!
//! A zero counts only if the judge can say something else: `self_test` shows each of its rules to be broken.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use crate::killed::Killed;
use crate::looks::Look;
use crate::memory::Memory;
use crate::notes::{Notes, Refusal, Send};
use crate::windows::Times;

/// A span of the machine's clock in microseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub from_us: u64,
    pub to_us: u64,
}

impl Span {
    pub fn holds(self, at_us: u64) -> bool {
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
    pub most_added_p50_ms: f64,
    pub most_added_p99_ms: f64,
    pub most_added_free_p99_ms: f64,
    pub least_use: f64,
    pub most_late_share: f64,
    /// The slope and the last minute over the first, in MiB; `None`: the run is too short to tell growth from warming up.
    pub most_growth_mib: Option<f64>,
    /// More than this is no warming up.
    pub most_resident_mib: f64,
    pub most_pause_ms: f64,
    pub most_carry_on_ms: f64,
    /// Besides what is at stake.
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
pub struct Judgement {
    pub http: Side,
    pub library: Side,
    pub added: Added,
    pub memory: Option<Memory>,
    pub killed: Killed,
    /// What stands against the run, a sentence each.
    pub because: Vec<String>,
}

pub const S: u64 = 1_000_000;
const SHOWN: usize = 5;
/// A caller is told no later than this after its patience is over.
const TELLING_US: u64 = S;

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
    for (what, ms, most) in [
        ("what HTTP adds has a median", added.p50_ms, bounds.most_added_p50_ms),
        ("what HTTP adds has a p99", added.p99_ms, bounds.most_added_p99_ms),
        ("what HTTP adds to a free slot has a p99", added.free_p99_ms, bounds.most_added_free_p99_ms),
    ] {
        // Not a number: nothing was measured.
        if ms.is_nan() || ms > most {
            because.push(format!("{what} of {ms:.2} ms, {most} ms is its bound"));
        }
    }
    let memory = Memory::of(load);
    if let Some(memory) = &memory {
        memory.against(bounds, load.connections, &mut because);
    }
    let killed = Killed::of(rule, kill);
    killed.against(rule, bounds, &mut because);
    Judgement { http, library, added, memory, killed, because }
}

fn side(rule: &Rule, span: Span, notes: &Notes) -> Side {
    let within: Vec<&Send> = notes.sends.iter().filter(|send| span.holds(send.at_us)).collect();
    // Of those who take what comes: who is refused when it takes long has only the short waits.
    let impatient: HashSet<u32> = notes.refusals.iter().map(|refusal| refusal.caller).collect();
    let late: Vec<&Send> = notes.late.iter().filter(|late| span.holds(late.at_us)).collect();
    // The late ones among them: whatever keeps an answer back has to be seen here.
    let gone = Sorted::of(within.iter().chain(&late).map(|send| send.gone_us));
    let waited = within.iter().filter(|send| !impatient.contains(&send.caller)).map(|send| send.waited_us as i64);
    let waited = Sorted::of(waited);
    let free = Sorted::of(notes.free_us.iter().map(|us| *us as i64));
    let timer = Sorted::of(notes.timer_late_us.iter().map(|us| *us as i64));
    let all = Times::of(notes.sends.iter().map(|send| send.at_us));
    let seconds = span.length_us() as f64 / S as f64;
    Side {
        sends: within.len(),
        sends_per_s: within.len() as f64 / seconds,
        used: within.len() as f64 * rule.interval_us as f64 / span.length_us() as f64,
        worst_window: all.worst(rule.window_us),
        over_limit_windows: all.over_limit(rule.window_us, rule.limit).count() as u64,
        late: late.len(),
        late_share: late.len() as f64 / (within.len() + late.len()).max(1) as f64,
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

pub fn by_code(refusals: &[Refusal]) -> BTreeMap<String, u64> {
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
