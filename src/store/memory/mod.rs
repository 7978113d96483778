//! The store in memory, for unit tests of programs that use this library (feature `test-util`).
//!
//! It decides as PostgreSQL does (`tests/contract` holds both to the same answers), in the time of the clock that it is
//! given: the machine's, or one that the test moves.
//!
//! ```
//! use std::time::Duration;
//! use call_budget::test_util::{Instant, Limit, ManualClock, MemoryStore};
//! use call_budget::{CallBudget, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::at(Instant::default());
//! let ms = Duration::from_millis;
//! let store = MemoryStore::new(clock.clone());
//! store.set_budget(
//!     "kis-real",
//!     Limit { units: 18, window: ms(1000), send_window: ms(50), arrival_jitter: ms(50), max_cost: 1 },
//! );
//! store.set_class("kis-real", "order", 0, 0.1);
//!
//! let budget = CallBudget::with_store(&Settings::default(), clock.clone(), store.clone())?;
//! let answer = budget.acquire("kis-real", "order").await?.call(|| async { "sent" }).await?;
//! assert_eq!(answer, "sent");
//!
//! // The next slot is 61.174 ms later, and the clock moves when the test says so.
//! let (next, ()) = tokio::join!(budget.acquire("kis-real", "order"), async { clock.advance(ms(62)) });
//! next?.start()?;
//!
//! store.pause("kis-real");
//! let refused = budget.acquire("kis-real", "order").await.unwrap_err();
//! assert_eq!(refused.code().as_str(), "CALL_BUDGET_PAUSED");
//! # Ok(())
//! # }
//! ```

pub mod scheduler;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::scheduler::{Call, Scheduler};
use super::answer::Columns;
use super::{Answer, Ask, CONTRACT, Failing, Progress, Reply, Store, StoreError};
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;
use crate::policy::spacing::Limit;
use crate::policy::stage::Stage;

/// As `call-budget budget set` takes it where nobody says.
const LOOKAHEAD: Duration = Duration::from_millis(60);
/// To the scheduler zero is long ago, whenever the clock began: longer than the largest cost can take.
const BEGINNING: Duration = Duration::from_secs(30 * 86_400);

/// Budgets in memory. Clones share them, as processes share a database.
///
/// Its methods panic, with a sentence, where the database would refuse: a test that sets up something impossible is wrong.
#[derive(Clone, Debug)]
pub struct MemoryStore<C: Clock = SystemClock> {
    clock: C,
    budgets: Arc<Mutex<HashMap<String, Scheduler>>>,
}

impl<C: Clock> MemoryStore<C> {
    /// A store without budgets, in the time of `clock`.
    pub fn new(clock: C) -> Self {
        Self { clock, budgets: Arc::default() }
    }

    /// Creates the budget or changes it, with the shortest interval that is safe for `limit`. The lookahead is 60 ms.
    ///
    /// # Panics
    /// No interval is safe for `limit`.
    pub fn set_budget(&self, name: &str, limit: Limit) {
        let interval = limit.interval().unwrap_or_else(|why| panic!("no interval is safe for {limit:?}: {why:?}"));
        let settings = scheduler::Settings {
            interval_us: micros(interval),
            lookahead_us: micros(LOOKAHEAD),
            send_window_us: micros(limit.send_window),
            max_cost: i32::try_from(limit.max_cost).expect("max_cost is at most 2,147,483,647"),
        };
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        match budgets.get_mut(name) {
            Some(budget) => budget.set(settings),
            // Nothing was forgotten yet: the first call need not wait for a fence.
            None => drop(budgets.insert(name.to_owned(), Scheduler { remembered: true, ..Scheduler::new(settings) })),
        }
    }

    /// Creates the class or changes it: `priority` 0 is most important, `floor` is its guaranteed share, 0 to 1.
    ///
    /// # Panics
    /// There is no such budget, or the floors of the budget would sum to more than 1.
    pub fn set_class(&self, budget: &str, name: &str, priority: u16, floor: f64) {
        assert!((0.0..=1.0).contains(&floor), "a floor lies between 0 and 1, not {floor}");
        let floor_ppm = (floor * 1e6).round() as i32;
        self.with(budget, |budget, _| budget.set_class(name, priority.into(), floor_ppm))
            .unwrap_or_else(|over| panic!("the floors of budget \"{budget}\" would sum to more than 1: {over:?}"));
    }

    /// Stops grants at once.
    ///
    /// # Panics
    /// There is no such budget.
    pub fn pause(&self, budget: &str) {
        self.with(budget, |budget, _| budget.pause());
    }

    /// Lets grants through again.
    ///
    /// # Panics
    /// There is no such budget.
    pub fn resume(&self, budget: &str) {
        self.with(budget, |budget, _| budget.resume());
    }

