use clap::Args;

use super::command_error::CommandError;
use super::database::Database;
use super::duration::friendly;
use super::find;
use super::output::print;
use crate::store::admin;

/// Keeps one quiet moment by hand: run it after a restore of data only, which the schema cannot see
///
/// Nothing starts before every slot that may have been forgotten is over.
#[derive(Args)]
#[command(after_help = "Example: call-budget fence kis-real")]
pub struct Fence {
    /// The budget's name
    budget: String,
    #[command(flatten)]
    database: Database,
}

impl Fence {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        find::budget(&operation, &self.budget).await?;
        let quiet = admin::fence(&operation, &self.budget).await?;
        operation.commit().await?;
        print(&format!("budget {:?} is fenced: nothing new starts for {}", self.budget, friendly(quiet)));
        Ok(())
    }
}
