//! What the lanes of one process know together of the store's clock: one store, one clock, whoever asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::policy::Instant;
use crate::policy::step_fence::{StepFence, Wanted};
use crate::policy::store_clock::{Bracket, Step, StoreClock};
use crate::store::Reply;

/// A store that has not been heard for this long is asked for its clock.
pub(super) const EVERY: Duration = Duration::from_secs(10);
/// How long before the keeper looks again whether a lane's call is still in flight. Such a call ends by its own deadline.
const LOOK: Duration = Duration::from_secs(1);

/// The watch over the store's clock, shared by all lanes.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    clock: StoreClock,
    /// Only budgets that the store knows: names that do not exist must not pile up.
    budgets: HashMap<Arc<str>, StepFence>,
    /// When the store last answered, or was last asked in vain.
    heard: Instant,
    /// Calls of lanes that are in flight.
    calls: usize,
}

/// What an answer says of the store's clock.
pub(crate) struct Judged {
    /// What it granted may be used.
    pub counts: bool,
    /// It is the first to show this step.
    pub step: Option<Step>,
    /// It is the first to show so many fences of the budget, after one that showed fewer.
    pub fences: Option<i64>,
}

impl Watch {
    /// An answer to a lane that asked under `budget`.
    pub fn answered(&self, budget: &Arc<str>, reply: &Reply) -> Judged {
        let Reply { asked, answered, answer } = reply;
        let mut state = self.state();
        state.heard = state.heard.max(*answered);
        // No such budget: nothing was granted, and the answer does not tell its timeline.
        if answer.timeline == 0 {
            state.clock.probed(bracket(reply));
            return Judged { counts: true, step: None, fences: None };
        }
        let step = state.clock.answered(bracket(reply), answer.timeline);
        let latest = state.clock.latest();
        let fence = state.budgets.entry(Arc::clone(budget)).or_default();
        let fences = fence.seen().filter(|seen| answer.fences > *seen).map(|_| answer.fences);
        let counts = fence.counts(latest, *asked, *answered, answer.fences, answer.promise());
        Judged { counts, step, fences }
    }

    /// An answer to a probe.
    pub fn probed(&self, reply: &Reply) {
        let mut state = self.state();
        state.heard = state.heard.max(reply.answered);
        state.clock.probed(bracket(reply));
    }

    /// A call brought no answer. While lanes try again and again, a probe would be one attempt more.
    pub fn failed(&self, now: Instant) {
        let mut state = self.state();
        state.heard = state.heard.max(now);
    }

    /// The fence that is to be asked for before anything else.
    pub fn wanted(&self, budget: &str, now: Instant) -> Option<Wanted> {
        self.state().budgets.get(budget)?.wanted(now)
    }

    /// The store was asked for that fence, and has answered.
    pub fn settle(&self, budget: &str, wanted: Wanted, fenced: bool, answered: Instant) {
        if let Some(fence) = self.state().budgets.get_mut(budget) {
            fence.settle(wanted, fenced, answered);
        }
    }

    /// Asking under the budget before this moment brings nothing that counts.
    pub fn counts_from(&self, budget: &str) -> Instant {
        self.state().budgets.get(budget).map_or(Instant::default(), StepFence::counts_from)
    }

    /// A lane's call is in flight for as long as this is held.
    pub fn call(&self) -> Call<'_> {
        self.state().calls += 1;
        Call(self)
    }

    /// When the store is to be asked for its clock, if nothing is heard of it until then.
    pub fn probe_at(&self, now: Instant) -> Instant {
        let state = self.state();
        let at = state.heard + EVERY;
        if state.calls > 0 { at.max(now + LOOK) } else { at }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane's call in flight.
pub(crate) struct Call<'a>(&'a Watch);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.state().calls -= 1;
    }
}

fn bracket(reply: &Reply) -> Bracket {
    let Reply { asked, answered, answer } = reply;
    Bracket { asked: *asked, answered: *answered, store_us: answer.store_clock_us }
}
