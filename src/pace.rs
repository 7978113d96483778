//! A process on its own, while the switch is off: each class keeps its polite pace, with few calls in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;
use crate::error::{AcquireError, Code};
use crate::figures::{ClassBook, Ledger};
use crate::policy::Instant;
use crate::policy::polite::Polite;

/// Budget and class.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// Names that callers make up must not pile up: so many classes have a pace of their own, and so many budgets a pushback.
const MOST: usize = 1_000;

pub(crate) struct Paces {
    interval: Duration,
    concurrency: usize,
    classes: Mutex<HashMap<Key, Class>>,
    /// What the classes beyond `MOST` share.
    rest: OnceLock<Class>,
    /// Budgets whose vendor said "too many", and until when nothing starts there.
    pushed_back: Mutex<HashMap<Arc<str>, Instant>>,
}

#[derive(Clone)]
pub(crate) struct Class {
    places: Arc<Semaphore>,
    pace: Arc<Mutex<Polite>>,
    book: Arc<ClassBook>,
}

impl Paces {
    pub fn new(interval: Duration, concurrency: usize) -> Self {
        Self { interval, concurrency, classes: Mutex::default(), rest: OnceLock::new(), pushed_back: Mutex::default() }
    }

    /// What is kept of a class: where there are too many, the same for all further ones.
    pub fn class(&self, key: &Key, ledger: &Ledger) -> Class {
        let mut classes = self.classes();
        let others = classes.len();
        let new = || Class {
            places: Arc::new(Semaphore::new(self.concurrency)),
            pace: Arc::new(Mutex::new(Polite::new(self.interval))),
            book: ledger.open(&key.0, &key.1, others),
        };
        match classes.get(key) {
            Some(class) => class.clone(),
            None if others >= MOST => self.rest.get_or_init(new).clone(),
            None => classes.entry(key.clone()).or_insert_with(new).clone(),
        }
    }

    /// Where the callers of all classes are counted.
    pub fn books(&self) -> Vec<Arc<ClassBook>> {
        self.classes().values().map(|class| Arc::clone(&class.book)).collect()
    }

    /// A place for one call of the class, when its turn has come.
    pub async fn place<C: Clock>(
        &self,
        key: &Key,
        class: Class,
        clock: &C,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        let Class { places, pace, .. } = class;
        let place = clock.until(deadline, places.acquire_owned()).await.ok_or_else(|| too_long(key))?;
        let place = place.expect("the places are never closed");
        let start = {
            let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
            let now = clock.now();
            let from = now.max(self.pushed_back(&key.0));
            let start = pace.next_start(from);
            if start > deadline {
                return Err(AcquireError { retry_after: Some(start.saturating_since(now)), ..too_long(key) });
            }
            pace.take(from)
        };
        clock.sleep_until(start).await;
        Ok(place)
    }

    /// No call of this budget starts before `until`. One whose turn has already come still leaves.
    pub fn push_back(&self, budget: &Arc<str>, until: Instant) {
        let mut pushed_back = self.pushed_back.lock().unwrap_or_else(PoisonError::into_inner);
        if pushed_back.len() >= MOST && !pushed_back.contains_key(budget) {
            // The first to be over is the first to be forgotten.
            let first = pushed_back.iter().min_by_key(|(_, until)| **until).map(|(budget, _)| Arc::clone(budget));
            first.map(|first| pushed_back.remove(&first));
        }
        let known = pushed_back.entry(Arc::clone(budget)).or_insert(until);
        *known = until.max(*known);
    }

    fn classes(&self) -> MutexGuard<'_, HashMap<Key, Class>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pushed_back(&self, budget: &Arc<str>) -> Instant {
        let pushed_back = self.pushed_back.lock().unwrap_or_else(PoisonError::into_inner);
        pushed_back.get(budget).copied().unwrap_or_default()
    }
}

impl Class {
    /// Where its callers are counted.
    pub fn book(&self) -> &Arc<ClassBook> {
        &self.book
    }
}

fn too_long((budget, class): &Key) -> AcquireError {
    let message = format!("budget \"{budget}\", class \"{class}\": max_wait passed at this process's own polite pace");
    AcquireError::new(Code::WaitExceeded, message)
}
