//! The task that makes a lane's calls while anybody waits.

use std::sync::Arc;

use super::Lane;
use super::queue::{InFlight, Outcome, State};
use super::watch::Judged;
use crate::clock::Clock;
use crate::error::{AcquireError, Code};
use crate::policy::Instant;
use crate::policy::outage::Verdict;
use crate::policy::step_fence::Wanted;
use crate::store::{Ask, Failing, Progress, Reply, Store, StoreError};

/// As many callers as one call asks for: the answer stays below a megabyte.
const BATCH: usize = 10_000;

pub(super) struct Driver<C: Clock, S: Store> {
    lane: Arc<Lane<C, S>>,
    /// A driver that was replaced, because its runtime stood still, finds another number in the lane.
    number: u64,
}

/// What the next call is for.
enum Question {
    Slots(Ask),
    Probe,
    Fence(Wanted),
}

impl<C: Clock, S: Store> Driver<C, S> {
    /// The driver from now on. Whatever the one before it has in flight counts as lost.
    pub fn appoint(lane: &Arc<Lane<C, S>>, state: &mut State, now: Instant) -> Self {
        lane.book.lost(state.abandon_call());
        state.drivers += 1;
        state.driver = Some(state.drivers);
        state.due = now;
        Self { lane: Arc::clone(lane), number: state.drivers }
    }

    pub async fn run(self) {
        let lane = &*self.lane;
        let mut next = lane.clock.now();
        loop {
            // What is asked for within a quiet moment of this process's own would be dropped.
            self.wait_until(next.max(lane.watch.counts_from(&lane.budget))).await;
            let progress = Arc::new(Progress::default());
            let Some((question, deadline)) = self.question(&progress) else { return };
            let _in_flight = lane.watch.call();
            let began = deadline - lane.bounds.store_call;
            let late = || StoreError::out_of_time(&progress);
            next = match question {
                Question::Probe => {
                    lane.tally.probes.add(1);
                    let probe = lane.clock.until(deadline, lane.store.probe(&progress)).await;
                    match probe.unwrap_or_else(|| Err(late())) {
                        Ok(reply) => self.probed(&reply, began),
                        Err(error) => self.failed(error, 0, began),
                    }
                }
                Question::Fence(wanted) => {
                    lane.tally.fence_requests.add(1);
                    let fenced = lane.clock.until(deadline, lane.store.fence(&lane.budget, &progress)).await;
                    match fenced.unwrap_or_else(|| Err(late())) {
                        Ok(fenced) => self.fenced(wanted, fenced, began),
                        Err(error) => self.failed(error, 0, began),
                    }
                }
                Question::Slots(ask) => {
                    lane.tally.store_calls.add(1);
                    let reply = lane.clock.until(deadline, lane.store.acquire(&ask, &progress)).await;
                    match reply.unwrap_or_else(|| Err(late())) {
                        Ok(reply) => self.answered(reply, &ask, deadline),
                        Err(error) => self.failed(error, ask.costs.len(), began),
                    }
                }
            };
        }
    }

    /// Waits for the moment of the next call, or until nobody waits any longer.
    async fn wait_until(&self, moment: Instant) {
        let lane = &*self.lane;
        while lane.clock.now() < moment && self.is_wanted_until(moment) {
            tokio::select! {
                // Which comes first is the same to the loop; that it is not drawn by lot is not: a simulation runs twice alike.
                biased;
                () = lane.clock.sleep_until(moment) => {}
                () = lane.emptied.notified() => {}
            }
        }
    }

    fn is_wanted_until(&self, moment: Instant) -> bool {
        let mut state = self.lane.state();
        let wanted = state.driver == Some(self.number) && !state.waiters.is_empty();
        if wanted {
            state.due = moment;
        }
        wanted
    }

    /// The question that asks for everybody in the queue, and the deadline of the call. `None` where nobody waits.
    ///
    /// The deadline is the call's own, whoever waits how long: callers end their own wait, and a call cut short for the
    /// impatient would cost the others its slots and its connection.
    fn question(&self, progress: &Arc<Progress>) -> Option<(Question, Instant)> {
        let lane = &*self.lane;
        let mut state = lane.state();
        if state.driver != Some(self.number) {
            return None;
        }
        let Some(head) = state.waiters.values().next() else {
            state.driver = None;
            return None;
        };
        let now = lane.clock.now();
        let patience = head.deadline.saturating_since(now);
        let deadline = now + lane.bounds.store_call;
        state.due = deadline;
        let without_slots = match lane.watch.wanted(&lane.budget, now) {
            Some(wanted) => Some(Question::Fence(wanted)),
            None => state.way.probe_after().map(|_| Question::Probe),
        };
        let asked = if without_slots.is_some() { 0 } else { state.waiters.len().min(BATCH) };
        state.call = Some(InFlight { progress: Arc::clone(progress), began: now, asked });
        if let Some(question) = without_slots {
            return Some((question, deadline));
        }
        let costs = state.waiters.values_mut().take(asked).map(|waiter| {
            waiter.asked = true;
            waiter.cost
        });
        let ask = Ask {
            budget: Arc::clone(&lane.budget),
            class: Arc::clone(&lane.class),
            lane: lane.id,
            costs: costs.collect(),
            patience,
            nonce: fastrand::i64(0..),
        };
        Some((Question::Slots(ask), deadline))
    }

