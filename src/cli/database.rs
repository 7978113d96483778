//! How every command reaches the database: a direct connection, one deadline over connect and login, and a schema of the
//! contract that this program speaks.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};

use super::command_error::CommandError;
use super::nearest::nearest;
use crate::clock::{Clock, SystemClock};
use crate::config::Settings;
use crate::store::migrate::{Migrated, migrate};
use crate::store::operation::{Operation, OperationError};
use crate::store::sqlstate::Meaning;
use crate::store::{CONTRACT, admin};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
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
    client: Client,
    whereabouts: Whereabouts,
}

impl Database {
    /// Connects, and refuses a database without the schema or with one of another contract.
    pub async fn connect(&self) -> Result<Connected, CommandError> {
        let mut connected = self.reach().await?;
        connected.check_contract().await?;
        Ok(connected)
    }

    /// Connects to the database, applies the schema, and says what was done.
    pub async fn migrate(&self) -> Result<(Connected, Migrated), CommandError> {
        let mut connected = self.reach().await?;
        let migrated = SystemClock.until(SystemClock.now() + MIGRATE_TIMEOUT, migrate(&mut connected.client)).await;
        let database = &connected.whereabouts.database;
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

    fn url(&self) -> Result<String, CommandError> {
        if let Some(url) = &self.database_url {
            return Ok(url.clone());
        }
        let settings = Settings::layered(self.config.as_deref());
        let settings = settings.map_err(|error| CommandError::usage(error.to_string()))?;
        let url = settings.database_url.map(|url| url.as_str().to_owned());
        url.ok_or_else(|| {
            CommandError::usage("no database is named")
                .hint("give --database-url or DATABASE_URL, or set database_url in the settings")
        })
    }

    async fn reach(&self) -> Result<Connected, CommandError> {
        let config = parse(&self.url()?)?;
        let whereabouts = Whereabouts::of(&config);
        let deadline = SystemClock.now() + CONNECT_TIMEOUT;
        let (client, connection) = match SystemClock.until(deadline, config.connect(NoTls)).await {
            Some(Ok(connected)) => connected,
            Some(Err(error)) => return Err(whereabouts.refused(&config, &error)),
            None => {
                let waited = format!("{} did not answer within {} s", whereabouts.server, CONNECT_TIMEOUT.as_secs());
                return Err(CommandError::store(waited).hint("check host, port and firewall"));
            }
        };
        // Ends with the client; what goes wrong in it fails the query that waits.
        tokio::spawn(connection);
        Ok(Connected { client, whereabouts })
    }
}

impl Connected {
    /// Begins an operation: committed as a whole, or nothing of it.
    pub async fn begin(&mut self) -> Result<Operation<'_>, CommandError> {
        Ok(Operation::begin(&mut self.client).await?)
    }

    async fn check_contract(&mut self) -> Result<(), CommandError> {
        let operation = Operation::begin(&mut self.client).await?;
        match admin::contract(&operation).await {
            Ok(CONTRACT) => Ok(()),
            Ok(contract) => Err(CommandError::store(format!(
                "the schema in database {:?} speaks contract {contract}, this call-budget speaks {CONTRACT}",
                self.whereabouts.database
            ))
            .hint(if contract < CONTRACT {
                "run \"call-budget migrate\""
            } else {
                "use a newer call-budget"
            })),
            Err(error) => Err(self.whereabouts.without_schema(error)),
        }
    }
}

fn parse(url: &str) -> Result<Config, CommandError> {
    // The URL itself is never shown: it holds a password.
    let is_url = url.starts_with("postgresql://") || url.starts_with("postgres://");
    if !is_url && url.contains("://") {
        return Err(CommandError::usage("the database URL begins with postgresql://"));
    }
    let query = url.split_once('@').map_or(url, |(_, rest)| rest).split_once('?').map_or("", |(_, query)| query);
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')).filter(|_| is_url) {
        if key == "sslmode" && ["require", "verify-ca", "verify-full"].contains(&value) {
            return Err(needs_tls(value));
        }
        if !URL_KEYS.contains(&key) {
            let error = CommandError::usage(format!("the database URL has an unknown key {key:?}"));
            return Err(match nearest(key, URL_KEYS.iter().copied()) {
                Some(known) => error.hint(format!("did you mean {known:?}?")),
                None => error.hint(format!("known are {}", URL_KEYS.join(", "))),
            });
        }
    }
    let mut config: Config = url.parse().map_err(|_| {
        CommandError::usage("the database URL cannot be read")
            .hint("write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, odd characters percent-encoded")
    })?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(needs_tls("require"));
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(CommandError::usage("the database URL names no host")
            .hint("write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"));
    }
    config.application_name("call-budget");
    Ok(config)
}

