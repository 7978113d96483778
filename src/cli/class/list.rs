use clap::Args;

use crate::cli::command_error::CommandError;
use crate::cli::database::Database;
use crate::cli::describe::floor;
use crate::cli::find;
use crate::cli::output::{print, print_json, short, table};
use crate::store::status;

/// List the classes of a budget, most important first
#[derive(Args)]
#[command(after_help = "Example: call-budget class list kis-real")]
pub struct List {
    /// The budget's name
    budget: String,
    /// Print JSON: an array of classes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: Database,
}

impl List {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        find::budget(&operation, &self.budget).await?;
        let classes = status::classes(&operation, Some(&self.budget)).await?;
        if self.json {
            print_json(&classes);
            return Ok(());
        }
        if classes.is_empty() {
            print(&format!("no class yet: \"call-budget class set {} CLASS --priority 0\" makes one", self.budget));
            return Ok(());
        }
        let mut rows = vec![["CLASS", "PRIORITY", "FLOOR"].map(str::to_owned).to_vec()];
        rows.extend(
            classes.iter().map(|class| vec![short(&class.name), class.priority.to_string(), floor(class.floor_ppm)]),
        );
        print(&table(&rows));
        Ok(())
    }
}
