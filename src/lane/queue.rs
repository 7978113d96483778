//! Who waits in a lane, and what an answer comes to for each of them.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::{Lane, Slot};
use crate::clock::Clock;
use crate::error::{AcquireError, Code};
use crate::policy::Instant;
use crate::policy::outage::Outage;
use crate::policy::round_trip::RoundTrip;
use crate::policy::send_window::SendWindow;
use crate::policy::stage::Stage;
use crate::store::{Ask, Refusal, Reply, Store, StoreError};

pub(super) struct State {
    /// A task is making this lane's calls.
    pub driven: bool,
    /// Those whom the call in flight asks for, in order.
    pub asking: VecDeque<Waiter>,
    /// Those who wait for the next call, in order.
    pub queue: VecDeque<Waiter>,
    pub outage: Outage,
    pub way: RoundTrip,
    pub last_failure: Option<StoreError>,
}

pub(super) struct Waiter {
    pub cost: u32,
    pub deadline: Instant,
    /// Attempts that may have spent a slot.
    pub lost: u32,
    /// The latest attempt ended with its request sent and no answer.
    pub uncertain: bool,
    pub reply: oneshot::Sender<Result<Slot, AcquireError>>,
}

impl State {
    pub fn new(outage: Outage, way: RoundTrip) -> Self {
        let (asking, queue) = (VecDeque::new(), VecDeque::new());
        Self { driven: false, asking, queue, outage, way, last_failure: None }
    }

    /// The call is over: those it asked for are at the head of the queue again.
    pub fn requeue(&mut self) {
        self.asking.append(&mut self.queue);
        std::mem::swap(&mut self.asking, &mut self.queue);
    }

    /// The store answered.
    pub fn recovered<C: Clock, S: Store>(&mut self, lane: &Lane<C, S>) {
        self.outage.over();
        if self.last_failure.take().is_some() {
            tracing::info!(budget = &*lane.budget, class = &*lane.class, "call_budget_store_recovered");
        }
        for waiter in &mut self.queue {
            waiter.uncertain = false;
        }
    }

    /// Gives the slots to the callers in order, passing by those who have gone or whose time is up before the slot.
    pub fn hand_out<C: Clock, S: Store>(&mut self, lane: &Lane<C, S>, reply: &Reply, ask: &Ask) {
        let Reply { asked, answered, answer } = reply;
        for (index, (wait, cost)) in answer.slots.iter().zip(&ask.costs).enumerate() {
            let Some(window) = SendWindow::of_slot(*asked, *answered, *wait, answer.send_window) else {
                lane.tally.dropped_late.add(1);
                continue;
            };
            let mut taken = false;
            while !taken && let Some(waiter) = self.queue.pop_front_if(|waiter| waiter.cost <= *cost) {
                if waiter.deadline < window.opens() {
                    waiter.give_up(lane, false, None, None);
                } else {
                    let nonce = ask.nonce.unsigned_abs().wrapping_add(index as u64);
                    let slot = Slot { window, nonce, lost: waiter.lost };
                    taken = waiter.reply.send(Ok(slot)).is_ok();
                }
            }
            if !taken {
                lane.tally.dropped_unwanted.add(1);
            }
        }
    }

    /// The store said no.
    pub fn refused<C: Clock, S: Store>(&mut self, lane: &Lane<C, S>, refusal: Refusal, asked: Instant) {
        match refusal {
            Refusal::Patience { retry_after } => {
                // The caller whose patience was asked about may have gone meanwhile.
                let too_long = |waiter: &mut Waiter| waiter.deadline.saturating_since(asked) < retry_after;
                if let Some(head) = self.queue.pop_front_if(too_long) {
                    let message = format!("refused before waiting: a slot is at least {retry_after:?} away");
                    let error = lane.error(Code::WaitExceeded, message);
                    head.fail(AcquireError { retry_after: Some(retry_after), ..error });
                }
            }
            Refusal::CostOutOfRange { max_cost } => {
                for waiter in take_if(&mut self.queue, |waiter| waiter.cost > max_cost) {
                    let message = format!("a cost of {} is over the budget's max_cost {max_cost}", waiter.cost);
                    waiter.fail(lane.error(Code::Misconfigured, message));
                }
            }
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

    fn end_all(&mut self, error: impl Fn() -> AcquireError) {
        for waiter in std::mem::take(&mut self.queue) {
            waiter.fail(error());
        }
    }
}

impl Waiter {
    pub fn fail(self, error: AcquireError) {
        let _ = self.reply.send(Err(AcquireError { lost: self.lost, ..error }));
    }

    /// Its `max_wait` has passed. `request_left`: a call that asks for it is under way and may be granted.
    pub fn give_up<C: Clock, S: Store>(
        mut self,
        lane: &Lane<C, S>,
        request_left: bool,
        stage: Option<Stage>,
        last_failure: Option<&StoreError>,
    ) {
        self.lost += u32::from(request_left);
        let error = if request_left || self.uncertain {
            let message = "max_wait passed while the store's answer was missing: a slot may have been spent";
            AcquireError { stage: Some(Stage::Query), ..lane.error(Code::Uncertain, message) }
        } else {
            let stage = stage.or_else(|| last_failure.map(|failure| failure.stage));
            let message = match (last_failure, stage) {
                (Some(failure), _) => format!("max_wait passed without a slot; the store failed last: {failure}"),
                (None, Some(stage)) => format!("max_wait passed without a slot, in stage {stage}"),
                (None, None) => "max_wait passed without a slot".into(),
            };
            AcquireError { stage, ..lane.error(Code::WaitExceeded, message) }
        };
        self.fail(error);
    }
}

/// Takes out those that match; the others keep their order.
pub(super) fn take_if(waiters: &mut VecDeque<Waiter>, matches: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
    let mut taken = Vec::new();
    for _ in 0..waiters.len() {
        match waiters.pop_front() {
            Some(waiter) if matches(&waiter) => taken.push(waiter),
            Some(waiter) => waiters.push_back(waiter),
            None => break,
        }
    }
    taken
}
