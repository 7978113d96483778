//! One (budget, class) of this process: its local queue, and the one store call that asks for everybody in it.
//!
//! However many tasks wait, one call is in flight. A task of its own makes the calls while anybody waits, so that a caller
//! who goes away takes nothing along. It also ends every wait, so that each caller hears what its last attempt came to.
//! Slots go to the callers in order; the slot of a caller who has gone goes to the next.

mod queue;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::counters::Tally;
use crate::error::{AcquireError, Code};
use crate::policy::Instant;
use crate::policy::outage::{Outage, Verdict};
use crate::policy::round_trip::RoundTrip;
use crate::policy::send_window::SendWindow;
use crate::policy::stage::Stage;
use crate::store::{Ask, Failing, Progress, Reply, Store, StoreError};

use queue::{State, Waiter};

/// As many callers as one call asks for: the answer stays below a megabyte.
const BATCH: usize = 10_000;

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
    state: Mutex<State>,
    /// Somebody joined or left: the deadline to watch may have changed.
    changed: Notify,
}

/// A slot for one caller.
#[derive(Debug)]
pub(crate) struct Slot {
    pub window: SendWindow,
    pub nonce: u64,
    /// Attempts of this acquire that may have spent another.
    pub lost: u32,
}

/// One caller's request to its lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub cost: u32,
    pub deadline: Instant,
    /// What earlier attempts of the same acquire may have spent.
    pub lost: u32,
    /// It had a slot and could not use it: it has waited longest.
    pub again: bool,
}

impl<C: Clock, S: Store> Lane<C, S> {
    pub fn new(
        budget: Arc<str>,
        class: Arc<str>,
        bounds: Bounds,
        clock: C,
        store: Arc<S>,
        tally: Arc<Tally>,
    ) -> Arc<Self> {
        let state = State::new(Outage::new(bounds.store_outage_max), RoundTrip::new(bounds.rtt_max));
        let (id, changed) = (fastrand::i64(0..), Notify::new());
        Arc::new(Self { budget, class, id, bounds, clock, store, tally, state: Mutex::new(state), changed })
    }

    /// A slot for one caller, or why there is none; at the request's deadline at the latest.
    pub async fn slot(self: &Arc<Self>, mut request: Request) -> Result<Slot, AcquireError> {
        loop {
            let answer = self.join(request);
            let _leaving = Leaving(&self.changed);
            match answer.await {
                Ok(answer) => return answer,
                // The runtime that made the lane's calls has shut down under it: they are made from this one now.
                Err(_) => request.again = true,
            }
        }
    }

    fn join(self: &Arc<Self>, request: Request) -> oneshot::Receiver<Result<Slot, AcquireError>> {
        let (reply, answer) = oneshot::channel();
        let Request { cost, deadline, lost, again } = request;
        let waiter = Waiter { cost, deadline, lost, uncertain: false, reply };
        let mut state = self.state();
        if again {
            state.queue.push_front(waiter);
        } else {
            state.queue.push_back(waiter);
        }
        if !state.driven {
            state.driven = true;
            tokio::spawn(Driver { lane: Arc::clone(self), finished: false }.run());
        }
        drop(state);
        self.changed.notify_one();
        answer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, code: Code, message: impl std::fmt::Display) -> AcquireError {
        AcquireError::new(code, format!("budget \"{}\", class \"{}\": {message}", self.budget, self.class))
    }
}

/// Tells the lane's task that a caller is gone, with or without its answer.
struct Leaving<'a>(&'a Notify);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The task that makes a lane's calls while anybody waits.
struct Driver<C: Clock, S: Store> {
    lane: Arc<Lane<C, S>>,
    finished: bool,
}

impl<C: Clock, S: Store> Drop for Driver<C, S> {
    /// Nobody is left waiting for a task that was ended from outside.
    fn drop(&mut self) {
        if !self.finished {
            let mut state = self.lane.state();
            state.driven = false;
            state.asking.clear();
            state.queue.clear();
        }
    }
}

impl<C: Clock, S: Store> Driver<C, S> {
    async fn run(mut self) {
        let mut next = self.lane.clock.now();
        loop {
            self.wait_until(next).await;
            let progress = Arc::new(Progress::default());
            let probing = self.lane.state().way.probe_after().is_some();
            let Some((ask, deadline)) = self.next_ask(probing) else {
                self.finished = true;
                return;
            };
            next = if probing {
                self.lane.tally.probes.add(1);
                let probe = self.call(self.lane.store.probe(&progress), deadline, &progress).await;
                self.lane.state().requeue();
                match probe {
                    Ok(took) => self.probed(took),
                    Err(error) => self.failed(error, 0),
                }
            } else {
                self.lane.tally.store_calls.add(1);
                let reply = self.call(self.lane.store.acquire(&ask, &progress), deadline, &progress).await;
                match reply {
                    Ok(reply) => self.answered(reply, &ask, deadline),
                    Err(error) => self.failed(error, ask.costs.len()),
                }
            };
        }
    }

    /// Waits for the moment of the next call, or until nobody waits any longer.
    async fn wait_until(&self, moment: Instant) {
        let lane = &*self.lane;
        loop {
            let now = lane.clock.now();
            match self.expire(now, None) {
                Some(first_deadline) if now < moment => {
                    tokio::select! {
                        () = lane.clock.sleep_until(moment.min(first_deadline)) => {}
                        () = lane.changed.notified() => {}
                    }
                }
                _ => return,
            }
        }
    }

