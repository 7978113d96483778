//! Tells the store that the vendor said "too many", so that everybody who shares the budget waits.
//!
//! A task of its own does it: neither does it delay the answer of the caller who heard it, nor is it lost when that caller
//! goes away. One report of a budget is on its way at a time; what is heard meanwhile is reported with the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::counters::Tally;
use crate::policy::Instant;
use crate::store::{Progress, Store};

/// A task that has not moved for so long after it ought to have stands still, with the runtime under it.
const OVERDUE: Duration = Duration::from_secs(5);

pub(crate) struct Pushbacks<C: Clock, S: Store>(Arc<Inner<C, S>>);

struct Inner<C: Clock, S: Store> {
    clock: C,
    store: Arc<S>,
    store_call: Duration,
    tally: Arc<Tally>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By budget.
    under_way: HashMap<Arc<str>, UnderWay>,
    /// How many ways there were.
    ways: u64,
}

/// A report on its way.
struct UnderWay {
    /// Of its way.
    number: u64,
    wanted: Wanted,
    /// When it has come to an end.
    due: Instant,
    /// What is to be reported after it.
    next: Option<Wanted>,
}

/// No slot before this moment.
#[derive(Clone)]
struct Wanted {
    until: Instant,
    reason: Arc<str>,
}

impl<C: Clock, S: Store> Pushbacks<C, S> {
    pub fn new(clock: C, store: Arc<S>, store_call: Duration, tally: Arc<Tally>) -> Self {
        Self(Arc::new(Inner { clock, store, store_call, tally, state: Mutex::default() }))
    }

    /// No slot of the budget is to start within this time.
    pub fn report(&self, budget: &Arc<str>, by: Duration, reason: Arc<str>) {
        let now = self.0.clock.now();
        let heard = Wanted { until: now + by, reason };
        // Not under the lock: a runtime that is shutting down drops the task at once, and that takes the lock.
        if let Some((way, wanted)) = self.0.way(now, budget, heard) {
            tokio::spawn(way.run(wanted));
        }
    }
}

impl<C: Clock, S: Store> Inner<C, S> {
    /// A new way, and its first report. None: what was heard goes with the one under way.
    fn way(self: &Arc<Self>, now: Instant, budget: &Arc<str>, heard: Wanted) -> Option<(Way<C, S>, Wanted)> {
        let mut state = self.state();
        let wanted = match state.under_way.get_mut(budget) {
            Some(under_way) if now < under_way.due + OVERDUE => {
                under_way.next = Some(heard.or_later(under_way.next.take()));
                return None;
            }
            // It stands still: nobody knows what of it the store has heard.
            Some(under_way) => heard.or_later(under_way.next.take()).or_later(Some(under_way.wanted.clone())),
            None => heard,
        };
        state.ways += 1;
        let (number, due) = (state.ways, now + self.store_call);
        let under_way = UnderWay { number, wanted: wanted.clone(), due, next: None };
        state.under_way.insert(Arc::clone(budget), under_way);
        Some((Way { inner: Arc::clone(self), budget: Arc::clone(budget), number }, wanted))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wanted {
    fn or_later(self, other: Option<Self>) -> Self {
        other.filter(|other| self.until < other.until).unwrap_or(self)
    }
}

/// The reports of one budget, one after the other.
struct Way<C: Clock, S: Store> {
    inner: Arc<Inner<C, S>>,
    budget: Arc<str>,
    number: u64,
}

impl<C: Clock, S: Store> Way<C, S> {
    async fn run(self, first: Wanted) {
        let mut next = Some(first);
        while let Some(wanted) = next {
            self.report(wanted).await;
            next = self.next();
        }
    }

    async fn report(&self, Wanted { until, reason }: Wanted) {
        let Inner { clock, store, store_call, tally, .. } = &*self.inner;
        let now = clock.now();
        let left = until.saturating_since(now);
        if left.is_zero() {
            return;
        }
        let (budget, progress) = (&*self.budget, Arc::<Progress>::default());
        tally.pushbacks.add(1);
        let told = clock.until(now + *store_call, store.report_pushback(budget, left, &reason, &progress)).await;
        let ended = clock.now();
        let (stage, failed) = match told {
            Some(Ok(_)) => return tally.store.answered(now, ended),
            Some(Err(error)) => (error.stage, error.to_string()),
            None => (progress.stage(), format!("no answer within {store_call:?} (stage {})", progress.stage())),
        };
        tally.store.failed(stage, now, ended);
        tally.pushback_failures.add(1);
        tracing::warn!(budget, reason = &*reason, error = failed, "call_budget_pushback_not_reported");
    }

    /// What was heard meanwhile. None: this way has ended, or another one has taken its place.
    fn next(&self) -> Option<Wanted> {
        let due = self.inner.clock.now() + self.inner.store_call;
        let mut state = self.inner.state();
        let under_way = state.under_way.get_mut(&self.budget).filter(|one| one.number == self.number)?;
        if let Some(next) = under_way.next.take() {
            (under_way.wanted, under_way.due) = (next.clone(), due);
            return Some(next);
        }
        state.under_way.remove(&self.budget);
        None
    }
}

impl<C: Clock, S: Store> Drop for Way<C, S> {
    /// Also where its runtime shuts down: the next report begins another.
    fn drop(&mut self) {
        let mut state = self.inner.state();
        if state.under_way.get(&self.budget).is_some_and(|one| one.number == self.number) {
            state.under_way.remove(&self.budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_util::{ManualClock, MemoryStore};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_way_that_has_ended_leaves_a_newer_one_alone() {
        let clock = ManualClock::at(Instant::default() + SECOND);
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let pushbacks = Pushbacks::new(clock.clone(), store, SECOND, Arc::default());
        let (budget, heard) = (Arc::from("kis-real"), || Wanted { until: clock.now() + SECOND, reason: "why".into() });
        let (first, _) = pushbacks.0.way(clock.now(), &budget, heard()).expect("nothing is under way");
        assert!(pushbacks.0.way(clock.now(), &budget, heard()).is_none(), "it goes with the first");
        assert!(first.next().is_some() && first.next().is_none());
        let (second, _) = pushbacks.0.way(clock.now(), &budget, heard()).expect("the first has ended");
        drop(first);
        assert!(pushbacks.0.way(clock.now(), &budget, heard()).is_none(), "the second is under way");
        drop(second);
        assert!(pushbacks.0.state().under_way.is_empty());
    }

    #[test]
    fn a_way_that_stands_still_is_replaced_and_what_it_had_to_report_is_not_lost() {
        let clock = ManualClock::at(Instant::default() + SECOND);
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let pushbacks = Pushbacks::new(clock.clone(), store, SECOND, Arc::default());
        let budget = Arc::from("kis-real");
        let heard = |seconds| Wanted { until: clock.now() + SECOND * seconds, reason: "why".into() };
        let (still, longest) = pushbacks.0.way(clock.now(), &budget, heard(60)).expect("nothing is under way");
        clock.advance(SECOND + OVERDUE);
        let (_second, wanted) = pushbacks.0.way(clock.now(), &budget, heard(1)).expect("the first stands still");
        assert_eq!(wanted.until, longest.until);
        assert!(still.next().is_none(), "it is not needed any longer");
        drop(still);
        assert!(pushbacks.0.way(clock.now(), &budget, heard(1)).is_none(), "the second is under way");
    }
}
