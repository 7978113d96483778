//! The few sessions of this process. They have no timeouts of their own, which would add up: the one deadline is around
//! the whole call.

use std::sync::Arc;

use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult};
use tokio_postgres::Config;

use super::acquire::Session;
use super::{Failing, Progress, StoreError, connect};
use crate::clock::Clock;
use crate::policy::stage::Stage;

tokio::task_local! {
    /// Where the call is that waits for the pool: deadpool opens sessions on its behalf without knowing it.
    static PROGRESS: Arc<Progress>;
}

pub(super) struct Pool<C: Clock>(managed::Pool<Opener<C>>);

impl<C: Clock> Pool<C> {
    /// A pool that holds at most `size` sessions and has none yet.
    pub fn new(config: Config, clock: C, size: usize) -> Self {
        let pool = managed::Pool::builder(Opener { config, clock }).max_size(size).build();
        Self(pool.expect("a pool without timeouts needs no runtime"))
    }

    /// A session in hand. Until it is given back with [`Borrowed::give_back`] it counts as doubtful.
    pub async fn get(&self, progress: &Arc<Progress>) -> Result<Borrowed<C>, StoreError> {
        progress.enter(Stage::LocalWait);
        let session = PROGRESS.scope(Arc::clone(progress), self.0.get()).await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            other => StoreError {
                stage: Stage::LocalWait,
                kind: Failing::Unavailable,
                message: "the pool gave no connection".into(),
                source: Some(Box::new(other)),
            },
        })?;
        Ok(Borrowed { session: Some(session), pool: self.0.clone() })
    }
}

/// A session taken from the pool. Dropped on any doubt (an error, a deadline, a cancelled call) it is closed and takes all
/// idle sessions of its generation along: a busy or half-dead connection must not come back.
pub(super) struct Borrowed<C: Clock> {
    session: Option<Object<Opener<C>>>,
    pool: managed::Pool<Opener<C>>,
}

impl<C: Clock> Borrowed<C> {
    pub fn session(&self) -> &Session {
        self.session.as_ref().expect("held until given back")
    }

    /// The answer is complete: the session can serve the next call.
    pub fn give_back(mut self) {
        self.session = None;
    }
}

impl<C: Clock> Drop for Borrowed<C> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            drop(Object::take(session));
            self.pool.retain(|_, _| false);
        }
    }
}

struct Opener<C> {
    config: Config,
    clock: C,
}

impl<C: Clock> managed::Manager for Opener<C> {
    type Type = Session;
    type Error = StoreError;

    async fn create(&self) -> Result<Session, StoreError> {
        connect::open(&self.config, &self.clock, &PROGRESS.get()).await
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<StoreError> {
        if session.client.is_closed() { Err(RecycleError::message("closed")) } else { Ok(()) }
    }
}