    /// The question that asks for everybody in the queue, and the deadline of the call: nobody waits longer than that.
    /// `None` where nobody waits.
    fn next_ask(&self, probing: bool) -> Option<(Ask, Instant)> {
        let lane = &*self.lane;
        let now = lane.clock.now();
        let mut state = lane.state();
        let Some(head) = state.queue.front() else {
            state.driven = false;
            return None;
        };
        let patience = head.deadline.saturating_since(now);
        let last = state.queue.iter().map(|waiter| waiter.deadline).max().unwrap_or(now);
        if !probing {
            let batch = state.queue.len().min(BATCH);
            state.asking = state.queue.drain(..batch).collect();
        }
        let ask = Ask {
            budget: Arc::clone(&lane.budget),
            class: Arc::clone(&lane.class),
            lane: lane.id,
            costs: state.asking.iter().map(|waiter| waiter.cost).collect(),
            patience,
            nonce: fastrand::i64(0..),
        };
        Some((ask, last.min(now + lane.bounds.store_call)))
    }

    /// Makes one store call inside its deadline, ending meanwhile the wait of those whose own time runs out.
    async fn call<T: Send>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send,
        deadline: Instant,
        progress: &Progress,
    ) -> Result<T, StoreError> {
        let lane = &*self.lane;
        let mut work = pin!(work);
        loop {
            let now = lane.clock.now();
            if now >= deadline {
                return Err(StoreError::out_of_time(progress));
            }
            let first_deadline = self.expire(now, Some(progress.stage())).unwrap_or(deadline);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = lane.clock.sleep_until(first_deadline.min(deadline)) => {}
                () = lane.changed.notified() => {}
            }
        }
    }

    /// Ends the wait of those whose time is up, forgets those who left, and finds the first deadline among the rest.
    /// `stage` is where the call in flight is.
    fn expire(&self, now: Instant, stage: Option<Stage>) -> Option<Instant> {
        let lane = &*self.lane;
        let mut state = lane.state();
        let State { asking, queue, last_failure, .. } = &mut *state;
        let mut first = None::<Instant>;
        for (waiters, request_left) in [(asking, stage == Some(Stage::Query)), (queue, false)] {
            for waiter in queue::take_if(waiters, |waiter| waiter.deadline <= now) {
                waiter.give_up(lane, request_left, stage, last_failure.as_ref());
            }
            waiters.retain(|waiter| !waiter.reply.is_closed());
            let soonest = waiters.iter().map(|waiter| waiter.deadline).min();
            first = [first, soonest].into_iter().flatten().min();
        }
        first
    }

    fn probed(&self, took: Duration) -> Instant {
        let lane = &*self.lane;
        let mut state = lane.state();
        state.recovered(lane);
        state.way.observe(took);
        let now = lane.clock.now();
        state.way.probe_after().map_or(now, |pause| now + pause)
    }

    /// Hands out what came and says when to ask again.
    fn answered(&self, reply: Reply, ask: &Ask, deadline: Instant) -> Instant {
        let lane = &*self.lane;
        let Reply { asked, answered, answer } = &reply;
        let mut state = lane.state();
        state.requeue();
        state.recovered(lane);
        lane.tally.granted.add(answer.slots.len());
        // An answer that came after the deadline is a loss, however well it reads.
        let in_time = state.way.observe(answered.saturating_since(*asked)) && *answered <= deadline;
        if let Some(refusal) = answer.refusal {
            state.refused(lane, refusal, *asked);
            return *answered;
        }
        if in_time {
            state.hand_out(lane, &reply, ask);
        } else {
            lane.tally.dropped_round_trip.add(answer.slots.len());
        }
        match (state.way.probe_after(), answer.appointment) {
            (Some(pause), _) => *answered + pause,
            (None, Some(wait)) if in_time => *asked + wait,
            (None, _) => *answered,
        }
    }

    /// A store call failed. Those it asked for wait for the next, unless the store is out or waiting will not help.
    fn failed(&self, error: StoreError, asked: usize) -> Instant {
        let lane = &*self.lane;
        let now = lane.clock.now();
        let mut state = lane.state();
        lane.tally.store_failures.add(1);
        let uncertain = error.kind == Failing::Uncertain;
        if uncertain {
            lane.tally.lost.add(asked);
        }
        for waiter in &mut state.asking {
            waiter.uncertain = uncertain;
            waiter.lost += u32::from(uncertain);
        }
        state.requeue();
        let (code, message) = match error.kind {
            Failing::Misconfigured => (Code::Misconfigured, error.to_string()),
            Failing::Unavailable | Failing::Uncertain => match state.outage.failed(now, fastrand::f64()) {
                Verdict::RetryAt(moment) => {
                    if state.last_failure.is_none() {
                        tracing::warn!(budget = &*lane.budget, class = &*lane.class, %error, "call_budget_store_failing");
                    }
                    state.last_failure = Some(error);
                    return moment;
                }
                Verdict::Out(since) => {
                    (Code::StoreUnavailable, format!("the store has been out for {since:.1?}: {error}"))
                }
            },
        };
        tracing::error!(budget = &*lane.budget, class = &*lane.class, %error, code = code.as_str(), "call_budget_outage");
        for waiter in std::mem::take(&mut state.queue) {
            waiter.fail(AcquireError { stage: Some(error.stage), ..lane.error(code, &message) });
        }
        now
    }
}
