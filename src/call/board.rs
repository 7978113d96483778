//! The breakers and holds of one process, to be looked at.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::config::surfaces::Surface;
use crate::policy::breaker::{Shown, View};
use crate::policy::hold::{Held, Holds};
use crate::store::breakers::Snapshot;

/// One breaker as it is now, and what is held on the surfaces behind it.
#[derive(Clone, Debug)]
pub struct BreakerReport {
    /// Its surface, or what the surfaces that share it call it.
    pub name: Arc<str>,
    pub surfaces: Vec<Arc<str>>,
    pub view: View,
    pub holds: Vec<Held>,
}

/// By name: each breaker, and the surfaces that share it.
pub(super) type Breakers<C> = BTreeMap<Arc<str>, (Breaker<C>, Vec<Arc<Surface>>)>;

pub(crate) struct Board<C: Clock> {
    clock: C,
    breakers: Breakers<C>,
    holds: Mutex<Holds>,
}

impl<C: Clock> Board<C> {
    pub fn new(clock: C, breakers: Breakers<C>) -> Self {
        Self { clock, breakers, holds: Mutex::default() }
    }

    pub fn clock(&self) -> &C {
        &self.clock
    }

    pub fn breaker(&self, name: &str) -> Option<&Breaker<C>> {
        self.breakers.get(name).map(|(breaker, _)| breaker)
    }

    pub fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reports(&self) -> Vec<BreakerReport> {
        self.breakers.iter().map(|(name, (breaker, surfaces))| self.report(name, breaker, surfaces)).collect()
    }

    pub fn snapshots(&self) -> Vec<Snapshot> {
        let now = self.clock.now();
        let snapshot = |BreakerReport { name, view, holds, .. }| Snapshot {
            retry_after: view.retry_at.map(|at| at.saturating_since(now)),
            breaker: name,
            view,
            holds: holds.into_iter().map(|held| (held.scope, held.until.saturating_since(now), held.why)).collect(),
        };
        self.reports().into_iter().map(snapshot).collect()
    }

    pub fn tend(&self) {
        for (breaker, _) in self.breakers.values() {
            breaker.tend();
        }
    }

    /// Time alone changes nothing that anybody would want to hear of.
    pub fn calm(&self) -> bool {
        self.breakers.values().all(|(breaker, _)| {
            let view = breaker.view();
            view.shown == Shown::Closed && view.episode.is_none()
        })
    }

    fn report(&self, name: &Arc<str>, breaker: &Breaker<C>, surfaces: &[Arc<Surface>]) -> BreakerReport {
        let (now, mut holds) = (self.clock.now(), Vec::<Held>::new());
        let mut view = breaker.view();
        let mut all_held: Option<Held> = None;
        let mut passes = false;
        {
            let held = self.holds();
            for surface in surfaces {
                let of_surface = held.of_surface(now, &surface.name, &surface.account);
                match of_surface.iter().find(|held| held.scope.starts_with("surface ")) {
                    Some(whole) if all_held.as_ref().is_none_or(|first| whole.until < first.until) => {
                        all_held = Some(whole.clone());
                    }
                    Some(_) => {}
                    None => passes = true,
                }
                // A credential is known on more than one surface.
                holds.extend(of_surface.into_iter().filter(|new| !holds.contains(new)).collect::<Vec<_>>());
            }
        }
        if let Some(held) = all_held
            && !passes
            && view.shown == Shown::Closed
        {
            (view.shown, view.why, view.retry_at) = (Shown::Held, held.why.as_ref().to_owned(), Some(held.until));
        }
        BreakerReport {
            name: Arc::clone(name),
            surfaces: surfaces.iter().map(|s| Arc::clone(&s.name)).collect(),
            view,
            holds,
        }
    }
}
