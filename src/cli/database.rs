//! How every command reaches the database: a session of its own, the stages of an acquire within one deadline, and a schema
//! of the contract that this program speaks.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::command_error::CommandError;
use crate::clock::{Clock, SystemClock};
use crate::config::{Connection, Settings};
use crate::store::direct::Direct;
use crate::store::migrate::{Migrated, migrate};
use crate::store::operation::{Operation, OperationError};
use crate::store::sqlstate::Meaning;
use crate::store::{CONTRACT, admin};

/// The wait for another run, and as long again for the migrations.
const MIGRATE_TIMEOUT: Duration = Duration::from_secs(120);

/// Which database, as options of every command that needs one.
#[derive(Args, Clone)]
pub struct Database {
    /// The database's URL; where not given, the settings' database_url
    ///
    /// postgresql://USER:PASSWORD@HOST:PORT/DATABASE
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// A TOML file of settings, under the CALL_BUDGET_* variables
    #[arg(long, value_name = "FILE", env = "CALL_BUDGET_CONFIG")]
    config: Option<PathBuf>,
}

impl From<String> for Database {
    fn from(database_url: String) -> Self {
        Self { database_url: Some(database_url), config: None }
    }
}

/// A connection whose schema was looked at.
pub struct Connected {
    session: Direct,
    database: String,
    user: String,
}

impl Database {
    /// All settings, with the database that the options name.
    pub fn settings(&self) -> Result<Settings, CommandError> {
        let settings = Settings::layered(self.config.as_deref())?;
        Ok(match &self.database_url {
            Some(url) => settings.at(url.as_str()),
            None => settings,
        })
    }

    /// Connects, and refuses a database without the schema or with one of another contract.
    pub async fn connect(&self) -> Result<Connected, CommandError> {
        let mut connected = self.reach().await?;
        connected.check_contract().await?;
        Ok(connected)
    }

    /// Connects to the database, applies the schema, and says what was done.
    pub async fn migrate(&self) -> Result<(Connected, Migrated), CommandError> {
        let mut connected = self.reach().await?;
        let migrated =
            SystemClock.until(SystemClock.now() + MIGRATE_TIMEOUT, migrate(connected.session.client())).await;
        let database = &connected.database;
        match migrated {
            Some(Ok(migrated)) => Ok((connected, migrated)),
            Some(Err(error)) if error.is_refusal() => {
                Err(CommandError::failed(format!("database {database:?} was not migrated: {error}")))
            }
            Some(Err(error)) => Err(CommandError::store(format!("database {database:?} was not migrated: {error}"))),
            None => {
                let waited = MIGRATE_TIMEOUT.as_secs();
                Err(CommandError::store(format!("database {database:?} was not migrated within {waited} s"))
                    .hint("nothing of an unfinished migration is kept, try again"))
            }
        }
    }

    async fn reach(&self) -> Result<Connected, CommandError> {
        let connection = self.connection()?;
        let (database, user) = (connection.dbname.clone(), connection.user.clone());
        let session = Direct::connect(connection).await;
        let session = session.map_err(|error| CommandError::store(error.to_string()))?;
        Ok(Connected { session, database, user })
    }

    fn connection(&self) -> Result<Connection, CommandError> {
        Ok(Connection::of(&self.settings()?)?)
    }
}

impl Connected {
    /// Begins an operation: committed as a whole, or nothing of it.
    pub async fn begin(&mut self) -> Result<Operation<'_>, CommandError> {
        Ok(Operation::begin(self.session.client()).await?)
    }

    /// The session alone.
    pub fn into_session(self) -> Direct {
        self.session
    }

    async fn check_contract(&mut self) -> Result<(), CommandError> {
        let operation = Operation::begin(self.session.client()).await?;
        let contract = admin::contract(&operation).await;
        drop(operation);
        match contract {
            Ok(CONTRACT) => Ok(()),
            Ok(contract) => {
                let way_out =
                    if contract < CONTRACT { "run \"call-budget migrate\"" } else { "use a newer call-budget" };
                Err(CommandError::store(format!(
                    "the schema in database {:?} speaks contract {contract}, this call-budget speaks {CONTRACT}",
                    self.database
                ))
                .hint(way_out))
            }
            Err(error) => Err(self.without_schema(error)),
        }
    }

    fn without_schema(&self, error: OperationError) -> CommandError {
        let Connected { database, user, .. } = self;
        match error.meaning() {
            Meaning::NoSchema => CommandError::store(format!("the database {database:?} has no call-budget schema"))
                .hint("run \"call-budget migrate\""),
            Meaning::NotPermitted => CommandError::failed(format!(
                "user {user:?} has no rights on the call-budget schema in database {database:?}"
            ))
            .hint(format!("its owner can run \"call-budget access {user} --as admin\"")),
            _ => error.into(),
        }
    }
}
