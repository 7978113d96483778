//! What became of the callers of two services of which one was killed. Pure.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::judge::{Bounds, Kill, Rule, S, Span, by_code};
use crate::notes::Send;
use crate::windows::Times;

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
    /// What one service can take along: slots that are promised, or handed out and not read; and those that others leave to
    /// it until its appointment is over.
    pub slots_at_stake: u64,
}

/// Before and after the kill.
const AROUND_US: u64 = 3 * S;

impl Killed {
    pub fn of(rule: &Rule, kill: &Kill) -> Self {
        let Kill { span, killed_us, callers, notes } = kill;
        let stays = |caller: u32| caller.is_multiple_of(2);
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
        Self {
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
            slots_at_stake: 2 * (rule.lookahead_us + rule.send_window_us) / rule.interval_us,
        }
    }

    /// What stands against it.
    pub fn against(&self, rule: &Rule, bounds: &Bounds, because: &mut Vec<String>) {
        if self.over_limit_windows > 0 {
            because.push(format!(
                "around the kill {} windows held more than {} calls",
                self.over_limit_windows, rule.limit
            ));
        }
        if !self.refusals.is_empty() {
            because.push(format!("around the kill callers were refused: {:?}", self.refusals));
        }
        if self.survivors_broken > 0 {
            because.push(format!("{} connections to the service that stayed were broken", self.survivors_broken));
        }
        if self.others_broken == 0 {
            because.push("the kill broke no connection: it did not bite".into());
        }
        if self.survivors_longest_pause_ms > bounds.most_pause_ms {
            because.push(format!(
                "the callers of the service that stayed paused for {:.0} ms, {:.0} may be",
                self.survivors_longest_pause_ms, bounds.most_pause_ms
            ));
        }
        match self.others_carry_on_ms {
            None => because.push("not every caller of the killed service had a slot again".into()),
            Some(ms) if ms > bounds.most_carry_on_ms => because.push(format!(
                "the last caller of the killed service had a slot after {ms:.0} ms, {:.0} may be",
                bounds.most_carry_on_ms
            )),
            Some(_) => {}
        }
        let most = self.slots_at_stake + bounds.most_slots_lost;
        if self.slots_lost > most {
            because.push(format!("{} slots were lost in the 3 s after the kill, {most} may be", self.slots_lost));
        }
    }
}

/// Between two sends of them all, the span's ends among them.
fn longest_pause_ms(sends: &[&Send], span: Span) -> f64 {
    let mut times: Vec<u64> = sends.iter().map(|send| send.at_us).filter(|at_us| span.holds(*at_us)).collect();
    times.extend([span.from_us, span.to_us]);
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as f64 / 1000.0
}
