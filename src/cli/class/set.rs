use clap::Args;

use crate::cli::command_error::CommandError;
use crate::cli::database::Database;
use crate::cli::describe::floor;
use crate::cli::find;
use crate::cli::output::{print, print_json, short};
use crate::store::{admin, status};

/// Create a class or change it
///
/// Of an existing class, what is not given keeps its present value.
#[derive(Args)]
#[command(after_help = "Example: call-budget class set kis-real order --priority 0 --floor 0.25")]
pub struct Set {
    /// The budget's name
    budget: String,
    /// The class's name
    class: String,
    /// Who goes first: 0 is most important (a new class needs it)
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Guaranteed share: 0, or 0.001 to 1 (a new class: 0)
    #[arg(long, value_name = "SHARE", value_parser = parse_ppm, allow_negative_numbers = true)]
    floor: Option<i32>,
    /// Print JSON: the class
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: Database,
}

impl Set {
    pub async fn run(self) -> Result<(), CommandError> {
        let Set { budget, class, .. } = &self;
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        find::budget(&operation, budget).await?;
        let classes = status::classes(&operation, Some(budget)).await?;
        let present = classes.iter().find(|present| present.name == *class);
        let Some(priority) = self.priority.or(present.map(|present| present.priority)) else {
            let message = format!("budget {budget:?} has no class {class:?} yet, and a new one needs --priority");
            return Err(CommandError::usage(message).hint("0 is most important"));
        };
        let floor_ppm = self.floor.or(present.map(|present| present.floor_ppm)).unwrap_or(0);
        admin::class_set(&operation, budget, class, priority, floor_ppm)
            .await
            .map_err(|error| CommandError::of_setting(&format!("class {:?}", short(class)), error))?;
        let made = find::class(&operation, budget, class).await?;
        operation.commit().await?;
        match self.json {
            true => print_json(&made),
            false => print(&format!(
                "class {class:?} of budget {budget:?} {}: priority {priority}, floor {}",
                if present.is_some() { "set" } else { "created" },
                floor(floor_ppm)
            )),
        }
        Ok(())
    }
}

/// A share as parts per million: no more digits than the schema keeps, or a floor of almost nothing would become none.
fn parse_ppm(text: &str) -> Result<i32, String> {
    let share: f64 = text.parse().map_err(|_| "a floor is a share such as 0.1".to_owned())?;
    let ppm = share * 1e6;
    if ppm.is_nan() || ppm.abs() > f64::from(i32::MAX) {
        return Err("the floor is 0 or between 0.001 and 1".to_owned());
    }
    if (ppm - ppm.round()).abs() > 1e-6 {
        return Err("a floor has at most six digits behind the point".to_owned());
    }
    Ok(ppm.round() as i32)
}

#[cfg(test)]
mod tests {
    use super::parse_ppm;

    #[test]
    fn a_share_becomes_parts_per_million_exactly_or_is_refused() {
        assert_eq!(parse_ppm("0.1"), Ok(100_000));
        assert_eq!(parse_ppm("0.333333"), Ok(333_333));
        assert_eq!(parse_ppm("0.000001"), Ok(1));
        for text in ["", "a tenth", "NaN", "inf", "1e300", "0.1234567"] {
            assert!(parse_ppm(text).is_err(), "{text:?}");
        }
    }
}
