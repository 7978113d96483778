//! The few sessions of this process. They have no timeouts of their own, which would add up: the one deadline is around
//! the whole call.
//!
//! While there are sessions, a task looks after those that nobody uses: it closes the ones that have been idle for a minute,
//! and those whose address is no longer the store's. It ends with the last session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult};
use tokio::task::JoinHandle;

use super::session::{Opener, Session};
use super::{Failing, Progress, StoreError};
use crate::clock::Clock;
use crate::policy::stage::Stage;

/// A session that nobody has used for this long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// How often the sessions are looked at: the names may have to be resolved again sooner than was known a moment ago.
const ROUND: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Where the call is that waits for the pool: deadpool opens sessions on its behalf without knowing it.
    static PROGRESS: Arc<Progress>;
}

pub(super) struct Pool<C: Clock>(Arc<Shared<C>>);

struct Shared<C: Clock> {
    sessions: managed::Pool<Sessions<C>>,
    opener: Arc<Opener<C>>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl<C: Clock> Pool<C> {
    /// A pool that holds at most `size` sessions and has none yet.
    pub fn new(opener: Opener<C>, size: usize) -> Self {
        let opener = Arc::new(opener);
        let pool = managed::Pool::builder(Sessions(Arc::clone(&opener))).max_size(size).build();
        let sessions = pool.expect("a pool without timeouts needs no runtime");
        Self(Arc::new(Shared { sessions, opener, keeper: Mutex::default() }))
    }

    /// A session in hand. Until it is given back with [`Borrowed::give_back`] it counts as doubtful.
    pub async fn get(&self, progress: &Arc<Progress>) -> Result<Borrowed<C>, StoreError> {
        progress.enter(Stage::LocalWait);
        let session =
            PROGRESS.scope(Arc::clone(progress), self.0.sessions.get()).await.map_err(|error| match error {
                PoolError::Backend(error) => error,
                other => StoreError::new(Stage::LocalWait, Failing::Unavailable, "the pool gave no connection")
                    .caused_by(other),
            })?;
        progress.towards(Arc::clone(&session.named));
        Shared::keep(&self.0);
        Ok(Borrowed { session: Some(session), pool: Arc::clone(&self.0) })
    }
}

/// A session taken from the pool. Dropped on any doubt (an error, a deadline, a cancelled call) it is closed and takes all
/// idle sessions of its generation along: a busy or half-dead connection must not come back.
pub(super) struct Borrowed<C: Clock> {
    session: Option<Object<Sessions<C>>>,
    pool: Arc<Shared<C>>,
}

impl<C: Clock> Borrowed<C> {
    pub fn session(&self) -> &Session {
        self.session.as_ref().expect("held until given back")
    }

    /// The answer is complete: the session can serve the next call.
    pub fn give_back(mut self) {
        self.session = None;
    }

    /// As [`Borrowed::give_back`] where the call was answered, a refusal included. For calls whose failing is not to cost
    /// others their sessions.
    pub fn give_back_unless_doubtful<T>(self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if outcome.as_ref().err().is_none_or(StoreError::is_answer) {
            self.give_back();
        }
        outcome
    }
}

impl<C: Clock> Drop for Borrowed<C> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let session = Object::take(session);
            self.pool.opener.route.failed(&session.target);
            drop(session);
            self.pool.sessions.retain(|_, _| false);
        }
    }
}

impl<C: Clock> Shared<C> {
    /// Sees to it that a task looks after the sessions while there are any.
    fn keep(this: &Arc<Self>) {
        let mut keeper = this.keeper();
        if keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            *keeper = Some(tokio::spawn(look_after(Arc::downgrade(this), this.opener.clock.clone())));
        }
    }

    fn close_unused(&self) {
        let route = &self.opener.route;
        self.sessions.retain(|session, metrics| route.leads_to(&session.target) && metrics.last_used() < IDLE);
    }

    fn keeper(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Clock> Drop for Shared<C> {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper().take() {
            keeper.abort();
        }
    }
}

async fn look_after<C: Clock>(pool: Weak<Shared<C>>, clock: C) {
    loop {
        let Some(opener) = pool.upgrade().and_then(|shared| {
            let mut keeper = shared.keeper();
            if shared.sessions.status().size == 0 {
                // Under the lock: whoever opens the next session finds none, and starts one.
                *keeper = None;
                return None;
            }
            drop(keeper);
            Some(Arc::clone(&shared.opener))
        }) else {
            return;
        };
        let round = clock.now() + ROUND;
        clock.sleep_until(opener.route.look_again().map_or(round, |moment| moment.min(round))).await;
        opener.route.refresh(&clock).await;
        if let Some(shared) = pool.upgrade() {
            shared.close_unused();
        }
    }
}

/// Opens the pool's sessions.
struct Sessions<C>(Arc<Opener<C>>);

impl<C: Clock> managed::Manager for Sessions<C> {
    type Type = Session;
    type Error = StoreError;

    async fn create(&self) -> Result<Session, StoreError> {
        // Boxed: seldom needed, and large. Every store call would carry it along.
        Box::pin(self.0.open(&PROGRESS.get())).await
    }

    async fn recycle(&self, session: &mut Session, metrics: &Metrics) -> RecycleResult<StoreError> {
        if session.client.is_closed() {
            return Err(RecycleError::message("closed"));
        }
        // The task that looks after the sessions may have stood still, with the runtime under it.
        if metrics.last_used() > IDLE + ROUND {
            return Err(RecycleError::message("idle for too long"));
        }
        if self.0.route.is_overdue(self.0.clock.now()) {
            Box::pin(self.0.route.refresh(&self.0.clock)).await;
        }
        if !self.0.route.leads_to(&session.target) {
            return Err(RecycleError::message("its address is no longer the store's"));
        }
        Ok(())
    }
}
