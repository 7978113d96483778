//! `call-budget budget ...`: the limits and their settings.

mod delete;
mod drain;
mod list;
mod pause;
mod pushback;
mod set;
mod show;

use clap::{Args, Subcommand};

use super::command_error::CommandError;
use super::database::Database;
use super::find;
use super::output::{print, print_json};
use crate::store::operation::Operation;
use crate::store::report::View;

/// Show and change budgets: limits that processes share.
#[derive(Subcommand)]
pub enum Budget {
    Set(set::Set),
    List(list::List),
    Show(show::Show),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Drain(drain::Drain),
    Pushback(pushback::Pushback),
    Delete(delete::Delete),
}

impl Budget {
    pub async fn run(self) -> Result<(), CommandError> {
        match self {
            Budget::Set(command) => command.run().await,
            Budget::List(command) => command.run().await,
            Budget::Show(command) => command.run().await,
            Budget::Pause(command) => command.run().await,
            Budget::Resume(command) => command.run().await,
            Budget::Drain(command) => command.run().await,
            Budget::Pushback(command) => command.run().await,
            Budget::Delete(command) => command.run().await,
        }
    }
}

/// Which budget, where, and how to print.
#[derive(Args)]
pub struct Target {
    /// The budget's name
    #[arg(value_name = "BUDGET")]
    name: String,
    /// Print JSON: the budget and its classes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: Database,
}

impl Target {
    /// Commits, then says what was done, or with --json what the budget is now.
    async fn done(&self, operation: Operation<'_>, sentence: &str) -> Result<(), CommandError> {
        let view = match self.json {
            true => Some(View::of(&operation, find::budget(&operation, &self.name).await?).await?),
            false => None,
        };
        operation.commit().await?;
        match view {
            Some(view) => print_json(&view),
            None => print(sentence),
        }
        Ok(())
    }
}