    fn probed(&self, reply: &Reply, began: Instant) -> Instant {
        let lane = &*self.lane;
        lane.watch.probed(reply);
        let mut state = lane.state();
        let now = lane.clock.now();
        lane.tally.store.answered(began, now);
        if state.driver == Some(self.number) {
            state.call_over(false);
            state.recovered(lane);
            state.way.observe_probe(reply.answered.saturating_since(reply.asked));
        }
        state.way.probe_after().map_or(now, |pause| now + pause)
    }

    /// The store was asked for a fence. Where it will not fence, the lanes of this process keep quiet on their own.
    fn fenced(&self, wanted: Wanted, fenced: bool, began: Instant) -> Instant {
        let lane = &*self.lane;
        let now = lane.clock.now();
        lane.tally.store.answered(began, now);
        lane.watch.settle(&lane.budget, wanted, fenced, now);
        tracing::info!(budget = &*lane.budget, class = &*lane.class, fenced, "call_budget_fence_requested");
        let mut state = lane.state();
        if state.driver == Some(self.number) {
            state.call_over(false);
            state.recovered(lane);
        }
        now
    }

    /// Whether what the answer granted counts, by what it tells of the store's clock.
    fn counts(&self, reply: &Reply) -> bool {
        let lane = &*self.lane;
        let Judged { counts, step, fences } = lane.watch.answered(&lane.budget, reply);
        if let Some(step) = step {
            lane.tally.clock_steps.add(1);
            let (budget, class) = (&*lane.budget, &*lane.class);
            tracing::warn!(budget, class, step_us = step.by_us, "call_budget_store_clock_stepped");
        }
        if let Some(fences) = fences {
            // After a crash, a failover or a step, or by hand: whoever fenced, the budget has kept one quiet moment.
            tracing::info!(budget = &*lane.budget, fences, "call_budget_fenced");
        }
        counts
    }

    /// Hands out what came and says when to ask again.
    fn answered(&self, reply: Reply, ask: &Ask, deadline: Instant) -> Instant {
        let lane = &*self.lane;
        let Reply { asked, answered, answer } = &reply;
        lane.tally.store.answered(deadline - lane.bounds.store_call, lane.clock.now());
        let counts = self.counts(&reply);
        let mut state = lane.state();
        lane.book.granted(answer.slots.len());
        if state.driver != Some(self.number) {
            lane.book.dropped_late(answer.slots.len());
            return *answered;
        }
        // A refusal brings nothing that could be too old.
        let short =
            answer.refusal.is_some() || state.way.observe(answered.saturating_since(*asked), answer.send_window);
        // An answer that came after the deadline is a loss, however well it reads.
        let in_time = *answered <= deadline;
        state.recovered(lane);
        state.call_over(!in_time && !answer.slots.is_empty());
        if let Some(refusal) = answer.refusal {
            state.refused(lane, refusal, *asked);
        } else if !in_time {
            lane.book.dropped_late(answer.slots.len());
        } else if !counts {
            lane.book.dropped_clock_step(answer.slots.len());
        } else if !short {
            lane.book.dropped_round_trip(answer.slots.len());
        } else {
            state.hand_out(lane, &reply, ask);
        }
        if !counts {
            return *answered;
        }
        match (state.way.probe_after(), answer.appointment) {
            (Some(pause), _) => *answered + pause,
            (None, Some(wait)) if in_time => *asked + wait,
            (None, _) => *answered,
        }
    }

    /// A store call failed. Those it asked for wait for the next, unless the store is out or waiting will not help.
    fn failed(&self, error: StoreError, asked: usize, began: Instant) -> Instant {
        let lane = &*self.lane;
        let now = lane.clock.now();
        let error = error.after(now.saturating_since(began));
        lane.watch.failed(now);
        lane.tally.store.failed(error.stage, began, now);
        lane.tally.store.failing(now);
        let mut state = lane.state();
        lane.tally.store_failures.add(1);
        if state.driver != Some(self.number) {
            return now;
        }
        if error.may_have_spent {
            lane.book.lost(asked);
        }
        state.call_over(error.may_have_spent);
        let (code, message) = match error.kind {
            Failing::Misconfigured => (Code::Misconfigured, error.to_string()),
            Failing::Unavailable | Failing::Uncertain => match state.outage.failed(now, fastrand::f64()) {
                Verdict::RetryAt(moment) => {
                    if state.last_failure.is_none() {
                        let (budget, class, stage) = (&*lane.budget, &*lane.class, error.stage.as_str());
                        tracing::warn!(budget, class, stage, %error, "call_budget_store_failing");
                    }
                    state.last_failure = Some(error);
                    return moment;
                }
                Verdict::Out(since) => (
                    Code::StoreUnavailable,
                    format!("the store has been out for {:.1} s: {error}", since.as_secs_f64()),
                ),
            },
        };
        // Not for each newcomer of the same outage.
        if state.told.replace(code) != Some(code) {
            let (budget, class, stage) = (&*lane.budget, &*lane.class, error.stage.as_str());
            tracing::error!(budget, class, stage, %error, code = code.as_str(), "call_budget_outage");
        }
        state.end_all(|| AcquireError { stage: Some(error.stage), ..lane.error(code, &message) });
        now
    }
}

impl<C: Clock, S: Store> Drop for Driver<C, S> {
    /// A driver whose runtime shuts down leaves nobody waiting for it: they join again, each at its place.
    fn drop(&mut self) {
        let mut state = self.lane.state();
        if state.driver == Some(self.number) {
            state.driver = None;
            self.lane.book.lost(state.abandon_call());
            for waiter in std::mem::take(&mut state.waiters).into_values() {
                let lost = waiter.lost;
                waiter.tell(Outcome::Orphaned(lost));
            }
        }
    }
}
