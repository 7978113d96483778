//! What was to be reached, and whether this run did.

use std::time::Duration;

use serde::Serialize;

use super::cases::{Callers, Case, Commit, Subject};
use super::one_caller;
use super::rows::Row;
use super::shapes::Shape;
use crate::Outcome;
use crate::options::Options;
use crate::report::Report;

/// One caller's median wait, at most so many times that of the bare UPDATE.
const ONE_CALLER: f64 = 1.3;
/// Grants a second where the most callers wait, at least so many times those of the bare UPDATE.
const OVER_THE_FLOOR: f64 = 10.0;
/// Of the pace that the budgets allow: beyond, a figure is the pace's and not the store's.
const UNPACED: f64 = 0.8;

#[derive(Serialize)]
struct Goal {
    what: String,
    ratio: f64,
    goal: String,
    reached: &'static str,
}

pub fn show(rows: &[Row], options: &Options, interval: Duration, report: &mut Report) -> Outcome<()> {
    let find = |subject, callers| {
        let case = Case { subject, callers, keys: 1, commit: Commit::On };
        rows.iter().find(|row| row.case == case).ok_or_else(|| format!("no row of {}", case.in_words()))
    };
    let mut goals = Vec::new();
    for tasks in options.tasks().into_iter().rev() {
        let callers = Callers::Lanes { lanes: options.compared_lanes(), tasks };
        let (ours, crowd) = (find(Subject::Ours, callers)?, callers.in_words());
        let others = || rows.iter().filter(|row| is_compared(&row.case, callers));
        for row in others() {
            let (what, ratio) =
                (format!("{crowd}: grants/s over {}", row.subject), ours.grants_per_s / row.grants_per_s);
            let is_goal = row.case.subject.is_the_floor() && tasks == options.tasks()[1];
            let goal = if is_goal { OVER_THE_FLOOR } else { 1.0 };
            goals.push(Goal::more_than(what, ratio, goal));
        }
        for row in others().filter(|row| row.case.is_durable()) {
            let goal = Goal::at_most(format!("{crowd}: p99 over {}", row.subject), ours.p99_ms / row.p99_ms, 1.0);
            // Ours is then only known to be no shorter.
            let reached = if ours.never_served > 0 { "not shown" } else { goal.reached };
            goals.push(Goal { reached, ..goal });
        }
    }
    report.table("peers_goals", "Goals:", &["what", "ratio", "goal", "reached"], &goals)?;

    let pace = 1.0 / interval.as_secs_f64();
    let ours = rows.iter().filter(|row| row.case.subject == Subject::Ours);
    for row in ours.filter(|row| row.grants_per_s > UNPACED * pace) {
        println!("{}: paced by its budget at {pace:.0} a second, the store can do more", row.case.in_words());
    }
    Ok(())
}

/// The same of one caller, whose ratios are medians of runs.
pub fn show_one_caller(rows: &[one_caller::Row], report: &mut Report) -> Outcome<()> {
    let mut ours = rows.iter().filter(|row| row.subject == Subject::Ours.name() && row.commit == Commit::On.name());
    let ours = ours.next().ok_or("no row of one caller")?;
    let floors = [(Shape::Bare, ours.over_sent_as_ours), (Shape::BarePrepared, ours.over_prepared)];
    let goals = floors.map(|(shape, ratio)| Goal::at_most(format!("p50 over {}", shape.name()), ratio, ONE_CALLER));
    report.table("peers_one_caller_goals", "Goals, one caller:", &["what", "ratio", "goal", "reached"], &goals)
}

/// What stands beside ours with as many callers. What Python drives has a cost of its own.
fn is_compared(case: &Case, callers: Callers) -> bool {
    let other = !matches!(case.subject, Subject::Ours | Subject::Pyrate);
    other && case.callers == callers && case.keys == 1 && case.commit == Commit::On
}

impl Goal {
    fn at_most(what: String, ratio: f64, goal: f64) -> Self {
        Self { what, ratio, goal: format!("<= {goal}"), reached: mark(ratio <= goal) }
    }

    fn more_than(what: String, ratio: f64, goal: f64) -> Self {
        let (sign, reached) = if goal > 1.0 { (">=", ratio >= goal) } else { (">", ratio > goal) };
        Self { what, ratio, goal: format!("{sign} {goal}"), reached: mark(reached) }
    }
}

fn mark(reached: bool) -> &'static str {
    if reached { "pass" } else { "FAIL" }
}
