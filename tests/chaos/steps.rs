//! Which windows over the limit a forward step of the store's clock explains. Pure.

use std::collections::HashSet;

use super::judge::{Evidence, Rule, Span};

/// A process that has called within this is warm: it knows the store's clock from before the step, and has to see it step.
const WARM_US: u64 = 60_000_000;

/// After a step forward the first calls of processes that know nothing of the time before may come early: as many as can be
/// out at once, while what had been promised before the step is under way. What is over the limit must be theirs.
pub fn explain(evidence: &Evidence, window: Span, too_many: u64) -> bool {
    let Rule { interval_us, lookahead_us, .. } = evidence.rule;
    let most = lookahead_us / interval_us + 1;
    too_many <= most
        && evidence.steps_us.iter().any(|at_us| {
            let after = Span { from_us: *at_us, to_us: at_us + evidence.rule.under_way_us() };
            window.touches(after) && too_many <= first_calls(evidence, window, *at_us)
        })
}

/// The window's arrivals after the step from processes that had not called for long.
fn first_calls(evidence: &Evidence, window: Span, step_us: u64) -> u64 {
    let before = step_us.saturating_sub(WARM_US)..step_us;
    let arrivals = || evidence.arrivals.iter();
    let warm: HashSet<u32> = arrivals().filter(|one| before.contains(&one.at_us)).map(|one| one.pid).collect();
    let after = step_us.max(window.from_us)..=window.to_us;
    arrivals().filter(|one| after.contains(&one.at_us) && !warm.contains(&one.pid)).count() as u64
}
