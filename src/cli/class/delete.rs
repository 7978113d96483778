use clap::Args;

use crate::cli::command_error::CommandError;
use crate::cli::database::Database;
use crate::cli::find;
use crate::cli::output::print;
use crate::store::admin;

/// Delete a class: from now on its callers are refused as unknown
///
/// Calls already granted still leave.
#[derive(Args)]
#[command(after_help = "Example: call-budget class delete kis-real eod")]
pub struct Delete {
    /// The budget's name
    budget: String,
    /// The class's name
    class: String,
    #[command(flatten)]
    database: Database,
}

impl Delete {
    pub async fn run(self) -> Result<(), CommandError> {
        let Delete { budget, class, .. } = &self;
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        find::budget(&operation, budget).await?;
        find::class(&operation, budget, class).await?;
        admin::class_delete(&operation, budget, class).await?;
        operation.commit().await?;
        print(&format!("class {class:?} of budget {budget:?} deleted"));
        Ok(())
    }
}
