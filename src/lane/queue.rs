//! Who waits in a lane, and what an answer comes to for each of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Lane, Slot};
use crate::clock::Clock;
use crate::error::{AcquireError, Code};
use crate::policy::Instant;
use crate::policy::outage::Outage;
use crate::policy::round_trip::RoundTrip;
use crate::policy::send_window::SendWindow;
use crate::policy::stage::Stage;
use crate::store::{Ask, Progress, Refusal, Reply, Store, StoreError};

pub(super) struct State {
    /// By place in the queue.
    pub waiters: BTreeMap<u64, Waiter>,
    next_place: u64,
    /// The task that makes this lane's calls, by number; how many there were; and when the present one moves next.
    pub driver: Option<u64>,
    pub drivers: u64,
    pub due: Instant,
    pub call: Option<InFlight>,
    pub outage: Outage,
    pub way: RoundTrip,
    pub last_failure: Option<StoreError>,
    /// How the store's failing was told last: once, and once when it is over.
    pub told: Option<Code>,
}

/// A call that has waited for this long tells more than the one before it.
const TELLING: Duration = Duration::from_millis(200);

/// The call in flight.
pub(super) struct InFlight {
    pub progress: Arc<Progress>,
    pub began: Instant,
    /// How many it asks for, whether or not they still wait.
    pub asked: usize,
}

pub(super) struct Waiter {
    pub cost: u32,
    pub deadline: Instant,
    /// Attempts that may have spent a slot.
    pub lost: u32,
    /// The latest attempt ended with its request sent and no answer.
    pub uncertain: bool,
    /// The call in flight asks for it.
    pub asked: bool,
    pub reply: oneshot::Sender<Outcome>,
}

/// What a caller hears from its lane.
pub(super) enum Outcome {
    /// A slot, and how many earlier attempts may have spent another.
    Slot(Slot, u32),
    No(AcquireError),
    /// The task that made the lane's calls was ended from outside; so many attempts may have spent a slot.
    Orphaned(u32),
}

impl State {
    pub fn new(outage: Outage, way: RoundTrip) -> Self {
        Self {
            waiters: BTreeMap::new(),
            next_place: 0,
            driver: None,
            drivers: 0,
            due: Instant::default(),
            call: None,
            outage,
            way,
            last_failure: None,
            told: None,
        }
    }

    /// Joins the queue, at the end of it or at the place held before.
    pub fn join(&mut self, place: Option<u64>, waiter: Waiter) -> u64 {
        let place = place.unwrap_or(self.next_place);
        self.next_place = self.next_place.max(place + 1);
        self.waiters.insert(place, waiter);
        place
    }

    /// The call in flight is over. `lost`: it may have spent slots that those it asked for will not see.
    pub fn call_over(&mut self, lost: bool) {
        self.call = None;
        for waiter in self.waiters.values_mut().filter(|waiter| waiter.asked) {
            waiter.asked = false;
            waiter.uncertain = lost;
            waiter.lost += u32::from(lost);
        }
    }

    /// Whoever made the call in flight will not tell how it ended. Returns how many slots it may have spent.
    pub fn abandon_call(&mut self) -> usize {
        let sent = self.call.take().filter(|call| call.progress.stage() == Stage::Query);
        self.call_over(sent.is_some());
        sent.map_or(0, |call| call.asked)
    }

    /// The store answered.
    pub fn recovered<C: Clock, S: Store>(&mut self, lane: &Lane<C, S>) {
        self.outage.over();
        let told = self.told.take().is_some();
        if self.last_failure.take().is_some() || told {
            tracing::info!(budget = &*lane.budget, class = &*lane.class, "call_budget_store_recovered");
        }
    }

    /// Gives the slots to the callers in order, passing by those whose time is up before the slot.
    pub fn hand_out<C: Clock, S: Store>(&mut self, lane: &Lane<C, S>, reply: &Reply, ask: &Ask) {
        let Reply { asked, answered, answer } = reply;
        for (index, (wait, cost)) in answer.slots.iter().zip(&ask.costs).enumerate() {
            let Some(window) = SendWindow::of_slot(*asked, *answered, *wait, answer.send_window) else {
                lane.book.dropped_late(1);
                continue;
            };
            let Some(waiter) = self.next_for(lane, window, *cost, *answered) else {
                lane.book.dropped_unwanted(1);
                continue;
            };
            let nonce = ask.nonce.unsigned_abs().wrapping_add(index as u64);
            let lost = waiter.lost;
            waiter.tell(Outcome::Slot(Slot { window, nonce }, lost));
        }
    }

