use super::command_error::CommandError;
use super::database::Database;
use super::{output, progress};
use crate::store::migrate::{Applied, Migrated};

/// Create or update the schema "call_budget" of a database, as its owner
///
/// Connects to PostgreSQL directly, not through a transaction pooler. Any
/// number of runs at once is fine.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_help = "Example: DATABASE_URL=postgresql://owner@db/work call-budget migrate")]
pub struct Migrate {
    #[command(flatten)]
    database: Database,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

impl Migrate {
    pub async fn run(self) -> Result<(), CommandError> {
        let waiting = "migrating; of several runs one goes at a time";
        let (_, migrated) = progress::during(waiting, self.database.migrate()).await?;
        if self.json {
            output::print_json(&migrated);
        } else {
            output::print(&in_words(&migrated));
        }
        Ok(())
    }
}

fn in_words(migrated: &Migrated) -> String {
    let list = |migrations: &[Applied]| migrations.iter().map(Applied::to_string).collect::<Vec<_>>().join(", ");
    let contract = migrated.contract;
    match (migrated.applied.as_slice(), migrated.present.as_slice()) {
        ([], present) => format!("nothing to do: {} (contract {contract})", list(present)),
        (applied, []) => format!("applied {} (contract {contract})", list(applied)),
        (applied, present) => format!("applied {} on top of {} (contract {contract})", list(applied), list(present)),
    }
}
