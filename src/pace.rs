//! A process on its own, while the switch is off: each class keeps its polite pace, with few calls in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;
use crate::error::{AcquireError, Code};
use crate::policy::Instant;
use crate::policy::polite::Polite;

/// Budget and class.
pub(crate) type Key = (Arc<str>, Arc<str>);

pub(crate) struct Paces {
    interval: Duration,
    concurrency: usize,
    classes: Mutex<HashMap<Key, Class>>,
    /// Budgets whose vendor said "too many", and until when nothing starts there.
    pushed_back: Mutex<HashMap<Arc<str>, Instant>>,
}

#[derive(Clone)]
struct Class {
    places: Arc<Semaphore>,
    pace: Arc<Mutex<Polite>>,
}

impl Paces {
    pub fn new(interval: Duration, concurrency: usize) -> Self {
        Self { interval, concurrency, classes: Mutex::default(), pushed_back: Mutex::default() }
    }

    /// A place for one call of the class, when its turn has come.
    pub async fn place<C: Clock>(
        &self,
        key: &Key,
        clock: &C,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        let Class { places, pace } = self.class(key);
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
        let known = pushed_back.entry(Arc::clone(budget)).or_insert(until);
        *known = until.max(*known);
    }

    fn pushed_back(&self, budget: &Arc<str>) -> Instant {
        let pushed_back = self.pushed_back.lock().unwrap_or_else(PoisonError::into_inner);
        pushed_back.get(budget).copied().unwrap_or_default()
    }

    fn class(&self, key: &Key) -> Class {
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Class {
            places: Arc::new(Semaphore::new(self.concurrency)),
            pace: Arc::new(Mutex::new(Polite::new(self.interval))),
        };
        classes.entry(key.clone()).or_insert_with(new).clone()
    }
}

fn too_long((budget, class): &Key) -> AcquireError {
    let message = format!("budget \"{budget}\", class \"{class}\": max_wait passed at this process's own polite pace");
    AcquireError::new(Code::WaitExceeded, message)
}
