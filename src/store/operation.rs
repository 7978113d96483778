//! One operator's transaction: all of it or nothing, and over within its time.
//!
//! Dropping an [`Operation`] rolls it back. The server is told the bound too (`statement_timeout`, for this transaction
//! only), so that nothing goes on working there for an operator who has gone.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, IsolationLevel, Row, Transaction};

use super::sqlstate::Meaning;
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;

/// From begin to commit. Longer than any lock is held for, short enough for a person who waits.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// A parameter with its type: a typed query needs no round trip to ask for it, and no prepared statement.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A transaction that ends within [`TIMEOUT`].
pub struct Operation<'a> {
    transaction: Transaction<'a>,
    deadline: Instant,
}

impl<'a> Operation<'a> {
    /// Begins it, read committed whatever the role's default is: settings are read under the budget's lock.
    pub async fn begin(client: &'a mut Client) -> Result<Operation<'a>, OperationError> {
        let deadline = SystemClock.now() + TIMEOUT;
        let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start();
        let transaction = bounded(deadline, begin).await?;
        // Shorter, so that the server's own word comes before the deadline.
        bounded(deadline, transaction.batch_execute("SET LOCAL statement_timeout = '4s'")).await?;
        Ok(Operation { transaction, deadline })
    }

    /// Commits it. Where the answer is lost, the error's meaning is [`Meaning::Uncertain`]: it may have been committed.
    pub async fn commit(self) -> Result<(), OperationError> {
        match SystemClock.until(self.deadline, self.transaction.commit()).await {
            Some(Ok(())) => Ok(()),
            // The server refused it and goes on: it is rolled back. One that goes down may have written it first.
            Some(Err(error)) if error.code().is_some_and(|code| Meaning::of(code.code()) != Meaning::GoingDown) => {
                Err(error.into())
            }
            _ => Err(OperationError::new(Meaning::Uncertain, Meaning::Uncertain.to_string())),
        }
    }

    pub(super) async fn rows(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, OperationError> {
        bounded(self.deadline, self.transaction.query_typed(sql, parameters)).await
    }

    pub(super) async fn row(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Row, OperationError> {
        bounded(self.deadline, self.transaction.query_typed_one(sql, parameters)).await
    }

    pub(super) async fn execute(&self, statements: &str) -> Result<(), OperationError> {
        bounded(self.deadline, self.transaction.batch_execute(statements)).await
    }
}

async fn bounded<T: Send>(
    deadline: Instant,
    work: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
) -> Result<T, OperationError> {
    match SystemClock.until(deadline, work).await {
        Some(result) => result.map_err(OperationError::from),
        None => Err(OperationError::new(
            Meaning::TimedOut,
            format!("the database did not answer within {} s", TIMEOUT.as_secs()),
        )),
    }
}

/// An operation failed: nothing of it was done, unless its meaning is [`Meaning::Uncertain`].
#[derive(Debug)]
pub struct OperationError {
    meaning: Meaning,
    sentence: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl OperationError {
    pub(super) fn new(meaning: Meaning, sentence: impl Into<String>) -> Self {
        OperationError { meaning, sentence: sentence.into(), source: None }
    }

    /// What kind of failure it is.
    pub fn meaning(&self) -> Meaning {
        self.meaning
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for OperationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<tokio_postgres::Error> for OperationError {
    fn from(error: tokio_postgres::Error) -> Self {
        let (meaning, sentence) = match error.as_db_error() {
            None => (Meaning::Disconnected, Meaning::Disconnected.to_string()),
            Some(refusal) => {
                let meaning = Meaning::of(refusal.code().code());
                let sentence = match meaning {
                    // Ours to write, so ours to show.
                    Meaning::NoSuchName | Meaning::Refused | Meaning::BadArgument => refusal.message().to_owned(),
                    Meaning::BadSetting => refusal.constraint().unwrap_or(refusal.message()).to_owned(),
                    _ => format!("{meaning} (the server says {}: {})", refusal.code().code(), refusal.message()),
                };
                (meaning, sentence)
            }
        };
        OperationError { meaning, sentence, source: Some(Box::new(error)) }
    }
}
