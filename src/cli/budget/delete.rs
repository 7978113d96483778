use clap::Args;

use crate::cli::command_error::CommandError;
use crate::cli::database::Database;
use crate::cli::find;
use crate::cli::output::print;
use crate::store::sqlstate::Meaning;
use crate::store::{admin, status};

/// Delete a budget with its classes, for good
#[derive(Args)]
#[command(after_help = "Example: call-budget budget delete kis-paper --yes")]
pub struct Delete {
    /// The budget's name
    #[arg(value_name = "BUDGET")]
    name: String,
    /// Really delete it
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    database: Database,
}

impl Delete {
    pub async fn run(self) -> Result<(), CommandError> {
        let name = &self.name;
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        find::budget(&operation, name).await?;
        if !self.yes {
            let classes = status::classes(&operation, Some(name)).await?;
            let waiting: i64 = classes.iter().map(|class| class.waiting_lanes).sum();
            let message = format!(
                "deleting budget {name:?} with its {} classes cannot be undone ({waiting} lanes wait in it now)",
                classes.len()
            );
            return Err(CommandError::usage(message).hint("repeat with --yes"));
        }
        admin::delete(&operation, name).await.map_err(|error| match error.meaning() {
            Meaning::Refused => CommandError::failed(error.to_string()),
            _ => error.into(),
        })?;
        operation.commit().await?;
        print(&format!("budget {name:?} deleted"));
        Ok(())
    }
}
