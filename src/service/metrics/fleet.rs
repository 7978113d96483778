//! What the store told of all processes together, as families. Every service that shares the store tells the same.

use std::collections::BTreeMap;
use std::time::Duration;

use super::family::Family;
use crate::store::report::{Report, View};

/// `age`: how long ago it was told. What is left of something is reckoned to now.
pub fn families(report: &Report, age: Duration) -> Vec<Family> {
    let mut told = Family::gauge("call_budget_status_age_seconds", "How old the figures of the fleet are.");
    told.add([], age.as_secs_f64());
    let mut families = vec![told];
    families.extend(of_budgets(&report.budgets, age));
    families.extend(of_classes(&report.budgets, age));
    let mut breakers = Family::gauge(
        "call_budget_fleet_breakers",
        "Processes that show this breaker in this state; what is older than a minute is left out.",
    );
    let mut processes = BTreeMap::<_, u32>::new();
    for breaker in report.breakers.iter().filter(|breaker| !breaker.stale) {
        *processes.entry((&breaker.breaker, &breaker.state)).or_default() += 1;
    }
    for ((breaker, state), processes) in processes {
        breakers.add([("breaker", breaker), ("state", state)], f64::from(processes));
    }
    families.push(breakers);
    families
}

fn of_budgets(budgets: &[View], age: Duration) -> Vec<Family> {
    let mut interval = Family::gauge("call_budget_interval_seconds", "The distance between two slots of cost 1.");
    let mut paused = Family::gauge("call_budget_paused", "1 while the budget is paused.");
    let mut pushed_back = Family::gauge("call_budget_pushed_back_seconds", "What is left of a pushback, else 0.");
    let mut fenced = Family::gauge("call_budget_fenced_seconds", "What is left of a fence, else 0.");
    let mut fences = Family::counter("call_budget_fences", "Fences of the budget since it was made.");
    for View { budget: one, .. } in budgets {
        let budget = ("budget", &*one.name);
        interval.add([budget], micros(one.settings.interval_us).as_secs_f64());
        paused.add([budget], f64::from(u8::from(one.paused)));
        pushed_back.add([budget], micros(one.blocked_for_us).saturating_sub(age).as_secs_f64());
        fenced.add([budget], micros(one.fenced_for_us).saturating_sub(age).as_secs_f64());
        fences.add([budget], times(one.fences));
    }
    vec![interval, paused, pushed_back, fenced, fences]
}

fn of_classes(budgets: &[View], age: Duration) -> Vec<Family> {
    let mut granted = Family::counter("call_budget_class_granted", "Slots granted to the class, whoever asked.");
    let mut floor = Family::gauge("call_budget_class_floor_ratio", "The share that the class is guaranteed, 0 to 1.");
    let mut lanes = Family::gauge("call_budget_waiting_lanes", "Lanes of the class that wait at the store.");
    let mut units = Family::gauge("call_budget_waiting_units", "Units that they wait for.");
    let mut last = Family::gauge(
        "call_budget_last_slot_age_seconds",
        "Since the last slot of the class, 0 while that is ahead; none before the first.",
    );
    for View { budget: one, classes } in budgets {
        let budget = ("budget", &*one.name);
        for class in classes.iter().map(|class| &class.class) {
            let name = ("class", &*class.name);
            granted.add([budget, name], times(class.granted));
            floor.add([budget, name], f64::from(class.floor_ppm) / 1e6);
            lanes.add([budget, name], class.waiting_lanes as f64);
            units.add([budget, name], class.waiting_units as f64);
            if let Some(age_us) = class.last_slot_age_us {
                last.add([budget, name], ((age_us as f64) / 1e6 + age.as_secs_f64()).max(0.0));
            }
        }
    }
    vec![granted, floor, lanes, units, last]
}

fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

fn times(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