fn needs_tls(mode: &str) -> CommandError {
    CommandError::usage(format!("sslmode={mode} asks for TLS, which is not in this release"))
        .hint("connect over a private network or a tunnel, with sslmode=disable")
}

/// Where the database is, in words that may be shown.
struct Whereabouts {
    server: String,
    database: String,
    user: String,
}

impl Whereabouts {
    fn of(config: &Config) -> Whereabouts {
        let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
            (Some(Host::Tcp(host)), _) => host.clone(),
            #[cfg(unix)]
            (Some(Host::Unix(path)), _) => path.display().to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => String::new(),
        };
        let user = config.get_user().map_or_else(|| "of this process".to_owned(), str::to_owned);
        Whereabouts {
            server: format!("{host}:{}", config.get_ports().first().unwrap_or(&5432)),
            database: config.get_dbname().unwrap_or(&user).to_owned(),
            user,
        }
    }

    fn refused(&self, config: &Config, error: &tokio_postgres::Error) -> CommandError {
        let Whereabouts { server, database, user } = self;
        if let Some(state) = error.code() {
            let code = state.code();
            return match Meaning::of(code) {
                Meaning::LoginRefused => {
                    CommandError::store(format!("{server} does not let user {user:?} into {database:?}"))
                        .hint(format!("check the user and the password in the database URL ({code})"))
                }
                Meaning::NoSuchDatabase => CommandError::store(format!("{server} has no database {database:?}"))
                    .hint("create it, or name another in the database URL"),
                Meaning::NotPermitted => {
                    CommandError::store(format!("user {user:?} may not connect to database {database:?} on {server}"))
                        .hint(format!("its owner can GRANT CONNECT ON DATABASE {database:?}"))
                }
                meaning => CommandError::store(format!("{server} refused the connection ({code}): {meaning}")),
            };
        }
        if let Some(cause) = io_cause(error) {
            return CommandError::store(format!(
                "no PostgreSQL answers at {server} (database {database:?}, user {user:?})"
            ))
            .hint(format!("check that it runs and that host and port are right ({cause})"));
        }
        if error.is_closed() {
            return CommandError::store(format!("{server} closed the connection during the login of user {user:?}"))
                .hint("check that it is a PostgreSQL server, and its log");
        }
        if config.get_password().is_none() {
            return CommandError::store(format!(
                "{server} wants a password for user {user:?}, the database URL has none"
            ))
            .hint("write postgresql://USER:PASSWORD@HOST:PORT/DATABASE");
        }
        CommandError::store(format!("{server} cannot be used (database {database:?}, user {user:?}): {error}"))
    }

    fn without_schema(&self, error: OperationError) -> CommandError {
        let Whereabouts { database, user, .. } = self;
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

fn io_cause(error: &tokio_postgres::Error) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// What tokio-postgres reads from a URL.
const URL_KEYS: &[&str] = &[
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslmode",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        parse(url).unwrap_err().to_string()
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_by_what_is_wrong_and_never_shows_the_password() {
        let cases = [
            ("mysql://me:secret@host/db?a=b", "begins with postgresql://"),
            ("postgresql://me:secret@host:notaport/db", "cannot be read"),
            ("postgresql://me:secret@host/db?sslmod=disable", "did you mean \"sslmode\"?"),
            ("postgresql://me:secret@host/db?zzz=1", "unknown key \"zzz\": known are"),
            ("postgresql://me:secret@host/db?sslmode=verify-full", "not in this release"),
            ("postgresql://me:secret@host/db?sslmode=require", "not in this release"),
            ("host=h password=secret sslmode=require", "not in this release"),
            ("user=me password=secret", "names no host"),
            ("", "names no host"),
        ];
        for (url, expected) in cases {
            let refusal = refusal(url);
            assert!(refusal.contains(expected), "{url}: {refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
    }

    #[test]
    fn a_question_mark_in_the_password_is_not_the_query() {
        assert!(parse("postgresql://me:what?a=b@host/db").is_ok());
    }
}
