//! The store: PostgreSQL, reached only from here. I/O that decides nothing.
//!
//! [`Store`] is the seam between a lane and whatever grants slots: the real thing is [`PostgresStore`], and a simulation or
//! a unit test brings its own.

pub mod access;
mod acquire;
pub mod admin;
mod answer;
mod connect;
pub mod floor;
#[cfg(feature = "test-util")]
pub mod memory;
pub mod migrate;
pub mod operation;
mod pool;
pub mod sqlstate;
pub mod status;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::policy::Instant;
use crate::policy::stage::Stage;

pub use acquire::PostgresStore;
pub use answer::{Answer, Refusal};

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

/// Where a store call is. Shared between the call and whoever may give it up.
#[derive(Debug)]
pub struct Progress(AtomicU8);

impl Default for Progress {
    fn default() -> Self {
        Self(AtomicU8::new(0))
    }
}

impl Progress {
    const STAGES: [Stage; 6] = [Stage::LocalWait, Stage::Dns, Stage::Connect, Stage::Tls, Stage::Startup, Stage::Query];

    /// The call begins this stage.
    pub fn enter(&self, stage: Stage) {
        let index = Self::STAGES.iter().position(|s| *s == stage).unwrap_or_default();
        self.0.store(u8::try_from(index).unwrap_or_default(), Ordering::Release);
    }

    /// The stage the call is in.
    pub fn stage(&self) -> Stage {
        Self::STAGES[usize::from(self.0.load(Ordering::Acquire))]
    }
}

/// A store call brought no answer.
#[derive(Debug)]
pub struct StoreError {
    pub stage: Stage,
    pub kind: Failing,
    /// What failed, without the stage.
    pub message: String,
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
    /// Time ran out while the call was where `progress` says.
    pub(crate) fn out_of_time(progress: &Progress) -> Self {
        let stage = progress.stage();
        let kind = if stage == Stage::Query { Failing::Uncertain } else { Failing::Unavailable };
        Self { stage, kind, message: "no answer in time".into(), source: None }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (stage {})", self.message, self.stage)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