    /// As if the vendor had said "too many": no slot starts within `duration`, at most 1 hour.
    ///
    /// # Panics
    /// There is no such budget.
    pub fn push_back(&self, budget: &str, duration: Duration) {
        self.with(budget, |budget, now_us| budget.push_back(micros(duration), 3_600_000_000, now_us));
    }

    /// How many slots the class was granted.
    ///
    /// # Panics
    /// There is no such budget.
    pub fn granted(&self, budget: &str, class: &str) -> u64 {
        self.with(budget, |budget, _| budget.classes.get(class).map_or(0, |class| class.granted.cast_unsigned()))
    }

    fn with<T>(&self, budget: &str, work: impl FnOnce(&mut Scheduler, i64) -> T) -> T {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let found = budgets.get_mut(budget).unwrap_or_else(|| panic!("there is no budget \"{budget}\": set it first"));
        work(found, store_us(self.clock.now()))
    }

    /// What `call_budget_acquire` answers.
    fn reserve(&self, ask: &Ask) -> Result<Answer, StoreError> {
        let now_us = store_us(self.clock.now());
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = budgets.get_mut(&*ask.budget).map(|budget| budget.reserve(call(ask, &costs(ask)), now_us));
        answer(ask, decided, 1, now_us)
    }
}

/// The costs of an ask, as the scheduler takes them.
pub fn costs(ask: &Ask) -> Vec<i32> {
    ask.costs.iter().map(|cost| i32::try_from(*cost).unwrap_or(i32::MAX)).collect()
}

/// An ask, as the scheduler takes it.
pub fn call<'a>(ask: &'a Ask, costs: &'a [i32]) -> Call<'a> {
    Call { class: &ask.class, lane: ask.lane, costs, patience_us: micros(ask.patience) }
}

/// What a client makes of the scheduler's answer, checked as one from PostgreSQL is. None: there is no such budget.
///
/// # Errors
/// The answer breaks the contract.
pub fn answer(
    ask: &Ask,
    decided: Option<scheduler::Answer>,
    timeline: i64,
    store_us: i64,
) -> Result<Answer, StoreError> {
    let ours = Columns {
        contract: Some(CONTRACT),
        nonce: Some(ask.nonce),
        waits_us: Some(Vec::new()),
        store_us: Some(store_us),
        ..Columns::default()
    };
    let columns = match decided {
        None => Columns { reason: Some("unknown_budget".into()), ..ours },
        Some(decided) => Columns {
            waits_us: Some(decided.waits_us),
            retry_us: decided.retry_us,
            reason: decided.reason.map(str::to_owned),
            interval_us: Some(decided.interval_us),
            lookahead_us: Some(decided.lookahead_us),
            send_window_us: Some(decided.send_window_us),
            max_cost: Some(decided.max_cost),
            version: Some(decided.version),
            fences: Some(decided.fences),
            timeline: Some(timeline),
            ..ours
        },
    };
    columns.checked(ask).map_err(|breach| {
        let message = format!("the store in memory breaks the contract: {breach:?}");
        StoreError::new(Stage::Query, Failing::Misconfigured, message)
    })
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        progress.enter(Stage::Query);
        let asked = self.clock.now();
        let answer = self.reserve(ask)?;
        Ok(Reply { asked, answered: self.clock.now(), answer })
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        let (patience, nonce) = (Duration::ZERO, fastrand::i64(0..));
        let nobody = Ask { budget: "".into(), class: "".into(), lane: 0, costs: vec![1], patience, nonce };
        self.acquire(&nobody, progress).await
    }

    async fn fence(&self, budget: &str, progress: &Arc<Progress>) -> Result<bool, StoreError> {
        progress.enter(Stage::Query);
        let now_us = store_us(self.clock.now());
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        budgets.get_mut(budget).map(|budget| budget.request_fence(now_us)).ok_or_else(|| no_budget(budget))
    }

    async fn report_pushback(
        &self,
        budget: &str,
        duration: Duration,
        _reason: &str,
        progress: &Arc<Progress>,
    ) -> Result<Duration, StoreError> {
        progress.enter(Stage::Query);
        let now_us = store_us(self.clock.now());
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = budgets.get_mut(budget).ok_or_else(|| no_budget(budget))?;
        let left_us = budget.push_back(micros(duration), 60_000_000, now_us);
        Ok(Duration::from_micros(u64::try_from(left_us).unwrap_or_default()))
    }
}

fn no_budget(name: &str) -> StoreError {
    StoreError::new(Stage::Query, Failing::Unavailable, format!("there is no budget \"{name}\""))
}

fn store_us(now: Instant) -> i64 {
    micros(BEGINNING + now.since_boot())
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
