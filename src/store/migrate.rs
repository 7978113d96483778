//! Brings a database's schema `call_budget` up to this release.
//!
//! Needs a direct connection (no transaction pooler) of a plain owner role: no superuser, no extension, nothing outside
//! the schema. Any number of processes may migrate at once: a session advisory lock lets them pass one by one. Each
//! migration is a transaction of its own. Refused, each by name: a pooler, a read-only server, a missing privilege, a
//! history that this release does not know how to continue, a schema of another contract.

use std::error::Error;
use std::fmt;

use refinery::error::Kind;
use refinery::{Migration, Runner};
use serde::Serialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::CONTRACT;

/// What a migration run found and did.
#[derive(Debug, Serialize)]
pub struct Migrated {
    /// Applied by this run, in order.
    pub applied: Vec<Applied>,
    /// In the database before this run; possibly newer ones than this release knows.
    pub present: Vec<Applied>,
    /// The schema's contract number, equal to [`CONTRACT`].
    pub contract: i32,
}

/// One migration of the database's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    pub version: i32,
    pub name: String,
}

/// Why a database was not migrated. Its text is one sentence with the way out.
#[derive(Debug)]
pub struct MigrateError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    refused: bool,
}

/// Applies what is missing.
///
/// Waits at most a minute for another run to end; the caller bounds the whole.
pub async fn migrate(client: &mut Client) -> Result<Migrated, MigrateError> {
    let backend = take_turn(client).await?;
    let outcome = match holds_turn(client, backend).await {
        Ok(true) => migrate_in_turn(client).await,
        Ok(false) => Err(pooled()),
        Err(error) => Err(error.into()),
    };
    let released = end_turn(client).await;
    let migrated = outcome?;
    if released? { Ok(migrated) } else { Err(pooled()) }
}

/// The migrations of this release, in order.
pub fn migrations() -> Vec<Migration> {
    let mut migrations = embedded::migrations::runner().get_migrations().clone();
    migrations.sort();
    migrations
}

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Waits for the lock. Returns the server's session that holds it.
async fn take_turn(client: &mut Client) -> Result<i32, MigrateError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("SET LOCAL lock_timeout = {PATIENCE_MS}")).await?;
    match transaction.query_one("SELECT pg_advisory_lock($1), pg_backend_pid()", &[&TURN]).await {
        Ok(row) => {
            transaction.commit().await?;
            Ok(row.get(1))
        }
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Err(refusal(format!(
            "another migration of this database has not ended within {} s: wait for it, or end its session",
            PATIENCE_MS / 1000
        ))),
        Err(error) => Err(error.into()),
    }
}

/// A session lock lives with the server's session. Behind a transaction pooler the next statement may have another.
async fn holds_turn(client: &Client, backend: i32) -> Result<bool, tokio_postgres::Error> {
    let held = "SELECT pg_backend_pid() = $1 AND EXISTS (
                    SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
                       AND (classid::bigint << 32 | objid::bigint) = $2)";
    Ok(client.query_one(held, &[&backend, &TURN]).await?.get(0))
}

/// Gives the lock back. False where the session that held it was not the one at hand: then a pooler's sessions are asked
/// in turn, for a lock that stays behind would stop the next run, which may come directly.
async fn end_turn(client: &Client) -> Result<bool, tokio_postgres::Error> {
    const SESSIONS: usize = 100;
    let unlock = format!("SELECT pg_advisory_unlock({TURN})");
    for session in 0..SESSIONS {
        // Simple protocol: a prepared statement would belong to one of the pooler's sessions.
        let answer = client.simple_query(&unlock).await?;
        if answer.iter().any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"))) {
            return Ok(session == 0);
        }
    }
    Ok(false)
}

async fn migrate_in_turn(client: &mut Client) -> Result<Migrated, MigrateError> {
    check_writable(client).await?;
    let owner = claim_schema(client).await?;
    client.batch_execute(&format!("SET ROLE {owner}")).await.map_err(|error| {
        failed(
            &format!("the schema call_budget belongs to {owner}, whom this role may not act as: migrate as {owner}"),
            error,
        )
    })?;
    let migrated = continue_history(client).await;
    let reset = client.batch_execute("RESET ROLE").await;
    let migrated = migrated?;
    reset?;
    Ok(migrated)
}

async fn check_writable(client: &Client) -> Result<(), MigrateError> {
    let row = client
        .query_one(
            "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', current_database()",
            &[],
        )
        .await?;
    let (standby, read_only, database): (bool, bool, String) = (row.get(0), row.get(1), row.get(2));
    if standby {
        Err(refusal("this server is a standby, which is read-only: migrate on the primary"))
    } else if read_only {
        Err(refusal(format!(
            "database \"{database}\" is read-only for this role (default_transaction_read_only is on): turn it off or use another role"
        )))
    } else {
        Ok(())
    }
}

