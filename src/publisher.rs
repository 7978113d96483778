//! Tells the store what this process's breakers look like, for people. It decides nothing.
//!
//! A task does it from the first change on, at most once a second, and every 10 s while a breaker is not closed, an episode
//! is open or something is held. It ends when all is calm and told, or the last `Publisher` is dropped. A store that is out is
//! asked again at the next of these moments, with what is to be seen then: nothing queues. A store that cannot take it (an older
//! schema, a right that is missing) is left alone for 10 minutes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::policy::Instant;
use crate::store::breakers::Snapshot;
use crate::store::{Failing, Progress, Store, StoreError};

const AT_MOST_EVERY: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(10);
/// How long a store that cannot take it is left alone.
const AFTER_REFUSAL: Duration = Duration::from_secs(600);
/// A task that has not moved for so long after it ought to have stands still, with the runtime under it.
const OVERDUE: Duration = Duration::from_secs(5);

/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub(crate) struct Publisher(Arc<Owner>);

/// Its end is the end of the task.
struct Owner(Arc<dyn Desk>);

trait Desk: Send + Sync {
    fn process(&self) -> i64;
    fn changed(self: Arc<Self>);
    fn close(&self);
}

impl Publisher {
    /// `look` gives what is to be published now; one store call takes at most `store_call`.
    ///
    /// `look` is kept as long as the task: it must not own whoever owns the publisher. It is called by the task alone.
    pub fn new<C: Clock, S: Store>(
        clock: C,
        store: Arc<S>,
        store_call: Duration,
        look: impl Fn() -> Vec<Snapshot> + Send + Sync + 'static,
    ) -> Self {
        let (process, state, woken) = (fastrand::i64(0..), Mutex::default(), Notify::new());
        Self(Arc::new(Owner(Arc::new(Post { clock, store, store_call, look: Box::new(look), process, state, woken }))))
    }

    /// The number under which the store shows this process.
    pub fn process(&self) -> i64 {
        self.0.0.process()
    }

