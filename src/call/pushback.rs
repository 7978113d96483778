//! Tells the store that the vendor said "too many", so that everybody who shares the budget waits.
//!
//! A task of its own does it: neither does it delay the answer of the caller who heard it, nor is it lost when that caller
//! goes away. One report of a budget is on its way at a time; what is heard meanwhile is reported with the next one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::counters::Tally;
use crate::policy::Instant;
use crate::store::{Progress, Store};

pub(crate) struct Pushbacks<C: Clock, S: Store>(Arc<Inner<C, S>>);

struct Inner<C: Clock, S: Store> {
    clock: C,
    store: Arc<S>,
    store_call: Duration,
    tally: Arc<Tally>,
    /// The budgets with a report on its way, and what is to be reported next.
    under_way: Mutex<HashMap<Arc<str>, Option<Wanted>>>,
}

/// No slot before this moment.
#[derive(Clone)]
struct Wanted {
    until: Instant,
    reason: Arc<str>,
}

impl<C: Clock, S: Store> Pushbacks<C, S> {
    pub fn new(clock: C, store: Arc<S>, store_call: Duration, tally: Arc<Tally>) -> Self {
        Self(Arc::new(Inner { clock, store, store_call, tally, under_way: Mutex::default() }))
    }

    /// No slot of the budget is to start within this time.
    pub fn report(&self, budget: &Arc<str>, by: Duration, reason: Arc<str>) {
        let wanted = Wanted { until: self.0.clock.now() + by, reason };
        match self.0.under_way().entry(Arc::clone(budget)) {
            Entry::Occupied(mut entry) => {
                let next = entry.get_mut();
                if next.as_ref().is_none_or(|next| next.until < wanted.until) {
                    *next = Some(wanted);
                }
                return;
            }
            Entry::Vacant(entry) => drop(entry.insert(None)),
        }
        // Not under the lock: a runtime that is shutting down drops the task at once, and that takes the lock.
        let way = Way { inner: Arc::clone(&self.0), budget: Arc::clone(budget), over: false };
        tokio::spawn(way.run(wanted));
    }
}

impl<C: Clock, S: Store> Inner<C, S> {
    fn under_way(&self) -> MutexGuard<'_, HashMap<Arc<str>, Option<Wanted>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reports of one budget, one after the other.
struct Way<C: Clock, S: Store> {
    inner: Arc<Inner<C, S>>,
    budget: Arc<str>,
    over: bool,
}

impl<C: Clock, S: Store> Way<C, S> {
    async fn run(mut self, first: Wanted) {
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
        let failed = match clock.until(now + *store_call, store.report_pushback(budget, left, &reason, &progress)).await
        {
            Some(Ok(_)) => return,
            Some(Err(error)) => error.to_string(),
            None => format!("no answer within {store_call:?} (stage {})", progress.stage()),
        };
        tally.pushback_failures.add(1);
        tracing::warn!(budget, reason = &*reason, error = failed, "call_budget_pushback_not_reported");
    }

    /// What was heard meanwhile. None: this way has ended.
    fn next(&mut self) -> Option<Wanted> {
        let mut under_way = self.inner.under_way();
        let next = under_way.get_mut(&self.budget).and_then(Option::take);
        if next.is_none() {
            under_way.remove(&self.budget);
            self.over = true;
        }
        next
    }
}

impl<C: Clock, S: Store> Drop for Way<C, S> {
    /// Where its runtime shuts down: the next report begins another.
    fn drop(&mut self) {
        if !self.over {
            self.inner.under_way().remove(&self.budget);
        }
    }
}
