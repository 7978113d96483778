//! The report of a run, for programs and for people.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::judge::{Added, Bounds, Evidence, Judgement, Rule, Side};
use crate::killed::Killed;
use crate::looks::machine_load;
use crate::memory::Memory;

/// What services said that people are shown; programs get all.
const SHOWN: usize = 10;

/// The run as one JSON object. `Options` says what its fields mean.
#[derive(Debug, Serialize)]
pub struct Report {
    pub bounds: Bounds,
    pub rule: Rule,
    pub seconds: f64,
    pub callers: u64,
    pub cores: usize,
    /// Processes that wanted a core, the mean of a minute: before the run, which is others' work, and at its end.
    pub machine_load_before: Option<f64>,
    pub machine_load_after: Option<f64>,
    /// Whether the service was built as for use.
    pub optimized: bool,
    pub http: Side,
    pub library: Side,
    pub added: Added,
    pub memory: Option<Memory>,
    pub killed: Killed,
    pub said: Vec<String>,
    pub not_tried: Vec<String>,
    pub pass: bool,
    /// What stands against it.
    pub because: Vec<String>,
}

impl Report {
    pub fn of(evidence: &Evidence, bounds: Bounds, judgement: Judgement) -> Self {
        let mut not_tried = Vec::new();
        if judgement.memory.is_none() {
            not_tried.push("memory, descriptors and threads: this system does not tell of its processes".to_owned());
        }
        let span = evidence.load.span;
        Self {
            rule: evidence.rule,
            seconds: (span.to_us - span.from_us) as f64 / 1e6,
            callers: evidence.load.connections - 1,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            machine_load_before: evidence.machine_load_before,
            machine_load_after: machine_load(),
            optimized: !cfg!(debug_assertions),
            bounds,
            http: judgement.http,
            library: judgement.library,
            added: judgement.added,
            memory: judgement.memory,
            killed: judgement.killed,
            said: evidence.said.clone(),
            not_tried,
            pass: judgement.because.is_empty(),
            because: judgement.because,
        }
    }

