//! The store: PostgreSQL, reached only from here. I/O that decides nothing.
//!
//! [`Store`] is the seam between a lane and whatever grants slots: the real thing is [`PostgresStore`], and a simulation or
//! a unit test brings its own.

pub mod access;
mod acquire;
pub mod admin;
mod answer;
mod blocking;
pub mod breakers;
mod connect;
mod descriptors;
pub mod direct;
mod dns;
mod ending;
pub mod floor;
mod frames;
pub mod inspect;
#[cfg(feature = "test-util")]
pub mod memory;
pub mod migrate;
pub mod operation;
mod pool;
mod progress;
mod record;
pub mod report;
mod route;
mod secret;
mod session;
pub mod sqlstate;
pub mod status;
mod timelines;
mod tls;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::error::Severity;

use self::breakers::Snapshot;
use crate::policy::Instant;
use crate::policy::stage::Stage;

pub use acquire::PostgresStore;
pub use answer::{Answer, Refusal};
pub use progress::Progress;
#[cfg(feature = "test-util")]
pub use timelines::Timelines;

/// What this client and the schema agree on: a schema with the same number works with it, another is refused by name.
pub const CONTRACT: i32 = 1;

/// The longest appointment a store may give: nobody sleeps longer, so new settings and dead lanes are noticed by then.
pub const NAP: Duration = Duration::from_secs(5);

/// Grants slots. One call is one transaction of its own; dropping the future abandons the call, whose grant, if one came,
/// is spent.
pub trait Store: Send + Sync + 'static {
    /// Asks for a slot for each of the callers in `ask`. Notes in `progress` where the call is, so that whoever gives it up
    /// can say so.
    fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Goes to the store and back, taking nothing: an acquire for no budget, whose answer tells the store's clock and no
    /// timeline.
    fn probe(&self, progress: &Arc<Progress>) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Asks for a fence of the budget, on behalf of a caller who saw the store's clock step. False where the store will
    /// not, since the budget had one within 10 s of its clock.
    fn fence(&self, budget: &str, progress: &Arc<Progress>) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The vendor said "too many": no slot of the budget starts within `duration` (60 s at most), whoever asks. Repeated
    /// reports come to their maximum, never their sum; `reason` is for people. Answers the time left.
    fn report_pushback(
        &self,
        budget: &str,
        duration: Duration,
        reason: &str,
        progress: &Arc<Progress>,
    ) -> impl Future<Output = Result<Duration, StoreError>> + Send;

    /// Shows people what the breakers of `process` (63 random bits) look like, instead of what it showed before. Answers
    /// zero where it was taken, else how long until it would be: once a second. It decides nothing, so a store that shows
    /// nothing to anybody need not take it.
    fn publish(
        &self,
        process: i64,
        snapshots: &[Snapshot],
        progress: &Arc<Progress>,
    ) -> impl Future<Output = Result<Duration, StoreError>> + Send {
        let _ = (process, snapshots, progress);
        async { Ok(Duration::ZERO) }
    }
}

/// One lane's question.
#[derive(Clone, Debug)]
pub struct Ask {
    pub budget: Arc<str>,
    pub class: Arc<str>,
    /// The lane's own id, 63 random bits, the same for every call of the lane.
    pub lane: i64,
    /// The costs of the callers waiting in the lane, in order.
    pub costs: Vec<u32>,
    /// How long the first of them would still wait.
    pub patience: Duration,
    /// 63 random bits of this call alone.
    pub nonce: i64,
}

/// The store's answer, and the moments between which the store read its clock.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Before the request left.
    pub asked: Instant,
    /// After the commit was acknowledged.
    pub answered: Instant,
    pub answer: Answer,
}

/// A store call brought no answer.
#[derive(Debug)]
pub struct StoreError {
    pub stage: Stage,
    pub kind: Failing,
    /// What failed, without the stage.
    pub message: String,
    /// Whether a slot may have been spent although no grant came of it.
    pub may_have_spent: bool,
    /// How long after its entry the call failed, where whoever made it has said so.
    pub after: Option<Duration>,
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// What a failed store call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Nothing was spent: the request never left, or the store refused it.
    Unavailable,
    /// The request left and no answer came: it may have been granted.
    Uncertain,
    /// Waiting will not help: settings, schema, privileges.
    Misconfigured,
}

impl StoreError {
    /// A failure in `stage`; `message` says what failed, without the stage.
    pub fn new(stage: Stage, kind: Failing, message: impl Into<String>) -> Self {
        let may_have_spent = kind == Failing::Uncertain;
        Self { stage, kind, message: message.into(), may_have_spent, after: None, source: None }
    }

    pub(crate) fn caused_by(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }

    pub(crate) fn after(self, took: Duration) -> Self {
        Self { after: Some(took), ..self }
    }

    /// Time ran out while the call was where `progress` says.
    pub(crate) fn out_of_time(progress: &Progress) -> Self {
        let stage = progress.stage();
        let kind = if stage == Stage::Query { Failing::Uncertain } else { Failing::Unavailable };
        Self::new(stage, kind, progress.silence())
    }

    /// Why the database said no, where it did.
    pub fn meaning(&self) -> Option<sqlstate::Meaning> {
        self.driver()?.code().map(|code| sqlstate::Meaning::of(code.code()))
    }

    /// The server refused the statement and goes on: the session is as good as before.
    fn is_answer(&self) -> bool {
        let refusal = self.driver().and_then(tokio_postgres::Error::as_db_error);
        refusal.is_some_and(|refusal| refusal.parsed_severity() == Some(Severity::Error))
    }

    fn driver(&self) -> Option<&tokio_postgres::Error> {
        self.source.as_deref()?.downcast_ref()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, stage, after, .. } = self;
        match after {
            Some(after) => write!(f, "{message} (stage {stage}, after {:.3} s)", after.as_secs_f64()),
            None => write!(f, "{message} (stage {stage})"),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
