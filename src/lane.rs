//! One (budget, class) of this process: its local queue, and the one store call that asks for everybody in it.
//!
//! However many tasks wait, one call is in flight. A task of its own makes the calls while anybody waits (`driver`), so that
//! a caller who goes away takes nothing along. Each caller ends its own wait, so that none depends on that task for it, nor
//! on the runtime that the task runs on. Slots go to the callers in order; the slot of a caller who has gone goes to the
//! next.

mod driver;
mod keeper;
mod queue;
mod watch;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::counters::Tally;
use crate::error::{AcquireError, Code};
use crate::figures::ClassBook;
use crate::policy::Instant;
use crate::policy::outage::Outage;
use crate::policy::round_trip::RoundTrip;
use crate::policy::send_window::SendWindow;
use crate::store::Store;

use driver::Driver;
use queue::{Outcome, State, Waiter};

pub(crate) use keeper::Keeper;
pub(crate) use watch::Watch;

/// How often a waiting caller looks whether the lane's task still runs.
const LOOK: Duration = Duration::from_secs(1);

/// What a lane takes from the settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// One store call, from its entry to its answer.
    pub store_call: Duration,
    pub store_outage_max: Duration,
    pub rtt_max: Duration,
}

pub(crate) struct Lane<C: Clock, S: Store> {
    budget: Arc<str>,
    class: Arc<str>,
    /// Kept for the lane's lifetime: repeating a call whose answer was lost changes nothing at the store.
    id: i64,
    bounds: Bounds,
    clock: C,
    store: Arc<S>,
    tally: Arc<Tally>,
    book: Arc<ClassBook>,
    watch: Arc<Watch>,
    state: Mutex<State>,
    /// The last one left.
    emptied: Notify,
}

/// A slot for one caller.
#[derive(Debug)]
pub(crate) struct Slot {
    pub window: SendWindow,
    pub nonce: u64,
}

/// One caller's request to its lane, over all its attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    cost: u32,
    deadline: Instant,
    /// Attempts that may have spent a slot.
    lost: u32,
    /// Its place in the queue, which it keeps.
    place: Option<u64>,
}

impl Request {
    pub fn new(cost: u32, deadline: Instant) -> Self {
        Self { cost, deadline, lost: 0, place: None }
    }
}

impl<C: Clock, S: Store> Lane<C, S> {
    pub fn new(
        budget: Arc<str>,
        class: Arc<str>,
        bounds: Bounds,
        clock: C,
        store: Arc<S>,
        book: Arc<ClassBook>,
        watch: Arc<Watch>,
    ) -> Arc<Self> {
        let state = State::new(Outage::new(bounds.store_outage_max, bounds.store_call), RoundTrip::new(bounds.rtt_max));
        // From the system's randomness: two processes that start in the same instant must not share a lane.
        let id = (RandomState::new().build_hasher().finish() >> 1).cast_signed();
        Arc::new(Self {
            budget,
            class,
            id,
            bounds,
            clock,
            store,
            tally: Arc::clone(book.tally()),
            book,
            watch,
            state: Mutex::new(state),
            emptied: Notify::new(),
        })
    }

    /// Where its callers are counted.
    pub fn book(&self) -> &Arc<ClassBook> {
        &self.book
    }

    /// A slot for one caller, or why there is none; at the request's deadline at the latest. A caller who could not use its
    /// slot comes back with the same request.
    pub async fn slot(self: &Arc<Self>, request: &mut Request) -> Result<Slot, AcquireError> {
        loop {
            let mut turn = self.join(request);
            match turn.outcome().await {
                Outcome::Slot(slot, lost) => {
                    request.lost = lost;
                    return Ok(slot);
                }
                Outcome::No(error) => return Err(error),
                Outcome::Orphaned(lost) => request.lost = lost,
            }
        }
    }

    fn join<'a>(self: &'a Arc<Self>, request: &mut Request) -> Turn<'a, C, S> {
        let (reply, answer) = oneshot::channel();
        let Request { cost, deadline, lost, .. } = *request;
        let place =
            self.state().join(request.place, Waiter { cost, deadline, lost, uncertain: false, asked: false, reply });
        request.place = Some(place);
        Turn { lane: self, place, deadline, answer }
    }

    /// Sees to it that a task makes the calls, and says by when the present one ought to have moved, if it has not.
    fn drive(self: &Arc<Self>, overdue_before: Option<Instant>) -> Option<Instant> {
        let now = self.clock.now();
        let driver = {
            let mut state = self.state();
            let overdue = (now > state.due).then_some(state.due);
            // Overdue at two looks in a row: the runtime under it stands still.
            if state.driver.is_some() && (overdue.is_none() || overdue != overdue_before) {
                return overdue;
            }
            Driver::appoint(self, &mut state, now)
        };
        // Not under the lock: a runtime that is shutting down drops the task at once, and that takes the lock.
        tokio::spawn(driver.run());
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, code: Code, message: impl std::fmt::Display) -> AcquireError {
        AcquireError::new(code, format!("budget \"{}\", class \"{}\": {message}", self.budget, self.class))
    }
}

/// A caller's stay in the queue. Dropping it leaves the queue; what had come and was not taken is spent.
struct Turn<'a, C: Clock, S: Store> {
    lane: &'a Arc<Lane<C, S>>,
    place: u64,
    deadline: Instant,
    answer: oneshot::Receiver<Outcome>,
}

impl<C: Clock, S: Store> Turn<'_, C, S> {
    async fn outcome(&mut self) -> Outcome {
        let clock = &self.lane.clock;
        let mut overdue = None;
        loop {
            overdue = self.lane.drive(overdue);
            let look = self.deadline.min(clock.now() + LOOK);
            if let Some(answer) = clock.until(look, &mut self.answer).await {
                return answer.expect("whoever leaves the queue is answered");
            }
            if clock.now() >= self.deadline
                && let Some(error) = self.lane.state().out_of_time(self.lane, self.place)
            {
                return Outcome::No(error);
            }
        }
    }
}

impl<C: Clock, S: Store> Drop for Turn<'_, C, S> {
    fn drop(&mut self) {
        let mut state = self.lane.state();
        if state.waiters.remove(&self.place).is_none() && matches!(self.answer.try_recv(), Ok(Outcome::Slot(..))) {
            self.lane.book.dropped_unwanted(1);
        }
        if state.waiters.is_empty() {
            self.lane.emptied.notify_one();
        }
    }
}
