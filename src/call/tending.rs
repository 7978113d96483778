//! Sees to it that what time alone makes due is told while nobody calls: a quiet episode ends, a probe is lost.
//!
//! It decides nothing that the next call would not decide. A task does it from the first trip on, until every breaker is
//! calm or the `CallBudget` is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::board::Board;
use crate::clock::Clock;

const EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Tending(Mutex<State>);

#[derive(Default)]
struct State {
    on_duty: bool,
    over: bool,
    task: Option<AbortHandle>,
}

impl Tending {
    /// A breaker has changed: sees to it that a task looks after all of them.
    pub fn begin<C: Clock>(self: &Arc<Self>, board: &Weak<Board<C>>) {
        // Orders given from a thread without a runtime are told with the next call.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        {
            let mut state = self.state();
            if state.on_duty || state.over {
                return;
            }
            state.on_duty = true;
        }
        // Not under the lock: a runtime that is shutting down drops the task at once, and that takes the lock.
        let duty = Duty(Some(Arc::clone(self)));
        let task = runtime.spawn(tend(duty, Weak::clone(board))).abort_handle();
        let mut state = self.state();
        if state.over {
            drop(state);
            task.abort();
        } else {
            state.task = Some(task);
        }
    }

    pub fn end(&self) {
        let task = {
            let mut state = self.state();
            state.over = true;
            state.task.take()
        };
        if let Some(task) = task {
            task.abort();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn tend<C: Clock>(mut duty: Duty, board: Weak<Board<C>>) {
    while let Some(clock) = board.upgrade().map(|board| board.clock().clone()) {
        clock.sleep_until(clock.now() + EVERY).await;
        let Some(board) = board.upgrade() else {
            return;
        };
        board.tend();
        if duty.ends_if(|| board.calm()) {
            return;
        }
    }
}

/// Its task's time on duty; `None` once it is over.
struct Duty(Option<Arc<Tending>>);

impl Duty {
    /// Whether it is over. Decided under the lock: a change that comes now begins another.
    fn ends_if(&mut self, calm: impl FnOnce() -> bool) -> bool {
        let Some(tending) = &self.0 else {
            return true;
        };
        {
            let mut state = tending.state();
            if !calm() {
                return false;
            }
            state.on_duty = false;
        }
        self.0 = None;
        true
    }
}

impl Drop for Duty {
    /// Where its runtime shuts down: the next change begins another.
    fn drop(&mut self) {
        if let Some(tending) = &self.0 {
            tending.state().on_duty = false;
        }
    }
}
