//! Where policy and store meet: `acquire`. What stands in front of it is in `call`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::call::{Front, Pushbacks};
use crate::clock::{Clock, SystemClock};
use crate::config::{Settings, SettingsError};
use crate::counters::{Counters, Tally};
use crate::error::{AcquireError, Code};
use crate::figures::{Figures, Ledger};
use crate::lane::{Bounds, Keeper, Lane, Request, Watch};
use crate::pace::{Key, Paces};
use crate::permit::Permit;
use crate::policy::Instant;
use crate::policy::send_window::Position;
use crate::store::{PostgresStore, Store};

const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// The budgets that this process shares with others. Cheap to clone; clones share everything.
///
/// Keep one for the process: each one is lanes of its own in the store's queue.
pub struct CallBudget<C: Clock = SystemClock, S: Store = PostgresStore<C>>(Arc<Inner<C, S>>);

/// What one acquire asks for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Units that the call counts at the vendor: 1 to the budget's `max_cost`. 1 where not said.
    pub cost: u32,
    /// The most that `acquire` may take from entry to return, up to 1 day; the setting `max_wait` where not said.
    pub max_wait: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { cost: 1, max_wait: None }
    }
}

struct Inner<C: Clock, S: Store> {
    clock: C,
    tally: Arc<Tally>,
    ledger: Ledger,
    max_wait: Duration,
    mode: Mode<C, S>,
    front: Front<C, S>,
    /// Something is held that was not: for those who wait for a slot.
    held: watch::Sender<()>,
}

enum Mode<C: Clock, S: Store> {
    Governed(Lanes<C, S>),
    /// The switch is off: each class keeps its own pace, and no store is touched.
    Polite(Paces),
}

struct Lanes<C: Clock, S: Store> {
    store: Arc<S>,
    bounds: Bounds,
    watch: Arc<Watch>,
    keeper: Keeper<C, S>,
    pushbacks: Pushbacks<C, S>,
    lanes: Mutex<HashMap<Key, Arc<Lane<C, S>>>>,
}

impl CallBudget {
    /// The budgets as the settings say. Connects to nothing yet; while the switch is off, it never does.
    ///
    /// # Errors
    /// A setting out of its range, or a switch that is on without a usable `database_url`.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        if settings.enabled {
            let store = PostgresStore::new(settings, SystemClock)?;
            Self::with_store(settings, SystemClock, store)
        } else {
            tracing::info!("call_budget_enabled is false: the limit is not shared, each class keeps its own pace");
            Self::build(settings, SystemClock, None)
        }
    }
}

impl<C: Clock, S: Store> CallBudget<C, S> {
    /// The budgets of another store, on another clock: for simulations and tests. The switch counts as on.
    ///
    /// # Errors
    /// A setting out of its range.
    pub fn with_store(settings: &Settings, clock: C, store: S) -> Result<Self, SettingsError> {
        settings.validate()?;
        Self::build(settings, clock, Some(store))
    }

    fn build(settings: &Settings, clock: C, store: Option<S>) -> Result<Self, SettingsError> {
        let (tally, store) = (Arc::<Tally>::default(), store.map(Arc::new));
        let store_call = settings.store_call();
        let front = Front::new(settings, &clock, store.as_ref().map(|store| (store, store_call)), &tally)?;
        let ledger = Ledger::new(Arc::clone(&tally), front.surfaces());
        let mode = match store {
            Some(store) => {
                let watch = Arc::<Watch>::default();
                let keeper =
                    Keeper::new(clock.clone(), Arc::clone(&store), Arc::clone(&tally), Arc::clone(&watch), store_call);
                let (store_outage_max, rtt_max) = (settings.store_outage_max, settings.rtt_max);
                let bounds = Bounds { store_call, store_outage_max, rtt_max };
                let pushbacks = Pushbacks::new(clock.clone(), Arc::clone(&store), store_call, Arc::clone(&tally));
                Mode::Governed(Lanes { store, bounds, watch, keeper, pushbacks, lanes: Mutex::default() })
            }
            None => Mode::Polite(Paces::new(settings.polite_interval, settings.polite_concurrency)),
        };
        let (max_wait, held) = (settings.max_wait, watch::Sender::new(()));
        Ok(Self(Arc::new(Inner { clock, tally, ledger, max_wait, mode, front, held })))
    }

    /// Waits for leave to make one call of cost 1, at most the setting `max_wait`.
    ///
    /// # Errors
    /// See [`AcquireError`]: every error means that the call must not be made.
    pub async fn acquire(&self, budget: &str, class: &str) -> Result<Permit<C>, AcquireError> {
        self.acquire_with(budget, class, Options::default()).await
    }