    pub fn for_people(&self) -> String {
        let Self { rule, added, killed, bounds, .. } = self;
        let rate = 1e6 / rule.interval_us as f64;
        let load = |load: Option<f64>| load.map_or("unknown".to_owned(), |load| format!("{load:.1}"));
        let mut lines = vec![
            format!(
                "{} callers a side for {:.0} s; a slot each {} us ({rate:.1} a second), {} allowed in any {} ms",
                self.callers,
                self.seconds,
                rule.interval_us,
                rule.limit,
                rule.window_us / 1000
            ),
            format!(
                "{} cores, machine load {} before and {} after; built {}",
                self.cores,
                load(self.machine_load_before),
                load(self.machine_load_after),
                if self.optimized { "as for use" } else { "for tests" }
            ),
            String::new(),
            format!("{:<26}{:>12}{:>12}{:>12}", "", "HTTP", "library", "added"),
        ];
        let (http, library) = (&self.http, &self.library);
        let row = |name: &str, of: fn(&Side) -> f64, added: Option<f64>| {
            let added = added.map_or(String::new(), |added| format!("{added:>12.2}"));
            format!("{name:<26}{:>12.2}{:>12.2}{added}", of(http), of(library))
        };
        lines.extend([
            row("sends a second", |side| side.sends_per_s, None),
            row("use, %", |side| 100.0 * side.used, None),
            row("gone p50, ms", |side| side.gone_p50_ms, Some(added.p50_ms)),
            row("gone p99, ms", |side| side.gone_p99_ms, Some(added.p99_ms)),
            row("gone most, ms", |side| side.gone_max_ms, None),
            row("a free slot p50, ms", |side| side.free_p50_ms, Some(added.free_p50_ms)),
            row("a free slot p99, ms", |side| side.free_p99_ms, Some(added.free_p99_ms)),
            row("waited p50, ms", |side| side.waited_p50_ms, None),
            row("waited p99, ms", |side| side.waited_p99_ms, None),
            row("a plain timer late p99, ms", |side| side.timer_late_p99_ms, None),
            row("... most, ms", |side| side.timer_late_max_ms, None),
            row("late, % of answers", |side| 100.0 * side.late_share, None),
        ]);
        let counted = |name: &str, of: fn(&Side) -> u64| format!("{name:<26}{:>12}{:>12}", of(http), of(library));
        lines.extend([
            counted("worst window", |side| side.worst_window),
            counted("windows over the limit", |side| side.over_limit_windows),
            counted("refused, due", |side| side.refusals.values().sum::<u64>() - side.refusals_not_due),
            counted("refused, not due", |side| side.refusals_not_due),
            format!("p99 over HTTP less the library's median: {:.2} ms", added.over_median_p99_ms),
            String::new(),
        ]);
        let not_due = http.not_due.iter().chain(&library.not_due);
        lines.extend(not_due.map(|refusal| {
            let ms = |us: u64| us as f64 / 1000.0;
            format!(
                "not due: {} after {:.1} of {:.0} ms, to come back in {:.1}",
                refusal.code,
                ms(refusal.waited_us),
                ms(refusal.max_wait_us),
                ms(refusal.retry_after_us.unwrap_or(0))
            )
        }));
        lines.extend(self.memory.iter().map(|memory| {
            let slope = match bounds.most_growth_mib {
                Some(_) => format!("{:+.2} in 10 minutes by the slope", memory.slope_mib_per_10_min),
                None => "too short for a slope".to_owned(),
            };
            format!(
                "the service: {:.1} % of a core; {:.1} MiB after {:.0} s, {:.1} in the end, {:.1} at most, {slope}; {} to {} \
                 descriptors ({} at most), {} to {} threads",
                memory.cpu_percent,
                memory.first_mib,
                memory.warm_up_s,
                memory.last_mib,
                memory.most_mib,
                memory.first_descriptors,
                memory.last_descriptors,
                memory.most_descriptors,
                memory.first_threads,
                memory.last_threads
            )
        }));
        lines.extend([
            format!(
                "one of two killed: worst window {} of {}, {} over; refusals {}; of the survivor's callers {} broken, longest \
                 pause {:.0} ms ({:.0} before), longest wait {:.0} ms ({:.0} before)",
                killed.worst_window,
                rule.limit,
                killed.over_limit_windows,
                counts(&killed.refusals),
                killed.survivors_broken,
                killed.survivors_longest_pause_ms,
                killed.survivors_longest_pause_before_ms,
                killed.survivors_waited_most_ms,
                killed.survivors_waited_most_before_ms
            ),
            format!(
                "of the other's callers {} broken, the last had a slot again after {}; {} slots lost ({} unused in the 3 s after, {} \
                 in the 3 s before), {} were at stake",
                killed.others_broken,
                killed.others_carry_on_ms.map_or("never".to_owned(), |ms| format!("{ms:.0} ms")),
                killed.slots_lost,
                killed.slots_unused_after,
                killed.slots_unused_before,
                killed.slots_at_stake
            ),
            format!(
                "asked for: added p50 <= {} ms and p99 <= {} ms, use >= {} %, late <= {} %, pause <= {} ms, carry on within {} ms, {} slots lost besides",
                bounds.most_added_p50_ms,
                bounds.most_added_p99_ms,
                100.0 * bounds.least_use,
                100.0 * bounds.most_late_share,
                bounds.most_pause_ms,
                bounds.most_carry_on_ms,
                bounds.most_slots_lost
            ),
        ]);
        lines.extend(self.said.iter().take(SHOWN).map(|line| format!("a service said: {line}")));
        lines.push(if self.pass { "pass".to_owned() } else { format!("FAIL: {}", self.because.join("; ")) });
        lines.join("\n")
    }
}

fn counts(codes: &BTreeMap<String, u64>) -> String {
    if codes.is_empty() {
        return "none".to_owned();
    }
    codes.iter().map(|(code, count)| format!("{count} {code}")).collect::<Vec<_>>().join(", ")
}
