//! One line a check, and what repeats a failure.

use crate::checks::{Name, Tally};
use crate::faults::Kind;
use crate::options::Options;
use crate::runs::Run;

/// As many failing seeds as are named.
const NAMED: usize = 20;

/// Prints the report. Whether every check holds.
pub fn print(run: &Run, options: &Options) -> bool {
    let partial = options.one.is_some() || run.cut_short;
    let faults = partial || run.missing().is_empty();
    let holds = faults && Name::ALL.iter().all(|name| passes(run.tallies.of(*name), partial));
    if options.json {
        println!("{}", json(run, holds));
        return holds;
    }
    println!(
        "seeds from {}: {} played, {} sends, {} events, {:.1} s",
        run.from,
        run.seeds,
        run.sends,
        run.events,
        run.took.as_secs_f64()
    );
    println!("{}", faults_line(run, faults));
    for name in Name::ALL {
        println!("{}", line(name, run.tallies.of(name), partial));
    }
    for seed in run.failing.iter().take(NAMED) {
        println!("repeat: cargo test --test simulation -- --seed {seed} --trace");
    }
    if run.failing.len() > NAMED {
        println!("and {} seeds more", run.failing.len() - NAMED);
    }
    holds
}

/// A check that had nothing to look at proves nothing: only one seed alone, or a run that was cut short by the failure of
/// another check, may leave some out.
fn passes(tally: &Tally, partial: bool) -> bool {
    tally.failed == 0 && (partial || tally.counted > 0)
}

/// A kind that never happened was not tried, whatever the plans say.
fn faults_line(run: &Run, holds: bool) -> String {
    let (all, kinds) = (run.happened.values().sum::<u64>(), run.happened.len());
    let word = if holds { "ok" } else { "FAILED" };
    let mut line = format!("{word:<7} {:<12} {all} happened of {} planned, of {kinds} kinds", "faults", run.planned);
    if !holds {
        let missing: Vec<&str> = run.missing().into_iter().map(Kind::as_str).collect();
        line += &format!("; never: {}", missing.join(", "));
    }
    line
}

fn line(name: Name, tally: &Tally, partial: bool) -> String {
    let Tally { counted, excused, failed, first, after, worst } = tally;
    let word = match passes(tally, partial) {
        true if *counted == 0 => "-",
        true => "ok",
        false => "FAILED",
    };
    let mut line = format!("{word:<7} {:<12} {counted} {}", name.as_str(), name.counted());
    if *excused > 0 {
        line += &format!(", {excused} covered by a stated residual");
    }
    if let Some(worst) = worst {
        line += &format!(", worst {worst:.3}");
    }
    if let Some(first) = first {
        let after = after.unwrap_or_default().as_secs_f64();
        line += &format!("; {failed} failed, the first after {after:.1} s: {first}");
    } else if *counted == 0 && word == "FAILED" {
        line += ": nothing to look at";
    }
    line
}

fn json(run: &Run, holds: bool) -> serde_json::Value {
    let checks: serde_json::Map<String, serde_json::Value> = Name::ALL
        .iter()
        .map(|name| {
            let tally = run.tallies.of(*name);
            let one = serde_json::json!({
                "counted": tally.counted,
                "excused": tally.excused,
                "failed": tally.failed,
                "first": tally.first,
                "first_after_s": tally.after.map(|after| after.as_secs_f64()),
                "worst": tally.worst,
            });
            (name.as_str().to_owned(), one)
        })
        .collect();
    let kinds: serde_json::Map<String, serde_json::Value> = Kind::ALL
        .iter()
        .map(|kind| (kind.as_str().to_owned(), run.happened.get(kind).copied().unwrap_or(0).into()))
        .collect();
    let windows = run.tallies.of(Name::Windows);
    serde_json::json!({
        "from": run.from,
        "seeds": run.seeds,
        "sends": run.sends,
        "events": run.events,
        "faults": kinds,
        "faults_happened": run.happened.values().sum::<u64>(),
        "faults_planned": run.planned,
        "over_limit_windows": { "without_residuals": windows.failed, "with_residuals": windows.failed + windows.excused },
        "checks": checks,
        "failing_seeds": run.failing,
        "seconds": run.took.as_secs_f64(),
        "pass": holds,
    })
}
