//! The way to the store and back, and the store as a process of the product sees it: `call_budget::store::Store`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use call_budget::clock::Clock;
use call_budget::policy::Instant;
use call_budget::policy::stage::Stage;
use call_budget::store::memory::{self, scheduler};
use call_budget::store::{Ask, Failing, Progress, Reply, Store, StoreError, Timelines};

use crate::clock::SimClock;
use crate::timers::Key;
use crate::world::ProcessId;

/// What a process asks of the store.
#[derive(Clone, Debug)]
pub enum Question {
    Slots(Ask),
    Probe,
    Fence(Arc<str>),
    PushBack(Arc<str>, Duration),
}

/// On its way to the store.
pub struct Request {
    pub process: ProcessId,
    pub call: Key,
    pub question: Question,
    /// The server's starts when it got there: what it had not answered by its end, it never will.
    pub epoch: u32,
    pub to_old_server: bool,
}

/// On its way back.
pub struct Delivery {
    pub process: ProcessId,
    pub call: Key,
    pub answer: Answered,
}

/// What comes back: an answer, or the news that none will come.
#[derive(Clone, Debug)]
pub enum Answered {
    Slots { answer: Option<scheduler::Answer>, timeline: i64, seen: Reading },
    Probed { store_us: i64, seen: Reading },
    Fenced(bool),
    PushedBack(i64),
    Failed(Stage, Failing, &'static str),
}

/// Where the store's clock was when it was read, for those who keep the books of the simulation: its server,
/// and how many steps of how much in all it had made.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub timeline: i64,
    pub steps: u64,
    pub stepped_us: i64,
}

/// The store of one process.
pub struct SimStore {
    pub clock: SimClock,
    pub timelines: Timelines,
}

impl SimStore {
    pub fn new(clock: SimClock) -> Self {
        Self { clock, timelines: Timelines::default() }
    }

    async fn ask(&self, question: Question, progress: &Progress) -> (Instant, Instant, Answered) {
        progress.enter(Stage::Query);
        let asked = self.clock.now();
        let slots = if let Question::Slots(ask) = &question { ask.costs.len() as u64 } else { 0 };
        let call = self.clock.world.lock().requests(self.clock.process, question);
        let answer = Awaited { clock: &self.clock, call, in_doubt: slots }.await;
        (asked, self.clock.now(), answer)
    }
}

/// A call whose answer is awaited. Dropping it abandons the call.
struct Awaited<'a> {
    clock: &'a SimClock,
    call: Key,
    /// Slots that it may spend, until an answer says what came of it.
    in_doubt: u64,
}

impl Future for Awaited<'_> {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let clock = self.clock;
        let mut state = clock.world.lock();
        match state.answers.remove(&(self.call.number())) {
            Some(answer) => {
                if !matches!(answer, Answered::Failed(_, Failing::Uncertain, _)) {
                    self.in_doubt = 0;
                }
                Poll::Ready(answer)
            }
            None => {
                state.calls.wake_by(self.call, context.waker());
                Poll::Pending
            }
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut state = self.clock.world.lock();
        state.answers.remove(&self.call.number());
        state.processes[self.clock.process].in_doubt += self.in_doubt;
        let _waker = state.calls.cancel(self.call);
    }
}

fn no_answer(answer: Answered) -> StoreError {
    match answer {
        Answered::Failed(stage, kind, message) => StoreError::new(stage, kind, message),
        other => {
            StoreError::new(Stage::Query, Failing::Misconfigured, format!("an answer to another question: {other:?}"))
        }
    }
}

impl Store for SimStore {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        let (asked, answered, answer) = self.ask(Question::Slots(ask.clone()), progress).await;
        let Answered::Slots { answer, timeline, seen } = answer else { return Err(no_answer(answer)) };
        let store_us = answer.as_ref().map_or(0, |answer| answer.store_us);
        let answer = memory::answer(ask, answer, timeline, store_us)?;
        if answer.timeline > 0 {
            self.timelines.refuse_older(answer.timeline).inspect_err(|_| {
                self.clock.world.lock().processes[self.clock.process].in_doubt += ask.costs.len() as u64;
            })?;
        }
        self.clock.world.lock().delivered(self.clock.process, ask, asked, answered, &answer, seen);
        Ok(Reply { asked, answered, answer })
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        let (asked, answered, answer) = self.ask(Question::Probe, progress).await;
        let Answered::Probed { store_us, seen } = answer else { return Err(no_answer(answer)) };
        let (budget, class) = ("".into(), "".into());
        let nobody = Ask { budget, class, lane: 0, costs: vec![1], patience: Duration::ZERO, nonce: 0 };
        let answer = memory::answer(&nobody, None, 0, store_us)?;
        self.clock.world.lock().heard(self.clock.process, asked, answered, seen);
        Ok(Reply { asked, answered, answer })
    }

    async fn fence(&self, budget: &str, progress: &Arc<Progress>) -> Result<bool, StoreError> {
        match self.ask(Question::Fence(budget.into()), progress).await.2 {
            Answered::Fenced(fenced) => Ok(fenced),
            other => Err(no_answer(other)),
        }
    }

    async fn report_pushback(
        &self,
        budget: &str,
        duration: Duration,
        _reason: &str,
        progress: &Arc<Progress>,
    ) -> Result<Duration, StoreError> {
        match self.ask(Question::PushBack(budget.into(), duration), progress).await.2 {
            Answered::PushedBack(left_us) => Ok(Duration::from_micros(u64::try_from(left_us).unwrap_or_default())),
            other => Err(no_answer(other)),
        }
    }
}
