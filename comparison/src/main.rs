//! call-budget's breaker beside three published ones: the same scenarios, done to each. `scripts/compare` runs it.
//!
//! Usage: `comparison DATE MACHINE < what-the-bench-printed > page`.

mod cost;
mod listeners;
mod page;
mod scenarios;
mod subject;
mod subjects;
mod wall;
mod wrapped;

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use scenarios::{Cell, Finding, Scenario};
use subject::Kind;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(date), Some(machine)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: comparison DATE MACHINE < what-the-bench-printed > page");
        return ExitCode::from(2);
    };
    let mut bench = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut bench) {
        eprintln!("comparison: standard input: {error}");
        return ExitCode::FAILURE;
    }
    // What panics here is under observation: it is told in the table.
    std::panic::set_hook(Box::new(|_| {}));
    let mut rows = Vec::new();
    for scenario in &scenarios::ALL {
        let cells: Vec<Cell> = subjects::ALL.iter().map(|kind| undisturbed(scenario, *kind)).collect();
        let marks: Vec<_> = cells.iter().map(|cell| format!("{:?}", cell.finding)).collect();
        eprintln!("comparison: {}: {}", scenario.fault, marks.join(" "));
        rows.push(cells);
    }
    let too_dear = cost::too_dear(&bench);
    let page = page::write(&subjects::ALL, &rows, &page::Frame { date, machine, bench });
    print!("{}", page.expect("a string takes everything"));
    let blind: Vec<&str> = scenarios::ALL
        .iter()
        .zip(&rows)
        .filter(|(_, cells)| subjects::ALL.iter().zip(*cells).all(|(kind, cell)| !fails(*kind, cell)))
        .map(|(scenario, _)| scenario.fault)
        .collect();
    for fault in &blind {
        eprintln!("comparison: no control shows the fault, so the scenario proves nothing: {fault}");
    }
    for fault in &too_dear {
        eprintln!("comparison: {fault}");
    }
    if blind.is_empty() && too_dear.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether this is a control with the fault.
fn fails(kind: &dyn Kind, cell: &Cell) -> bool {
    kind.package().is_none() && cell.finding == Finding::Fault
}

/// The scenario's cell, from a run in which the machine was not away for long: real waits are short here.
fn undisturbed(scenario: &Scenario, kind: &dyn Kind) -> Cell {
    const AWAY: Duration = Duration::from_millis(25);
    const TRIES: usize = 3;
    for _ in 1..TRIES {
        let (began, slept) = (Instant::now(), wall::slept());
        let cell = observed(scenario, kind);
        if began.elapsed().saturating_sub(wall::slept() - slept) < AWAY {
            return cell;
        }
    }
    observed(scenario, kind)
}

fn observed(scenario: &Scenario, kind: &dyn Kind) -> Cell {
    catch_unwind(AssertUnwindSafe(|| (scenario.run)(kind))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Cell { finding: Finding::Fault, observed: format!("panicked: {}", said.unwrap_or("without a word")) }
    })
}
