//! `call-budget migrate`

use std::time::Duration;

use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use super::Exit;
use crate::clock::{Clock, SystemClock};
use crate::store::migrate::{Applied, Migrated, migrate};

/// Create or update the schema "call_budget" of a database, as its owner
///
/// Connects to PostgreSQL directly, not through a transaction pooler. Any number of runs at once is fine.
#[derive(clap::Args)]
pub struct Args {
    /// postgres://USER:PASSWORD@HOST:PORT/DATABASE
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Exit {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match (runtime, args.database_url.parse::<Config>()) {
        (Ok(runtime), Ok(config)) => runtime.block_on(migrate_within_patience(config)),
        (Err(error), _) => Err((Exit::Failed, format!("the runtime did not start: {error}"))),
        (_, Err(_)) => Err((
            Exit::Usage,
            "the database URL cannot be read: write postgres://USER:PASSWORD@HOST:PORT/DATABASE".into(),
        )),
    };
    match outcome {
        Ok(migrated) if args.json => println!("{}", serde_json::json!(migrated)),
        Ok(migrated) => println!("{}", in_words(&migrated)),
        Err((exit, message)) => {
            eprintln!("call-budget migrate: {message}");
            return exit;
        }
    }
    Exit::Done
}

async fn migrate_within_patience(config: Config) -> Result<Migrated, (Exit, String)> {
    let clock = SystemClock;
    let late =
        |patience: Duration| (Exit::Store, format!("{} did not answer within {} s", name(&config), patience.as_secs()));
    let mut client = clock
        .until(clock.now() + CONNECT_PATIENCE, connect(&config))
        .await
        .ok_or_else(|| late(CONNECT_PATIENCE))?
        .map_err(|message| (Exit::Store, message))?;
    clock
        .until(clock.now() + MIGRATE_PATIENCE, migrate(&mut client))
        .await
        .ok_or_else(|| late(MIGRATE_PATIENCE))?
        .map_err(|error| {
            let exit = if error.is_refusal() { Exit::Failed } else { Exit::Store };
            (exit, format!("{}: {error}", name(&config)))
        })
}

async fn connect(config: &Config) -> Result<Client, String> {
    let (client, connection) = config.connect(NoTls).await.map_err(|error| refused(config, &error))?;
    // Its errors reach us through the client.
    tokio::spawn(connection);
    Ok(client)
}

/// Why there is no connection, in the words of whoever has to change something.
fn refused(config: &Config, error: &tokio_postgres::Error) -> String {
    let server = name(config);
    let user = config.get_user().unwrap_or_default();
    match error.code() {
        Some(&SqlState::INVALID_PASSWORD) => {
            format!("{server} refuses the password of \"{user}\": correct it in DATABASE_URL")
        }
        Some(&SqlState::INVALID_CATALOG_NAME) => format!("{server} does not exist on that server: createdb makes it"),
        Some(_) => {
            format!("{server} refuses \"{user}\": {}", error.as_db_error().map_or("", |database| database.message()))
        }
        None => match std::error::Error::source(error) {
            Some(cause) => format!("{server} cannot be reached: {cause}"),
            None => format!("{server} cannot be used: {error}"),
        },
    }
}

/// The database as people call it, without the password.
fn name(config: &Config) -> String {
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(folder)) => folder.display().to_string(),
        None => "no host".into(),
    };
    let port = config.get_ports().first().unwrap_or(&5432);
    format!("database \"{database}\" at {host}:{port}")
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

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// The wait for another run, and as long again for the migrations.
const MIGRATE_PATIENCE: Duration = Duration::from_secs(120);