    /// The first who can use a slot of this cost.
    fn next_for<C: Clock, S: Store>(
        &mut self,
        lane: &Lane<C, S>,
        window: SendWindow,
        cost: u32,
        now: Instant,
    ) -> Option<Waiter> {
        loop {
            let place = *self.waiters.iter().find(|(_, waiter)| waiter.cost <= cost)?.0;
            let waiter = self.waiters.remove(&place)?;
            if waiter.deadline >= window.opens() {
                return Some(waiter);
            }
            let retry_after = Some(window.opens().saturating_since(now));
            let error = lane.error(Code::WaitExceeded, "the next slot opens only after max_wait");
            waiter.fail(AcquireError { retry_after, ..error });
        }
    }

    /// The store said no.
    pub fn refused<C: Clock, S: Store>(&mut self, lane: &Lane<C, S>, refusal: Refusal, asked: Instant) {
        match refusal {
            // The estimate is one for the lane's first slot: it holds for everybody in the lane who would not wait so long.
            Refusal::Patience { retry_after } => self.end(
                |waiter| waiter.deadline.saturating_since(asked) < retry_after,
                |_| {
                    let message = format!("refused before waiting: a slot is at least {retry_after:?} away");
                    let error = lane.error(Code::WaitExceeded, message);
                    AcquireError { retry_after: Some(retry_after), ..error }
                },
            ),
            Refusal::CostOutOfRange { max_cost } => self.end(
                |waiter| waiter.cost > max_cost,
                |waiter| {
                    let message = format!("a cost of {} is over the budget's max_cost {max_cost}", waiter.cost);
                    AcquireError { max_cost: Some(max_cost), ..lane.error(Code::Misconfigured, message) }
                },
            ),
            Refusal::Paused { retry_after } => self.end_all(|| AcquireError {
                retry_after: Some(retry_after),
                ..lane.error(Code::Paused, "the budget is paused (call-budget budget resume)")
            }),
            Refusal::UnknownBudget => self
                .end_all(|| lane.error(Code::UnknownBudget, "there is no such budget (see call-budget budget list)")),
            Refusal::UnknownClass => self.end_all(|| {
                lane.error(Code::UnknownClass, "the budget has no such class (see call-budget class list)")
            }),
        }
    }

    /// The caller's `max_wait` has passed: it leaves the queue with this error, unless it has been answered meanwhile.
    pub fn out_of_time<C: Clock, S: Store>(&mut self, lane: &Lane<C, S>, place: u64) -> Option<AcquireError> {
        let Waiter { asked, uncertain, mut lost, .. } = self.waiters.remove(&place)?;
        let in_flight = self
            .call
            .as_ref()
            .map(|call| StoreError::out_of_time(&call.progress).after(lane.clock.now().saturating_since(call.began)));
        let request_left = asked && in_flight.as_ref().is_some_and(|call| call.stage == Stage::Query);
        lost += u32::from(request_left);
        // A call that was only just begun says less than the one that failed before it.
        let telling = in_flight.filter(|call| self.last_failure.is_none() || call.after >= Some(TELLING));
        let reason = telling.as_ref().or(self.last_failure.as_ref());
        let others = || ": others were ahead, see call-budget status".to_owned();
        let because = reason.map_or_else(others, |reason| format!(": {reason}"));
        let error = if request_left || uncertain {
            let message = "max_wait passed while the store's answer was missing, a slot may have been spent";
            AcquireError {
                stage: Some(Stage::Query),
                ..lane.error(Code::Uncertain, format_args!("{message}{because}"))
            }
        } else {
            let message = format_args!("max_wait passed without a slot{because}");
            AcquireError { stage: reason.map(|reason| reason.stage), ..lane.error(Code::WaitExceeded, message) }
        };
        Some(AcquireError { lost, ..error })
    }

    pub fn end_all(&mut self, error: impl Fn() -> AcquireError) {
        self.end(|_| true, |_| error());
    }

    fn end(&mut self, ends: impl Fn(&Waiter) -> bool, error: impl Fn(&Waiter) -> AcquireError) {
        for (_, waiter) in self.waiters.extract_if(.., |_, waiter| ends(waiter)) {
            let error = error(&waiter);
            waiter.fail(error);
        }
    }
}

impl Waiter {
    fn fail(self, error: AcquireError) {
        let lost = self.lost;
        self.tell(Outcome::No(AcquireError { lost, ..error }));
    }

    /// The caller listens for as long as it is in the queue.
    pub fn tell(self, outcome: Outcome) {
        let _ = self.reply.send(outcome);
    }
}
