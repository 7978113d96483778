//! The page: versions from the lock file, the table, what was observed.

use std::fmt::{self, Write};

use crate::scenarios::{self, Cell, Finding};
use crate::subject::Kind;

const LOCK: &str = include_str!("../Cargo.lock");

/// What stands around the table.
pub struct Frame {
    pub date: String,
    pub machine: String,
    /// As the bench printed it.
    pub bench: String,
}

/// `rows[i][j]`: scenario i, breaker j.
pub fn write(kinds: &[&dyn Kind], rows: &[Vec<Cell>], frame: &Frame) -> Result<String, fmt::Error> {
    let mut page = String::new();
    writeln!(page, "# Beside other breakers\n")?;
    writeln!(page, "Written by `scripts/compare`, which repeats it all: {}, {}.\n", frame.date, frame.machine)?;
    writeln!(
        page,
        "Known faults of circuit breakers, each as a scenario that is written once and done to each breaker as published. A \
         state is judged by what callers get, never by what a breaker says of itself. The two controls are no crates: they \
         have to fail, so that each scenario is seen to find its fault; a run in which one finds it nowhere is an error. \
         Times are real (the open wait is 120 ms) except for ours, whose clock the scenario moves. A breaker that lets everybody \
         through in half-open passes the rows about one cancelled or hung probe for that reason alone. The other crates are good \
         at more than is asked here; what is asked is what this library needs.\n"
    )?;
    let head = kinds.iter().map(|kind| match kind.package() {
        Some(package) => format!("{} {}", kind.name(), version(package)),
        None => kind.name().to_owned(),
    });
    writeln!(page, "| fault | {} |", head.collect::<Vec<_>>().join(" | "))?;
    writeln!(page, "|{}", " --- |".repeat(kinds.len() + 1))?;
    for (scenario, cells) in scenarios::ALL.iter().zip(rows) {
        let marks: Vec<&str> = cells.iter().map(|cell| mark(cell.finding)).collect();
        writeln!(page, "| {} | {} |", scenario.fault, marks.join(" | "))?;
    }
    writeln!(page, "\n## How each was asked\n")?;
    for kind in kinds {
        let package = kind.package().map_or(String::new(), |package| format!(" (`{package}` {})", version(package)));
        writeln!(page, "- **{}**{package}: {}", kind.name(), kind.expressed())?;
    }
    writeln!(page, "\n## What was observed")?;
    for (scenario, cells) in scenarios::ALL.iter().zip(rows) {
        writeln!(page, "\n**{}.** {}\n", capital(scenario.fault), scenario.done)?;
        for (kind, cell) in kinds.iter().zip(cells) {
            writeln!(page, "- {}: {}: {}", kind.name(), mark(cell.finding), cell.observed)?;
        }
    }
    writeln!(page, "\n## What a call costs\n")?;
    writeln!(
        page,
        "Leave and outcome together, closed, every outcome good, by divan in the release profile; \
         `t=1` is uncontended, `t=2` two threads on one breaker. Everything is as its crate offers it: `recloser` and \
         `failsafe` by their synchronous calls and by their futures, `tower-resilience` by its service, which boxes a future \
         (cloning the service is not counted). Streak: five in a row; rate: half of the last 20, but failsafe's, over 30 s.\n"
    )?;
    writeln!(page, "```text\n{}\n```", frame.bench.trim_end())?;
    Ok(page)
}

fn mark(finding: Finding) -> &'static str {
    match finding {
        Finding::Holds => "holds",
        Finding::Fault => "**fault**",
        Finding::NotApplicable => "n/a",
    }
}

fn version(package: &str) -> &'static str {
    let entry = format!("name = \"{package}\"\nversion = \"");
    let (_, rest) = LOCK.split_once(&entry).expect("the lock file names what is compared");
    rest.split('"').next().expect("split gives one piece at least")
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}
