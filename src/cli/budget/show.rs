use clap::Args;

use super::Target;
use crate::cli::command_error::CommandError;
use crate::cli::describe;
use crate::cli::find;
use crate::cli::output::{print, print_json};
use crate::store::report::View;

/// Show one budget: its settings, its state and its classes
#[derive(Args)]
#[command(after_help = "Example: call-budget budget show kis-real")]
pub struct Show {
    #[command(flatten)]
    target: Target,
}

impl Show {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.target.database.connect().await?;
        let operation = connected.begin().await?;
        let budget = find::budget(&operation, &self.target.name).await?;
        let view = View::of(&operation, budget).await?;
        match self.target.json {
            true => print_json(&view),
            false => {
                print(&format!("{}\n{}\n{}", view.budget.name, describe::settings(&view), describe::activity(&view)))
            }
        }
        Ok(())
    }
}
