use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::bound;
use super::command_error::CommandError;
use super::database::Database;
use super::describe::{floor, per_second};
use super::duration::friendly;
use super::find;
use super::output::{print, print_json, short, table};
use crate::store::report::View;

/// Explain a budget in numbers: what is safe, what it gives, who can starve
#[derive(Args)]
#[command(after_help = "Example: call-budget explain kis-real")]
pub struct Explain {
    /// The budget's name
    budget: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: Database,
}

/// The bound in numbers. Rates are for calls of cost 1.
#[derive(Serialize)]
struct Explanation {
    budget: String,
    limit: i32,
    max_cost: i32,
    window_us: i64,
    send_window_us: i64,
    arrival_jitter_us: i64,
    interval_us: i64,
    /// (limit - max_cost + 1) * interval
    room_us: i64,
    /// window + send window + arrival jitter
    spread_us: i64,
    /// The room must be more than this: the spread and a thousandth.
    spread_with_clocks_us: i64,
    safe: bool,
    safe_interval_us: Option<i64>,
    /// The most units that a closed window of any kind can hold.
    worst_window: u64,
    rate_per_s: f64,
    vendor_rate_per_s: f64,
    share_of_vendor_rate: f64,
    /// From lowering the limit until nothing granted under the old one counts in any window.
    lowered_limit_in_force_after_us: i64,
    classes: Vec<ClassExplanation>,
}

#[derive(Serialize)]
struct ClassExplanation {
    name: String,
    priority: i32,
    floor_ppm: i32,
    /// What the floor guarantees while there is demand.
    floor_per_s: f64,
    can_starve: bool,
}

impl Explain {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        let budget = find::budget(&operation, &self.budget).await?;
        let explanation = Explanation::of(&View::of(&operation, budget).await?);
        match self.json {
            true => print_json(&explanation),
            false => print(&explanation.text()),
        }
        Ok(())
    }
}

impl Explanation {
    fn of(view: &View) -> Explanation {
        let settings = view.budget.settings;
        let spread_us = settings.window_us + settings.send_window_us + settings.arrival_jitter_us;
        let rate_per_s = 1e6 / settings.interval_us as f64;
        let vendor_rate_per_s = f64::from(settings.limit) * 1e6 / settings.window_us as f64;
        let alone = view.classes.len() == 1;
        Explanation {
            budget: view.budget.name.clone(),
            limit: settings.limit,
            max_cost: settings.max_cost,
            window_us: settings.window_us,
            send_window_us: settings.send_window_us,
            arrival_jitter_us: settings.arrival_jitter_us,
            interval_us: settings.interval_us,
            room_us: i64::from(settings.limit - settings.max_cost + 1).saturating_mul(settings.interval_us),
            spread_us,
            spread_with_clocks_us: spread_us + spread_us / 1000,
            safe: bound::is_safe(&settings),
            safe_interval_us: bound::safe_interval_us(&settings),
            worst_window: bound::limit(&settings)
                .worst_window(Duration::from_micros(settings.interval_us.unsigned_abs())),
            rate_per_s,
            vendor_rate_per_s,
            share_of_vendor_rate: rate_per_s / vendor_rate_per_s,
            lowered_limit_in_force_after_us: settings.window_us + settings.lookahead_us + settings.send_window_us,
            classes: view
                .classes
                .iter()
                .map(|view| ClassExplanation {
                    name: view.class.name.clone(),
                    priority: view.class.priority,
                    floor_ppm: view.class.floor_ppm,
                    floor_per_s: rate_per_s * f64::from(view.class.floor_ppm) / 1e6,
                    can_starve: view.class.floor_ppm == 0 && !alone,
                })
                .collect(),
        }
    }

    fn text(&self) -> String {
        let line = |name: &str, value: String| vec![name.to_owned(), value];
        let Explanation { limit, max_cost, .. } = self;
        let safe = match self.safe_interval_us {
            Some(safe) if safe < self.interval_us => {
                format!("from an interval of {}: the present one is slower", friendly(safe))
            }
            Some(safe) => format!("from an interval of {}: the present one is the shortest", friendly(safe)),
            None => "at no interval".to_owned(),
        };
        let lines = table(&[
            line("limit", format!("{limit} units in any closed window of {}", friendly(self.window_us))),
            line(
                "room",
                format!("(limit {limit} - largest cost {max_cost} + 1) * interval {}", friendly(self.interval_us)),
            ),
            line("", format!("= {}", friendly(self.room_us))),
            line(
                "must exceed",
                format!(
                    "window {} + send window {} + jitter {}",
                    friendly(self.window_us),
                    friendly(self.send_window_us),
                    friendly(self.arrival_jitter_us)
                ),
            ),
            line(
                "",
                format!(
                    "= {}, {} with 0.1 % for clocks",
                    friendly(self.spread_us),
                    friendly(self.spread_with_clocks_us)
                ),
            ),
            line("safe", safe),
            line("worst window", format!("{} units of {limit}", self.worst_window)),
            line(
                "rate",
                format!(
                    "{}, {:.1}% of the vendor's {}",
                    per_second(self.rate_per_s),
                    self.share_of_vendor_rate * 100.0,
                    per_second(self.vendor_rate_per_s)
                ),
            ),
            line(
                "lowering it",
                format!(
                    "is in force after {}: lower it here before the vendor does",
                    friendly(self.lowered_limit_in_force_after_us)
                ),
            ),
        ]);
        format!("budget {:?}\n{lines}\n\n{}", self.budget, self.class_table())
    }

    fn class_table(&self) -> String {
        if self.classes.is_empty() {
            return format!("no class yet: \"call-budget class set {} CLASS --priority 0\" makes one", self.budget);
        }
        let mut rows = vec![["CLASS", "PRIORITY", "FLOOR", "GUARANTEED", ""].map(str::to_owned).to_vec()];
        rows.extend(self.classes.iter().map(|class| {
            vec![
                short(&class.name),
                class.priority.to_string(),
                floor(class.floor_ppm),
                if class.floor_ppm == 0 { "-".to_owned() } else { per_second(class.floor_per_s) },
                if class.can_starve { "can starve: it has no floor".to_owned() } else { String::new() },
            ]
        }));
        table(&rows)
    }
}