    /// Waits for leave to make one call.
    ///
    /// Returns when the call may leave. From entry to return it takes at most `max_wait`. Dropping the future leaves
    /// nothing behind; a slot that was already granted to it is spent.
    ///
    /// # Errors
    /// See [`AcquireError`]: every error means that the call must not be made.
    pub async fn acquire_with(&self, budget: &str, class: &str, options: Options) -> Result<Permit<C>, AcquireError> {
        let entered = self.0.clock.now();
        let Options { cost, max_wait } = options;
        let max_wait = max_wait.unwrap_or(self.0.max_wait);
        let wrong = |what: String| {
            self.0.ledger.rest().refused(Code::Misconfigured);
            AcquireError::new(Code::Misconfigured, format!("budget \"{budget}\", class \"{class}\": {what}"))
        };
        if cost == 0 {
            return Err(wrong("a call costs at least 1".into()));
        }
        if max_wait > LONGEST_WAIT {
            return Err(wrong(format!("max_wait is {max_wait:?}, more than 1 day")));
        }
        if budget.is_empty() {
            return Err(wrong("a budget has a name".into()));
        }
        let (key, deadline) = ((budget.into(), class.into()), entered + max_wait);
        let (book, permit) = match &self.0.mode {
            Mode::Governed(lanes) => {
                let lane = lanes.lane(&key, &self.0);
                let permit = self.governed(lanes, &lane, key, cost, deadline).await;
                (Arc::clone(lane.book()), permit)
            }
            Mode::Polite(paces) => {
                let paced = paces.class(&key, &self.0.ledger);
                let book = Arc::clone(paced.book());
                let place = paces.place(&key, paced, &self.0.clock, deadline).await;
                let permit = place.map(|place| Permit::polite(place, self.0.clock.clone(), Arc::clone(&book)));
                (book, permit)
            }
        };
        match &permit {
            Ok(_) => book.waited(self.0.clock.now().saturating_since(entered)),
            Err(error) => book.refused(error.code()),
        }
        permit
    }

    /// What this process has done with its slots so far.
    pub fn counters(&self) -> Counters {
        self.0.tally.read()
    }

    /// What this process has done so far, by name: for programs that export figures themselves, as `call-budget serve` does.
    /// Takes a lock for a moment, and copies: for a reading every few seconds.
    ///
    /// ```
    /// use call_budget::{CallBudget, Settings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let budgets = CallBudget::new(&Settings::default())?;
    /// budgets.acquire("kis-real", "order").await?.start()?;
    /// for class in budgets.figures().classes {
    ///     println!("{} {}: {} sent, waited {:?}", class.budget, class.class, class.sent(), class.waits.sum());
    ///     # assert_eq!((class.sent(), class.waits.count()), (1, 1));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn figures(&self) -> Figures {
        let Inner { clock, tally, ledger, mode, front, .. } = &*self.0;
        let books = match mode {
            Mode::Governed(lanes) => lanes.map().values().map(|lane| Arc::clone(lane.book())).collect(),
            Mode::Polite(paces) => paces.books(),
        };
        Figures {
            classes: ledger.read(books),
            surfaces: front.surface_figures(),
            breakers: front.breaker_figures(),
            store: tally.store.read(clock.now()),
            process: tally.read(),
        }
    }

    pub(crate) fn clock(&self) -> &C {
        &self.0.clock
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.0.tally
    }

    pub(crate) fn max_wait(&self) -> Duration {
        self.0.max_wait
    }

    pub(crate) fn front(&self) -> &Front<C, S> {
        &self.0.front
    }

    /// Is sent to when something is held that was not.
    pub(crate) fn held(&self) -> &watch::Sender<()> {
        &self.0.held
    }

    /// The vendor said "too many": everybody who shares the budget waits, or while the switch is off this process does.
    pub(crate) fn push_back(&self, budget: &Arc<str>, by: Duration, reason: Arc<str>) {
        match &self.0.mode {
            Mode::Governed(lanes) => lanes.pushbacks.report(budget, by, reason),
            Mode::Polite(paces) => paces.push_back(budget, self.0.clock.now() + by),
        }
    }

    async fn governed(
        &self,
        lanes: &Lanes<C, S>,
        lane: &Arc<Lane<C, S>>,
        key: Key,
        cost: u32,
        deadline: Instant,
    ) -> Result<Permit<C>, AcquireError> {
        let inner = &*self.0;
        let mut request = Request::new(cost, deadline);
        loop {
            let slot = lane.slot(&mut request).await.inspect_err(|error| {
                if matches!(error.code(), Code::UnknownBudget | Code::UnknownClass) {
                    lanes.forget(&key, lane);
                }
            })?;
            lanes.keeper.acquired();
            let permit = Permit::of_slot(slot.window, slot.nonce, cost, inner.clock.clone(), Arc::clone(lane.book()));
            inner.clock.sleep_until(slot.window.opens()).await;
            if slot.window.position(inner.clock.now()) == Position::Inside {
                return Ok(permit);
            }
            // Woken too late: the slot lapses, and the caller asks again, at the place it had.
            drop(permit);
        }
    }
}

impl<C: Clock, S: Store> Lanes<C, S> {
    fn lane(&self, key: &Key, inner: &Inner<C, S>) -> Arc<Lane<C, S>> {
        let mut map = self.map();
        let others = map.len();
        let new = || {
            let (budget, class) = key.clone();
            let book = inner.ledger.open(&budget, &class, others);
            Lane::new(
                budget,
                class,
                self.bounds,
                inner.clock.clone(),
                Arc::clone(&self.store),
                book,
                Arc::clone(&self.watch),
            )
        };
        Arc::clone(map.entry(key.clone()).or_insert_with(new))
    }

    /// Names that do not exist must not pile up. A newer lane of the same name, which others have joined, stays.
    fn forget(&self, key: &Key, lane: &Arc<Lane<C, S>>) {
        if let Entry::Occupied(entry) = self.map().entry(key.clone())
            && Arc::ptr_eq(entry.get(), lane)
        {
            entry.remove();
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Key, Arc<Lane<C, S>>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Clock, S: Store> Clone for CallBudget<C, S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