    /// A breaker changed: publishes soon, at most once a second, and every 10 s until all are closed.
    ///
    /// Cheap, and waits for nobody. Outside a runtime the change is told with the next one that is noticed inside.
    pub fn changed(&self) {
        Arc::clone(&self.0.0).changed();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Post<C, S> {
    clock: C,
    store: Arc<S>,
    store_call: Duration,
    look: Box<dyn Fn() -> Vec<Snapshot> + Send + Sync>,
    /// 63 random bits, for as long as the process lives.
    process: i64,
    state: Mutex<State>,
    /// There is something new to tell, or nobody to tell it for.
    woken: Notify,
}

#[derive(Default)]
struct State {
    /// Something changed since the last look.
    news: bool,
    /// The store may show something of this process.
    shown: bool,
    /// What was seen last is to be told again.
    again: bool,
    /// When the last telling began.
    told: Option<Instant>,
    /// The store takes nothing before.
    not_before: Instant,
    /// It cannot take anything, and that was said.
    refused: bool,
    /// The task on duty, by number; how many there were; and when the present one moves next.
    on_duty: Option<u64>,
    shifts: u64,
    due: Instant,
    task: Option<AbortHandle>,
}

impl<C: Clock, S: Store> Desk for Post<C, S> {
    fn process(&self) -> i64 {
        self.process
    }

    fn changed(self: Arc<Self>) {
        let now = self.clock.now();
        let (number, before) = {
            let mut state = self.state();
            state.news = true;
            if state.on_duty.is_some() && now <= state.due + OVERDUE {
                drop(state);
                self.woken.notify_one();
                return;
            }
            if now < state.not_before && state.refused {
                return;
            }
            let before = state.task.take();
            state.shifts += 1;
            (state.on_duty, state.due) = (Some(state.shifts), now);
            (state.shifts, before)
        };
        // Not under the lock: a task that ends takes it.
        if let Some(standing_still) = before {
            standing_still.abort();
        }
        let shift = Shift { post: Arc::clone(&self), number };
        let Ok(runtime) = Handle::try_current() else { return };
        let task = runtime.spawn(shift.run()).abort_handle();
        let mut state = self.state();
        if state.on_duty == Some(number) {
            state.task = Some(task);
        }
    }

    fn close(&self) {
        let task = self.state().task.take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl<C, S> Post<C, S> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One task's time on duty.
struct Shift<C: Clock, S: Store> {
    post: Arc<Post<C, S>>,
    number: u64,
}

impl<C: Clock, S: Store> Shift<C, S> {
    async fn run(self) {
        let post = &*self.post;
        while let Some(moment) = self.next() {
            if post.clock.now() >= moment {
                self.tell().await;
                continue;
            }
            tokio::select! {
                () = post.clock.sleep_until(moment) => {}
                () = post.woken.notified() => {}
            }
        }
    }

    /// The moment to tell it next. `None` where all is calm and told: the shift is over.
    fn next(&self) -> Option<Instant> {
        let mut state = self.post.state();
        let pause = if state.news { AT_MOST_EVERY } else { EVERY };
        if state.on_duty != Some(self.number) || !(state.news || state.again) {
            self.leave(&mut state);
            return None;
        }
        let moment = state.told.map_or(Instant::default(), |told| told + pause).max(state.not_before);
        state.due = moment.max(self.post.clock.now());
        Some(moment)
    }

    async fn tell(&self) {
        let post = &*self.post;
        let now = post.clock.now();
        {
            let mut state = post.state();
            (state.news, state.told, state.due) = (false, Some(now), now + post.store_call);
        }
        let snapshots = (post.look)();
        let shown = {
            let mut state = post.state();
            state.shown |= !snapshots.is_empty();
            state.shown
        };
        let mut outcome = Ok(Duration::ZERO);
        // Also where nothing is left: what was shown has to be taken away.
        if shown {
            let progress = Arc::new(Progress::default());
            let publish = post.store.publish(post.process, &snapshots, &progress);
            let told = post.clock.until(now + post.store_call, publish).await;
            outcome = told.unwrap_or_else(|| Err(StoreError::out_of_time(&progress)));
        }
        self.told(&snapshots, outcome);
    }

    fn told(&self, snapshots: &[Snapshot], outcome: Result<Duration, StoreError>) {
        let calm = snapshots.iter().all(Snapshot::is_calm);
        let first_refusal = {
            let now = self.post.clock.now();
            let mut state = self.post.state();
            if state.on_duty != Some(self.number) {
                return;
            }
            match &outcome {
                Ok(wait) if wait.is_zero() => {
                    (state.again, state.refused, state.shown) = (!calm, false, !snapshots.is_empty());
                    false
                }
                // Its second is not over: what is to be seen then.
                Ok(wait) => {
                    (state.news, state.not_before) = (true, now + (*wait).min(AT_MOST_EVERY));
                    false
                }
                Err(error) if error.kind == Failing::Misconfigured => {
                    (state.again, state.not_before) = (!calm, now + AFTER_REFUSAL);
                    !std::mem::replace(&mut state.refused, true)
                }
                Err(_) => {
                    state.again = true;
                    false
                }
            }
        };
        // Not under the lock: whoever listens may change a breaker.
        match outcome {
            Err(error) if error.kind != Failing::Misconfigured => {
                tracing::debug!(%error, "the store was not told what this process's breakers look like");
            }
            Err(error) if first_refusal => {
                tracing::info!(%error, "the store cannot show this process's breakers");
            }
            _ => {}
        }
    }

    fn leave(&self, state: &mut State) {
        if state.on_duty == Some(self.number) {
            (state.on_duty, state.task) = (None, None);
        }
    }
}

impl<C: Clock, S: Store> Drop for Shift<C, S> {
    /// Also where its runtime shuts down: the next change starts another.
    fn drop(&mut self) {
        self.leave(&mut self.post.state());
    }
}

#[cfg(test)]
mod tests;
