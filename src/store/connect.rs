//! Opens a session that is ready to acquire: connected, with the isolation that the function needs, its statements planned,
//! its contract checked.

use tokio_postgres::error::Severity;
use tokio_postgres::{Config, NoTls, config::SslMode};

use super::acquire::{self, Session};
use super::{Failing, Progress, StoreError};
use crate::clock::Clock;
use crate::config::{Settings, SettingsError};
use crate::policy::stage::Stage;

/// The connection settings, checked without any I/O.
pub(super) fn parse(settings: &Settings) -> Result<Config, SettingsError> {
    let Some(url) = &settings.database_url else {
        return Err(SettingsError(
            "call_budget_enabled is true but database_url is not set: set CALL_BUDGET_DATABASE_URL".into(),
        ));
    };
    // The parser's own message could quote the password.
    let mut config: Config = url.as_str().parse().map_err(|_| {
        SettingsError(
            "database_url cannot be read: write it as postgresql://user:password@host:port/database, special characters percent-encoded"
                .into(),
        )
    })?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(SettingsError(
            "database_url asks for sslmode=require, and this release cannot speak TLS: use sslmode=disable on a trusted network"
                .into(),
        ));
    }
    config.application_name(&settings.application_name);
    Ok(config)
}

/// Opens one session.
pub(super) async fn open<C: Clock>(config: &Config, clock: &C, progress: &Progress) -> Result<Session, StoreError> {
    progress.enter(Stage::Connect);
    let (client, connection) = config.connect(NoTls).await.map_err(|error| failed(Stage::Connect, error))?;
    let connection = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "store connection ended");
        }
    });
    let session = Session::new(client, connection);
    progress.enter(Stage::Startup);
    // The function refuses an older snapshot than its lock; a role's default may say otherwise.
    session
        .client
        .batch_execute("SET default_transaction_isolation = 'read committed'")
        .await
        .map_err(|error| failed(Stage::Startup, error))?;
    acquire::probe(&session.client, clock, Stage::Startup).await?;
    Ok(session)
}

/// What a driver's error means at this stage. Decided by SQLSTATE and severity, never by message text: servers speak
/// Korean too.
pub(super) fn failed(stage: Stage, error: tokio_postgres::Error) -> StoreError {
    let (kind, message) = match error.as_db_error() {
        Some(db) => {
            let hint = match db.code().code() {
                "3F000" | "42883" | "42P01" => {
                    Some("the schema is missing or older than this program: run \"call-budget migrate\"")
                }
                "42501" => Some("the role may not acquire: run \"call-budget access ROLE --as client\""),
                "3D000" => Some("the database does not exist: check database_url"),
                "28000" => Some("the role may not log in: check the user in database_url and pg_hba.conf"),
                "CB001" | "CB002" => Some("the call itself was refused"),
                _ => None,
            };
            let text = format!("{} (SQLSTATE {})", db.message(), db.code().code());
            match hint {
                Some(hint) => (Failing::Misconfigured, format!("{hint}: {text}")),
                // A statement that ends with ERROR is rolled back. FATAL and PANIC can hit after its commit.
                None if stage != Stage::Query || db.parsed_severity() == Some(Severity::Error) => {
                    (Failing::Unavailable, text)
                }
                None => (Failing::Uncertain, text),
            }
        }
        None if stage == Stage::Query => (Failing::Uncertain, "the connection broke".into()),
        None => (Failing::Unavailable, "no connection".into()),
    };
    let message = match std::error::Error::source(&error) {
        Some(source) if error.as_db_error().is_none() => format!("{message}: {source}"),
        _ => message,
    };
    StoreError { stage, kind, message, source: Some(Box::new(error)) }
}
