use clap::Args;

use super::command_error::CommandError;
use super::database::Database;
use super::duration::friendly;
use super::find;
use super::output::print;
use crate::store::admin;

/// Keep one quiet moment by hand, after a restore of data only
///
/// Nothing starts before every slot that may have been forgotten is over. The
/// schema sees crashes, failovers and whole restores by itself.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = "Example: call-budget fence kis-real")]
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
