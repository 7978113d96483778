//! The breakers and holds of one process, to be looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::config::surfaces::Surface;
use crate::figures::BreakerFigures;
use crate::policy::Instant;
use crate::policy::breaker::{Shown, View};
use crate::policy::hold::{Held, Holds};
use crate::store::breakers::Snapshot;

/// One breaker as it is now, and what is held on the surfaces behind it. A surface without a breaker has one that never opens
/// while something is held on it.
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
    /// The surfaces without one.
    others: Vec<Arc<Surface>>,
    holds: Mutex<Holds>,
}

impl<C: Clock> Board<C> {
    pub fn new(clock: C, breakers: Breakers<C>, others: Vec<Arc<Surface>>) -> Self {
        Self { clock, breakers, others, holds: Mutex::default() }
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

    /// By name.
    pub fn reports(&self) -> Vec<BreakerReport> {
        let now = self.clock.now();
        let shared = self.breakers.values().flat_map(|(_, surfaces)| surfaces);
        let accounts: BTreeSet<&str> = shared.chain(&self.others).map(|surface| &*surface.account).collect();
        let credentials =
            accounts.into_iter().map(|account| (account, self.holds().of_account(now, account))).collect();
        let breakers = self
            .breakers
            .iter()
            .map(|(name, (breaker, surfaces))| self.report(now, name, breaker.view(), surfaces, &credentials));
        let others = self
            .others
            .iter()
            .map(|surface| self.report(now, &surface.name, never_opens(), std::slice::from_ref(surface), &credentials));
        let mut reports: Vec<_> = breakers.chain(others.filter(|report| !report.holds.is_empty())).collect();
        reports.sort_by(|one, other| one.name.cmp(&other.name));
        reports
    }

    /// Of the breakers alone: what is held is no state of theirs.
    pub fn figures(&self) -> Vec<BreakerFigures> {
        let breakers = self.breakers.iter();
        breakers
            .map(|(name, (breaker, surfaces))| BreakerFigures {
                breaker: Arc::clone(name),
                surfaces: surfaces.iter().map(|surface| Arc::clone(&surface.name)).collect(),
                state: breaker.view().shown,
                transitions: breaker.book().transitions(),
                episodes: breaker.book().episodes(),
            })
            .collect()
    }

    pub fn snapshots(&self) -> Vec<Snapshot> {
        let now = self.clock.now();
        let snapshot = |BreakerReport { name, surfaces, view, holds }| Snapshot {
            retry_after: view.retry_at.map(|at| at.saturating_since(now)),
            breaker: name,
            surfaces,
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

    fn report(
        &self,
        now: Instant,
        name: &Arc<str>,
        mut view: View,
        surfaces: &[Arc<Surface>],
        credentials: &BTreeMap<&str, Vec<Held>>,
    ) -> BreakerReport {
        let of_surfaces: Vec<Held> = {
            let held = self.holds();
            surfaces.iter().filter_map(|surface| held.of_surface(now, &surface.name)).collect()
        };
        // Nobody passes while all of them are held.
        if let Some(first) = of_surfaces.iter().min_by_key(|held| held.until)
            && of_surfaces.len() == surfaces.len()
            && view.shown == Shown::Closed
        {
            (view.shown, view.why, view.retry_at) = (Shown::Held, first.why.as_ref().to_owned(), Some(first.until));
        }
        // A credential is known on all surfaces of its account.
        let accounts: BTreeSet<&str> = surfaces.iter().map(|surface| &*surface.account).collect();
        let of_accounts = accounts.into_iter().filter_map(|account| credentials.get(account)).flatten().cloned();
        BreakerReport {
            name: Arc::clone(name),
            surfaces: surfaces.iter().map(|s| Arc::clone(&s.name)).collect(),
            view,
            holds: of_surfaces.into_iter().chain(of_accounts).collect(),
        }
    }
}

/// What there is to see where no breaker is.
fn never_opens() -> View {
    View {
        shown: Shown::Closed,
        failure_rate: None,
        slow_rate: None,
        streak: 0,
        calls: 0,
        successes: 0,
        failures: 0,
        rejected: 0,
        stale: 0,
        why: String::new(),
        retry_at: None,
        rung: 0,
        epoch: 0,
        episode: None,
    }
}
