//! The figures of this process as families.

use super::family::Family;
use crate::{BreakerFigures, ClassFigures, Figures, StoreFigures, SurfaceFigures};

pub fn families(figures: &Figures) -> Vec<Family> {
    let Figures { classes, surfaces, breakers, store, process, .. } = figures;
    let mut families = of_classes(classes);
    families.extend(of_surfaces(surfaces));
    families.extend(of_breakers(breakers));
    families.extend(of_store(store));
    let mut stale = Family::counter("call_budget_stale_verdicts", "Verdicts that came after the breaker had moved on.");
    stale.add([], process.stale);
    let mut pushbacks =
        Family::counter("call_budget_pushbacks", "Reports to the store that a vendor said too many, by outcome.");
    pushbacks.add([("outcome", "ok")], process.pushbacks.saturating_sub(process.pushback_failures));
    pushbacks.add([("outcome", "failed")], process.pushback_failures);
    let mut steps = Family::counter("call_budget_clock_steps", "Steps of the store's clock that were seen.");
    steps.add([], process.clock_steps);
    let mut fences = Family::counter("call_budget_fence_requests", "Fences that were asked for after such a step.");
    fences.add([], process.fence_requests);
    families.extend([stale, pushbacks, steps, fences]);
    families
}

fn of_classes(classes: &[ClassFigures]) -> Vec<Family> {
    let mut grants = Family::counter("call_budget_grants", "Slots that came with answers of the store.");
    let mut permits = Family::counter("call_budget_permits", "Permits handed out.");
    let mut sends =
        Family::counter("call_budget_sends", "Permits that were started, by the surface on whose behalf, if any.");
    let mut refusals = Family::counter("call_budget_refusals", "Acquires that ended with an error, by its code.");
    let mut dropped = Family::counter("call_budget_dropped", "Slots that came and were not handed out, by reason.");
    let mut lost = Family::counter(
        "call_budget_lost",
        "At most this many slots were spent on store calls whose answer never came.",
    );
    let mut lapsed = Family::counter("call_budget_lapsed", "Permits that were never used.");
    let mut waits = Family::histogram(
        "call_budget_wait_seconds",
        "From the entry of an acquire to its return, where it brought a permit.",
    );
    for figures in classes {
        let (budget, class) = (("budget", &*figures.budget), ("class", &*figures.class));
        grants.add([budget, class], figures.granted);
        permits.add([budget, class], figures.permits);
        for (surface, times) in &figures.sends {
            sends.add([budget, class, ("surface", surface)], *times);
        }
        for (code, times) in &figures.refusals {
            refusals.add([budget, class, ("code", code.as_str())], *times);
        }
        for (reason, times) in [
            ("round_trip", figures.dropped.round_trip),
            ("late", figures.dropped.late),
            ("unwanted", figures.dropped.unwanted),
            ("clock_step", figures.dropped.clock_step),
        ] {
            dropped.add([budget, class, ("reason", reason)], times);
        }
        lost.add([budget, class], figures.lost);
        lapsed.add([budget, class], figures.lapsed);
        waits.add([budget, class], &figures.waits);
    }
    vec![grants, permits, sends, refusals, dropped, lost, lapsed, waits]
}

fn of_surfaces(surfaces: &[SurfaceFigures]) -> Vec<Family> {
    let mut calls = Family::counter("call_budget_calls", "Calls of a surface, whatever became of them.");
    let mut attempts = Family::counter("call_budget_attempts", "Attempts of such calls that began.");
    let mut refused = Family::counter(
        "call_budget_call_refusals",
        "Attempts that were refused before anything was spent, by breaker or hold.",
    );
    let mut verdicts = Family::counter("call_budget_verdicts", "Attempts by what they said of the vendor.");
    let mut throttled =
        Family::counter("call_budget_throttled", "How often the vendor said too many, by its own code.");
    for figures in surfaces {
        let surface = ("surface", &*figures.surface);
        calls.add([surface], figures.calls);
        attempts.add([surface], figures.sends);
        refused.add([surface, ("reason", "breaker")], figures.refused_by_breaker);
        refused.add([surface, ("reason", "hold")], figures.refused_by_hold);
        verdicts.add([surface, ("verdict", "good")], figures.verdicts_good);
        verdicts.add([surface, ("verdict", "bad")], figures.verdicts_bad);
        verdicts.add([surface, ("verdict", "none")], figures.verdicts_none);
        for (code, times) in &figures.throttled {
            throttled.add([surface, ("code", code)], *times);
        }
    }
    vec![calls, attempts, refused, verdicts, throttled]
}

fn of_breakers(breakers: &[BreakerFigures]) -> Vec<Family> {
    let mut states = Family::gauge("call_budget_breaker_state", "1 for the state that the breaker is in here, else 0.");
    let mut transitions =
        Family::counter("call_budget_breaker_transitions", "How often the breaker changed into this state here.");
    let mut episodes = Family::counter("call_budget_episodes", "Episodes of the breaker that have ended here.");
    for figures in breakers {
        let breaker = ("breaker", &*figures.breaker);
        for (state, times) in &figures.transitions {
            states.add([breaker, ("state", state.as_str())], f64::from(u8::from(*state == figures.state)));
            transitions.add([breaker, ("state", state.as_str())], *times);
        }
        episodes.add([breaker], figures.episodes);
    }
    vec![states, transitions, episodes]
}

fn of_store(store: &StoreFigures) -> Vec<Family> {
    let mut calls = Family::histogram(
        "call_budget_store_call_seconds",
        "Store calls by the stage in which they ended, which is query where they were answered.",
    );
    for one in &store.calls {
        let outcome = if one.answered { "ok" } else { "failed" };
        calls.add([("stage", one.stage.as_str()), ("outcome", outcome)], &one.took);
    }
    let mut outage = Family::counter(
        "call_budget_outage_seconds",
        "For how long the store failed: from a first call that failed to the next one that was answered.",
    );
    outage.add([], store.outage);
    let mut failing = Family::gauge("call_budget_store_failing", "1 while store calls of callers fail.");
    failing.add([], f64::from(u8::from(store.failing)));
    vec![calls, outage, failing]
}
