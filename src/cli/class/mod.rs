//! `call-budget class ...`: who may go first inside a budget.

mod delete;
mod list;
mod set;

use clap::Subcommand;

use super::command_error::CommandError;

/// Show and change classes: who may go first inside a budget.
#[derive(Subcommand)]
pub enum Class {
    Set(set::Set),
    List(list::List),
    Delete(delete::Delete),
}

impl Class {
    pub async fn run(self) -> Result<(), CommandError> {
        match self {
            Class::Set(command) => command.run().await,
            Class::List(command) => command.run().await,
            Class::Delete(command) => command.run().await,
        }
    }
}
