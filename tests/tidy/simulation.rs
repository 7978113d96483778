//! The simulation of a fleet runs the product's own code.

use std::collections::BTreeSet;

use crate::none;
use crate::text::{self, files, read};

/// The functions that a text defines.
fn defined(text: &str) -> BTreeSet<String> {
    let code = text::code(text);
    let names =
        code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    names.map(|(at, _)| text::first_identifier(&code[at + 3..]).to_owned()).filter(|name| !name.is_empty()).collect()
}

/// What the simulation must take from the product, and what it defines although the product's scheduling does.
fn second_implementation(simulation: &str, scheduling: &BTreeSet<String>) -> Vec<String> {
    // A constructor, and a call of the seam that the simulation stands behind.
    let anybodys = ["new", "fence"];
    let missing = ["CallBudget::with_store(", "Scheduler::new(", "scheduler.reserve("].into_iter();
    let missing = missing.filter(|own| !text::code(simulation).contains(own)).map(|own| format!("does without {own})"));
    let doubles =
        defined(simulation).into_iter().filter(|name| scheduling.contains(name) && !anybodys.contains(&&**name));
    missing.chain(doubles.map(|name| format!("defines fn {name} itself"))).collect()
}

#[test]
fn the_simulation_runs_the_products_own_scheduling_and_has_none_of_its_own() {
    let modules = ["outage", "round_trip", "send_window", "spacing", "step_fence", "store_clock"];
    let mut places: Vec<String> = modules.iter().map(|name| format!("src/policy/{name}.rs")).collect();
    places.push("src/store/memory/scheduler.rs".into());
    let own = |place: &String| read(place).split("#[cfg(test)]").next().map(defined).unwrap_or_default();
    let scheduling: BTreeSet<String> = places.iter().flat_map(own).collect();
    let simulation: String = files(&["tests/simulation"], "rs").into_iter().map(|file| file.text).collect();
    none(second_implementation(&simulation, &scheduling));
    assert!(
        ["reserve", "decide", "of_slot", "answered"].iter().all(|name| scheduling.contains(*name)),
        "{scheduling:?}"
    );
    let sample = "fn main() { Scheduler::new(settings); scheduler.reserve(call, now) }\nfn decide() {} // fn grant()";
    assert_eq!(second_implementation(sample, &scheduling).len(), 2);
}
