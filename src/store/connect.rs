//! Opens a session that is ready to acquire: connected, with the isolation that the function needs, its statements planned,
//! its contract checked.

use std::error::Error;

use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::{Config, NoTls, config::SslMode};

use super::acquire::{self, Session};
use super::sqlstate::Meaning;
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
    let (stage, kind, message) = match error.as_db_error() {
        Some(refusal) => {
            // Whoever says no is connected.
            let stage = stage.max(Stage::Startup);
            let (kind, message) = refused(stage, refusal);
            (stage, kind, message)
        }
        None => {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            if stage == Stage::Query {
                (stage, Failing::Uncertain, format!("the connection broke: {cause}"))
            } else {
                let message = format!("no connection: check that the server runs where database_url says ({cause})");
                (stage, Failing::Unavailable, message)
            }
        }
    };
    StoreError { stage, kind, message, source: Some(Box::new(error)) }
}

fn refused(stage: Stage, refusal: &DbError) -> (Failing, String) {
    let sqlstate = refusal.code().code();
    let meaning = Meaning::of(sqlstate);
    let kind = match meaning {
        // Passwords rotate: a refused one is an outage.
        Meaning::LoginRefused if sqlstate == "28P01" => Failing::Unavailable,
        Meaning::NoSchema
        | Meaning::NotPermitted
        | Meaning::NoSuchDatabase
        | Meaning::LoginRefused
        | Meaning::BadArgument
        | Meaning::WrongIsolation => Failing::Misconfigured,
        // A statement that ends with ERROR is rolled back. FATAL and PANIC can hit after its commit.
        _ if stage != Stage::Query || refusal.parsed_severity() == Some(Severity::Error) => Failing::Unavailable,
        _ => Failing::Uncertain,
    };
    let way_out = match meaning {
        Meaning::NoSchema => ": run \"call-budget migrate\"",
        Meaning::NotPermitted => ": run \"call-budget access ROLE --as client\"",
        Meaning::NoSuchDatabase => ": check database_url",
        Meaning::LoginRefused => ": check user and password in database_url, and the server's pg_hba.conf",
        _ => "",
    };
    (kind, format!("{meaning}{way_out} (SQLSTATE {sqlstate}: {})", refusal.message()))
}