/// Makes the schema where it is missing. Returns its owner, quoted: whatever is made in it must belong to the same role.
async fn claim_schema(client: &Client) -> Result<String, MigrateError> {
    let row = client
        .query_one(
            "SELECT (SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'call_budget'),
                    coalesce((SELECT pg_has_role(nspowner, 'MEMBER') FROM pg_namespace WHERE nspname = 'call_budget'), false),
                    has_database_privilege(current_database(), 'CREATE'),
                    quote_ident(current_user), quote_ident(current_database())",
            &[],
        )
        .await?;
    let (owner, member, may_create): (Option<String>, bool, bool) = (row.get(0), row.get(1), row.get(2));
    let (me, database): (String, String) = (row.get(3), row.get(4));
    match owner {
        Some(owner) if member => Ok(owner),
        Some(owner) => Err(refusal(format!(
            "the schema call_budget belongs to {owner}, and {me} may not change it: migrate as {owner}, or GRANT {owner} TO {me}"
        ))),
        None if may_create => {
            client.batch_execute("CREATE SCHEMA call_budget").await?;
            Ok(me)
        }
        None => Err(refusal(format!(
            "{me} may not create the schema call_budget: as the owner of the database, GRANT CREATE ON DATABASE {database} TO {me}"
        ))),
    }
}

async fn continue_history(client: &mut Client) -> Result<Migrated, MigrateError> {
    let known = migrations();
    let mut runner = Runner::new(&known).set_abort_divergent(true).set_abort_missing(false);
    runner.set_migration_table_name(HISTORY);
    let begun: bool = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&HISTORY]).await?.get(0);
    let present = if begun { runner.get_applied_migrations_async(client).await? } else { Vec::new() };
    check_history(&present, &known)?;
    let report = runner.run_async(client).await?;
    Ok(Migrated {
        contract: check_contract(client, present.last()).await?,
        applied: report.applied_migrations().iter().map(Applied::from).collect(),
        present: present.iter().map(Applied::from).collect(),
    })
}

/// The database's history has to be a beginning of ours, or ours a beginning of it.
fn check_history(present: &[Migration], known: &[Migration]) -> Result<(), MigrateError> {
    let differing = present.iter().zip(known).find(|(theirs, ours)| theirs != ours);
    match differing {
        None => Ok(()),
        Some((theirs, ours)) => Err(refusal(format!(
            "the database has the migration {theirs} where this release has {ours}{}: it was migrated by something else than a release of call-budget; restore it, or start in an empty database",
            if theirs.to_string() == ours.to_string() { " with another text" } else { "" }
        ))),
    }
}

/// A newer schema is welcome while the contract is the same. (On one that was older, this release is now on top.)
async fn check_contract(client: &Client, newest: Option<&Migration>) -> Result<i32, MigrateError> {
    let contract = client.query_one("SELECT call_budget.call_budget_contract()", &[]).await?.get(0);
    match newest {
        Some(newest) if contract != CONTRACT => Err(refusal(format!(
            "the schema (up to {newest}) has contract {contract}, this call-budget has contract {CONTRACT}: use the release that migrated it"
        ))),
        _ => Ok(contract),
    }
}

fn pooled() -> MigrateError {
    refusal(
        "this connection goes through a transaction pooler, which cannot hold a migration's lock: connect to PostgreSQL directly",
    )
}

fn refusal(message: impl Into<String>) -> MigrateError {
    MigrateError { message: message.into(), source: None, refused: true }
}

fn failed(message: &str, source: impl Error + Send + Sync + 'static) -> MigrateError {
    MigrateError { message: message.into(), source: Some(source.into()), refused: false }
}

impl MigrateError {
    /// Whether the database was reached and must not be migrated as it is; otherwise the server failed on the way.
    pub fn is_refusal(&self) -> bool {
        self.refused
    }
}

impl From<&Migration> for Applied {
    fn from(migration: &Migration) -> Self {
        Self { version: migration.version(), name: migration.name().to_owned() }
    }
}

impl From<tokio_postgres::Error> for MigrateError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            // A statement that was prepared a moment ago is another session's now.
            Some(&SqlState::INVALID_SQL_STATEMENT_NAME | &SqlState::DUPLICATE_PSTATEMENT) => pooled(),
            _ => failed("the migration failed", error),
        }
    }
}

impl From<refinery::Error> for MigrateError {
    fn from(error: refinery::Error) -> Self {
        match error.kind() {
            // Which migration it was.
            Kind::Connection(what, _) => failed(&what.clone(), error),
            _ => failed("the migration failed", error),
        }
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "V{} {}", self.version, self.name)
    }
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        // What the server itself said, without the layers above it.
        let mut source = self.source();
        while let Some(cause) = source {
            if let Some(database) = cause.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.as_db_error())
            {
                return write!(f, ": {} (SQLSTATE {})", database.message(), database.code().code());
            }
            source = match cause.source() {
                Some(deeper) => Some(deeper),
                None => return write!(f, ": {cause}"),
            };
        }
        Ok(())
    }
}

impl Error for MigrateError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The table of what was applied. Inside the schema: plain owners may not write to `public`.
pub const HISTORY: &str = "call_budget.call_budget_migration";

/// A migration is done in seconds; whoever waits for longer waits for somebody who hangs.
const PATIENCE_MS: u32 = 60_000;

/// The advisory lock of migrations, in the database that is migrated: "callbudg" in ASCII.
const TURN: i64 = i64::from_be_bytes(*b"callbudg");
