//! Keeps sight of the store's clock while the process rests: a probe when nothing was heard for 10 s.
//!
//! Why: a bracket that is 50 s old is widened by 51 ms, one of 10 s by 11 ms: the younger it is, the smaller a step it
//! finds. A task does it from the first permit on, until nobody has acquired for 60 s or the last `CallBudget` is dropped.
//! It makes no call while a lane's call is in flight, whose answer is as good. Its failures mean nothing: whether the store
//! is out is judged by the lanes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::watch::{EVERY, Watch};
use crate::clock::Clock;
use crate::counters::Tally;
use crate::policy::Instant;
use crate::policy::store_clock::MEMORY;
use crate::store::{Progress, Store, StoreError};

/// A task that has not moved for so long after it ought to have stands still, with the runtime under it.
const OVERDUE: Duration = Duration::from_secs(5);

/// The keeper of one process and store. Dropping it ends its task.
pub(crate) struct Keeper<C: Clock, S: Store>(Arc<Post<C, S>>);

struct Post<C, S> {
    clock: C,
    store: Arc<S>,
    tally: Arc<Tally>,
    watch: Arc<Watch>,
    store_call: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When somebody last acquired.
    acquired: Instant,
    /// When the last probe began.
    probed: Instant,
    /// The task on duty, by number; how many there were; and when the present one moves next.
    on_duty: Option<u64>,
    shifts: u64,
    due: Instant,
    task: Option<AbortHandle>,
}

impl<C: Clock, S: Store> Keeper<C, S> {
    pub fn new(clock: C, store: Arc<S>, tally: Arc<Tally>, watch: Arc<Watch>, store_call: Duration) -> Self {
        Self(Arc::new(Post { clock, store, tally, watch, store_call, state: Mutex::default() }))
    }

    /// Somebody has acquired: sees to it that a task keeps watch from now on.
    pub fn acquired(&self) {
        let now = self.0.clock.now();
        let (number, before) = {
            let mut state = self.0.state();
            state.acquired = now;
            if state.on_duty.is_some() && now <= state.due + OVERDUE {
                return;
            }
            state.shifts += 1;
            (state.on_duty, state.due) = (Some(state.shifts), now);
            (state.shifts, state.task.take())
        };
        // Not under the lock: a task that ends takes it.
        if let Some(standing_still) = before {
            standing_still.abort();
        }
        let task = tokio::spawn(Shift { post: Arc::clone(&self.0), number }.run()).abort_handle();
        let mut state = self.0.state();
        if state.on_duty == Some(number) {
            state.task = Some(task);
        } else {
            drop(state);
            task.abort();
        }
    }
}

impl<C: Clock, S: Store> Drop for Keeper<C, S> {
    fn drop(&mut self) {
        let task = self.0.state().task.take();
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
            post.clock.sleep_until(moment).await;
            let now = post.clock.now();
            if moment <= now && post.watch.probe_at(now) <= now && self.begins_probe(now) {
                post.tally.probes.add(1);
                let progress = Arc::new(Progress::default());
                let probe = post.clock.until(now + post.store_call, post.store.probe(&progress)).await;
                let (book, ended) = (&post.tally.store, post.clock.now());
                match probe.unwrap_or_else(|| Err(StoreError::out_of_time(&progress))) {
                    Ok(reply) => {
                        book.answered(now, ended);
                        post.watch.probed(&reply);
                    }
                    Err(error) => {
                        book.failed(error.stage, now, ended);
                        tracing::debug!(%error, "the store's clock could not be read");
                    }
                }
            }
        }
    }

    /// The moment to look at the store next. `None` where nobody has acquired for long: the shift is over.
    fn next(&self) -> Option<Instant> {
        let post = &*self.post;
        let now = post.clock.now();
        let probe_at = post.watch.probe_at(now);
        let mut state = post.state();
        let end = state.acquired + MEMORY;
        if state.on_duty != Some(self.number) || now >= end {
            self.leave(&mut state);
            return None;
        }
        let moment = probe_at.max(state.probed + EVERY).min(end);
        state.due = moment;
        Some(moment)
    }

    fn begins_probe(&self, now: Instant) -> bool {
        let mut state = self.post.state();
        let due = now < state.acquired + MEMORY && now >= state.probed + EVERY;
        if due {
            (state.probed, state.due) = (now, now + self.post.store_call);
        }
        due && state.on_duty == Some(self.number)
    }

    fn leave(&self, state: &mut State) {
        if state.on_duty == Some(self.number) {
            (state.on_duty, state.task) = (None, None);
        }
    }
}

impl<C: Clock, S: Store> Drop for Shift<C, S> {
    /// Also where its runtime shuts down: the next acquire starts another.
    fn drop(&mut self) {
        self.leave(&mut self.post.state());
    }
}
