use clap::Args;

use crate::cli::command_error::CommandError;
use crate::cli::database::Database;
use crate::cli::describe::{rate, state};
use crate::cli::duration::friendly;
use crate::cli::output::{print, print_json, short, table};
use crate::store::status;

/// List the budgets
#[derive(Args)]
#[command(after_help = "Example: call-budget budget list --json")]
pub struct List {
    /// Print JSON: an array of budgets
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: Database,
}

impl List {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        let budgets = status::budgets(&operation, None).await?;
        if self.json {
            print_json(&budgets);
            return Ok(());
        }
        if budgets.is_empty() {
            print("no budget yet: \"call-budget budget set NAME --limit 18 --window 1s\" makes one");
            return Ok(());
        }
        let mut rows = vec![["NAME", "LIMIT", "INTERVAL", "RATE", "STATE"].map(str::to_owned).to_vec()];
        rows.extend(budgets.iter().map(|budget| {
            let settings = &budget.settings;
            vec![
                short(&budget.name),
                format!("{} per {}", settings.limit, friendly(settings.window_us)),
                friendly(settings.interval_us),
                rate(settings.interval_us),
                state(budget),
            ]
        }));
        print(&table(&rows));
        Ok(())
    }
}
