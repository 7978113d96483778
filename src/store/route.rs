//! Which addresses the store may have, in which order they are worth trying, and which of them are still its own.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::connect::Target;
use super::dns::{Family, Resolved};
use super::{Progress, StoreError, dns};
use crate::clock::Clock;
use crate::config::connection::{Connection, Host, Place};
use crate::policy::Instant;
use crate::policy::stage::Stage;

/// Once one name has answered, the others get as long.
const OTHERS: Duration = Duration::from_millis(250);

/// Whoever resolves again at the end of a time to live stands still if it has not by then.
const OVERDUE: Duration = Duration::from_secs(2);

/// How long IPv6 addresses are waited for where they matter.
const WAIT_FOR_V6: Duration = Duration::from_millis(300);

/// One resolution at the end of its time to live ends by then; the next is a second later.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The way to the store, with what was learnt about it. Shared by all sessions of a process.
pub(super) struct Route {
    connection: Arc<Connection>,
    learnt: Mutex<Learnt>,
}

#[derive(Default)]
struct Learnt {
    /// How many failures there were when this target failed last. One that has served since is not in here.
    failed: HashMap<Target, u64>,
    failures: u64,
    served: Option<Target>,
    /// For each host of the settings the addresses that it stands for, as of its last answer.
    current: Vec<Vec<Target>>,
    look_again: Option<Instant>,
}

impl Route {
    pub fn new(connection: Arc<Connection>) -> Self {
        Self { connection, learnt: Mutex::default() }
    }

    /// All addresses at present: the one that served last first, those that failed lately last.
    pub async fn targets<C: Clock>(&self, clock: &C, progress: &Progress) -> Result<Vec<Target>, StoreError> {
        if self.names().next().is_some() {
            progress.enter(Stage::Dns);
            let names: Vec<_> = self.names().map(|host| format!("{:?}", host.place.to_string())).collect();
            progress.towards(names.join(", "));
        }
        // Where all that is known has failed, there may be more to know.
        let wait_for_v6 = if self.has_only_failed() { WAIT_FOR_V6 } else { Duration::ZERO };
        self.resolve(clock, wait_for_v6).await?;
        Ok(self.learnt().in_order())
    }

    /// Resolves the names once more, if it is time. Whoever is connected to an address that is no longer the store's finds
    /// out by [`Route::leads_to`].
    pub async fn refresh<C: Clock>(&self, clock: &C) {
        let now = clock.now();
        if self.look_again().is_some_and(|moment| moment <= now) {
            self.learnt().look_again = Some(now + LOOK_AGAIN);
            if let Some(Err(error)) = clock.until(now + LOOK_AGAIN, self.resolve(clock, WAIT_FOR_V6)).await {
                tracing::debug!(%error, "the store's name cannot be looked up, its sessions stay");
            }
        }
    }

    /// When the names are to be resolved again; `None` where there is none.
    pub fn look_again(&self) -> Option<Instant> {
        self.learnt().look_again
    }

    /// Whether the store's names still stand for this address.
    pub fn leads_to(&self, target: &Target) -> bool {
        self.learnt().current.iter().flatten().any(|current| current == target)
    }

    /// Whether every known address has failed since it last served.
    pub fn has_only_failed(&self) -> bool {
        self.learnt().has_only_failed()
    }

    /// Whether the names ought to have been resolved again a while ago.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.look_again().is_some_and(|moment| moment + OVERDUE < now)
    }

    /// A session on this target is ready.
    pub fn served(&self, target: &Target) {
        let mut learnt = self.learnt();
        learnt.failed.remove(target);
        learnt.served = Some(target.clone());
    }

    /// This target cannot be used, or a session on it came in doubt.
    pub fn failed(&self, target: &Target) {
        let mut learnt = self.learnt();
        learnt.failures += 1;
        let number = learnt.failures;
        learnt.failed.insert(target.clone(), number);
        learnt.served.take_if(|served| served == target);
    }

    fn names(&self) -> impl Iterator<Item = &Host> {
        self.connection.hosts.iter().filter(|host| matches!(host.place, Place::Name(_)))
    }

    /// Asks for all names at once. One that stays silent does not hold up the others: what it stood for before stays.
    async fn resolve<C: Clock>(&self, clock: &C, wait_for_v6: Duration) -> Result<(), StoreError> {
        let Connection { hosts, nameservers, .. } = &*self.connection;
        let mut found: Vec<Option<Vec<Target>>> = hosts.iter().map(literal).collect();
        let mut questions: FuturesUnordered<_> = hosts
            .iter()
            .enumerate()
            .filter_map(|(index, host)| match &host.place {
                Place::Name(name) => Some((index, host, name)),
                Place::Address(_) | Place::Socket(_) => None,
            })
            .map(|(index, host, name)| async move {
                (index, host, dns::resolve(clock, name, nameservers, wait_for_v6).await)
            })
            .collect();
        let mut look_again: Option<Instant> = None;
        let mut failure = None;
        // Only for as long as there is something else to try.
        let mut patience = found.iter().any(Option::is_some).then(|| clock.now() + OTHERS);
        while !questions.is_empty() {
            tokio::select! {
                biased;
                Some((index, host, answer)) = questions.next() => match answer {
                    Ok(resolved) => {
                        let now = clock.now();
                        let fresh_until = now + resolved.fresh_for;
                        look_again = Some(look_again.map_or(fresh_until, |moment| moment.min(fresh_until)));
                        patience.get_or_insert(now + OTHERS);
                        found[index] = Some(self.learnt().addresses(index, host, &resolved));
                    }
                    Err(error) => failure = Some(error),
                },
                () = sleep_until(clock, patience) => break,
            }
        }
        if let Some(error) = failure.take_if(|_| found.iter().all(Option::is_none)) {
            return Err(error);
        }
        let mut learnt = self.learnt();
        learnt.current.resize(hosts.len(), Vec::new());
        for (current, found) in learnt.current.iter_mut().zip(found) {
            match found {
                Some(found) => *current = found,
                None => {
                    let soon = clock.now() + LOOK_AGAIN;
                    look_again = Some(look_again.map_or(soon, |moment| moment.min(soon)));
                }
            }
        }
        learnt.look_again = look_again;
        let known: HashSet<Target> = learnt.current.iter().flatten().cloned().collect();
        learnt.failed.retain(|target, _| known.contains(target));
        Ok(())
    }

    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Learnt {
    /// What an answer says that a host stands for. Of a family that was silent, what is known stays.
    fn addresses(&self, index: usize, host: &Host, resolved: &Resolved) -> Vec<Target> {
        let name: Arc<str> = host.place.to_string().into();
        let target = |ip: &IpAddr| Target::Tcp { host: Arc::clone(&name), address: (*ip, host.port).into() };
        let known = self.current.get(index).into_iter().flatten();
        let silent = known.filter(|known| match known {
            Target::Tcp { address, .. } => resolved.silent == Some(Family::of(address.ip())),
            Target::Socket(_) => false,
        });
        resolved.addresses.iter().map(target).chain(silent.cloned()).collect()
    }

    fn has_only_failed(&self) -> bool {
        !self.failed.is_empty() && self.current.iter().flatten().all(|target| self.failed.contains_key(target))
    }

    fn in_order(&self) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for target in self.current.iter().flatten() {
            if !targets.contains(target) {
                targets.push(target.clone());
            }
        }
        // The sort is stable: those that are alike stay in the order of the settings and of the answer.
        targets.sort_by_key(|target| (self.failed.get(target).copied(), self.served.as_ref() != Some(target)));
        targets
    }
}

/// The target of a host that is no name.
fn literal(host: &Host) -> Option<Vec<Target>> {
    match &host.place {
        Place::Name(_) => None,
        Place::Address(ip) => Some(vec![Target::Tcp { host: ip.to_string().into(), address: (*ip, host.port).into() }]),
        Place::Socket(folder) => Some(vec![Target::Socket(folder.join(format!(".s.PGSQL.{}", host.port)))]),
    }
}

async fn sleep_until<C: Clock>(clock: &C, moment: Option<Instant>) {
    match moment {
        Some(moment) => clock.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn target(last: u8) -> Target {
        Target::Tcp { host: "db".into(), address: ([127, 0, 0, last], 5432).into() }
    }

    fn learnt(targets: &[u8]) -> Learnt {
        Learnt { current: vec![targets.iter().copied().map(target).collect()], ..Learnt::default() }
    }

    fn route(learnt: Learnt) -> Route {
        let settings = crate::config::Settings { database_url: Some("host=db user=u".into()), ..Default::default() };
        let route = Route::new(Arc::new(Connection::of(&settings).expect("two words that are enough")));
        *route.learnt() = learnt;
        route
    }

    #[test]
    fn the_address_that_served_last_comes_first_and_one_that_failed_comes_last() {
        let route = route(learnt(&[1, 2, 3]));
        assert_eq!(route.learnt().in_order(), [target(1), target(2), target(3)]);
        route.served(&target(2));
        assert_eq!(route.learnt().in_order(), [target(2), target(1), target(3)]);
        route.failed(&target(2));
        assert_eq!(route.learnt().in_order(), [target(1), target(3), target(2)]);
        route.failed(&target(1));
        assert_eq!(route.learnt().in_order(), [target(3), target(2), target(1)]);
        route.served(&target(1));
        assert_eq!(route.learnt().in_order(), [target(1), target(3), target(2)]);
    }

    #[test]
    fn an_answer_replaces_what_is_known_but_for_the_family_that_was_silent() {
        let host = Host { place: Place::Name("db".into()), port: 5432 };
        let (old_v4, v6) = (target(1), Target::Tcp { host: "db".into(), address: (Ipv6Addr::LOCALHOST, 5432).into() });
        let mut learnt = learnt(&[]);
        learnt.current[0] = vec![old_v4, v6.clone()];
        let mut resolved =
            Resolved { addresses: vec![[127, 0, 0, 2].into()], fresh_for: Duration::ZERO, silent: Some(Family::V6) };
        assert_eq!(learnt.addresses(0, &host, &resolved), [target(2), v6]);
        resolved.silent = None;
        assert_eq!(learnt.addresses(0, &host, &resolved), [target(2)]);
    }

    #[test]
    fn only_where_everything_known_has_failed_is_there_reason_to_look_further() {
        let route = route(learnt(&[1, 2]));
        assert!(!route.learnt().has_only_failed());
        route.failed(&target(1));
        assert!(!route.learnt().has_only_failed());
        route.failed(&target(2));
        assert!(route.learnt().has_only_failed());
        route.served(&target(2));
        assert!(!route.learnt().has_only_failed());
    }

    #[test]
    fn an_address_is_the_stores_own_for_as_long_as_its_name_stands_for_it() {
        let route = route(learnt(&[1, 2]));
        assert!(route.leads_to(&target(2)));
        assert!(!route.leads_to(&target(3)));
    }
}
