//! A store that does what a test says, and remembers what it was asked.

use std::future::pending;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use call_budget::clock::Clock;
use call_budget::policy::stage::Stage;
use call_budget::store::{Answer, Ask, Failing, Progress, Refusal, Reply, Store, StoreError};
use call_budget::test_util::{Instant, ManualClock};
use call_budget::{CallBudget, Settings};
use tokio::sync::oneshot;

use crate::ms;

/// What one call of the store comes to.
pub enum Step {
    /// Slots for the first callers, so long from now; and when to come back for the rest.
    Grant(Vec<Duration>, Option<Duration>),
    /// A slot for everybody, now.
    GrantAll,
    Refuse(Refusal),
    Fail(Stage, Failing),
    Hang(Stage),
    /// The request has left, and the answer takes so long.
    After(Duration, Box<Step>),
    /// The request has left, and the answer comes when the test says so.
    When(oneshot::Receiver<()>, Box<Step>),
}

/// One question, and when it came.
pub struct Asked {
    pub at: Instant,
    pub ask: Ask,
}

type Next = dyn FnMut(usize, &Ask) -> Step + Send;
/// What a request for a fence comes to: whether the store fences, or how it fails.
type Fence = dyn FnMut() -> Result<bool, Failing> + Send;

pub struct Script<C: Clock>(Arc<Inner<C>>);

struct Inner<C> {
    clock: C,
    send_window: Duration,
    next: Mutex<Box<Next>>,
    probe: Mutex<Box<dyn FnMut() -> Duration + Send>>,
    asked: Mutex<Vec<Asked>>,
    probed_at: Mutex<Vec<Instant>>,
    fence: Mutex<Box<Fence>>,
    fenced_at: Mutex<Vec<Instant>>,
    fences: AtomicI64,
    timeline: AtomicI64,
    /// How far the store's clock is ahead of the caller's.
    ahead_us: AtomicI64,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

impl<C: Clock> Script<C> {
    /// `next` is told how many calls came before, and the question.
    pub fn new(clock: C, send_window: Duration, next: impl FnMut(usize, &Ask) -> Step + Send + 'static) -> Self {
        Self(Arc::new(Inner {
            clock,
            send_window,
            next: Mutex::new(Box::new(next)),
            probe: Mutex::new(Box::new(|| Duration::ZERO)),
            asked: Mutex::default(),
            probed_at: Mutex::default(),
            fence: Mutex::new(Box::new(|| Ok(true))),
            fenced_at: Mutex::default(),
            fences: AtomicI64::new(0),
            timeline: AtomicI64::new(1),
            ahead_us: AtomicI64::new(0),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
        }))
    }

    /// How long the next probes take, by their own account.
    pub fn probes_take(&self, probe: impl FnMut() -> Duration + Send + 'static) {
        *self.0.probe.lock().unwrap() = Box::new(probe);
    }

    /// What the next requests for a fence come to. It is granted where nobody says.
    pub fn fences_are(&self, fence: impl FnMut() -> Result<bool, Failing> + Send + 'static) {
        *self.0.fence.lock().unwrap() = Box::new(fence);
    }

    /// Somebody else fences.
    pub fn fence_by_another(&self) {
        self.0.fences.fetch_add(1, Ordering::SeqCst);
    }

    /// The store's clock steps, forward or back.
    pub fn step_by_us(&self, by_us: i64) {
        self.0.ahead_us.fetch_add(by_us, Ordering::SeqCst);
    }

    /// Another server answers from now on.
    pub fn promote(&self) {
        self.0.timeline.fetch_add(1, Ordering::SeqCst);
    }

    pub fn budget(&self, settings: &Settings) -> CallBudget<C, Self> {
        CallBudget::with_store(settings, self.0.clock.clone(), Self(Arc::clone(&self.0))).unwrap()
    }

    pub fn calls(&self) -> usize {
        self.0.asked.lock().unwrap().len()
    }

    pub fn costs(&self) -> Vec<Vec<u32>> {
        self.0.asked.lock().unwrap().iter().map(|asked| asked.ask.costs.clone()).collect()
    }

    pub fn lanes(&self) -> Vec<i64> {
        self.0.asked.lock().unwrap().iter().map(|asked| asked.ask.lane).collect()
    }

    pub fn asked_at(&self) -> Vec<Instant> {
        self.0.asked.lock().unwrap().iter().map(|asked| asked.at).collect()
    }

    pub fn probed_at(&self) -> Vec<Instant> {
        self.0.probed_at.lock().unwrap().clone()
    }

    pub fn fenced_at(&self) -> Vec<Instant> {
        self.0.fenced_at.lock().unwrap().clone()
    }

    pub fn most_in_flight(&self) -> usize {
        self.0.most_in_flight.load(Ordering::SeqCst)
    }

    /// An answer that grants nothing, as of now.
    fn nothing(&self) -> Answer {
        let now_us = i64::try_from(self.0.clock.now().since_boot().as_micros()).unwrap();
        Answer {
            slots: Vec::new(),
            appointment: None,
            refusal: None,
            send_window: self.0.send_window,
            interval: ms(1),
            lookahead: ms(60),
            max_cost: 10,
            version: 1,
            fences: self.0.fences.load(Ordering::SeqCst),
            timeline: self.0.timeline.load(Ordering::SeqCst),
            store_clock_us: now_us + self.0.ahead_us.load(Ordering::SeqCst),
        }
    }

    fn begin(&self) -> InFlight<'_> {
        let now = self.0.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most_in_flight.fetch_max(now, Ordering::SeqCst);
        InFlight(&self.0.in_flight)
    }
}

/// A clock that stands at zero, and a script on it with the send window of the design.
pub fn standing(next: impl FnMut(usize, &Ask) -> Step + Send + 'static) -> (ManualClock, Script<ManualClock>) {
    let clock = ManualClock::at(Instant::default());
    (clock.clone(), Script::new(clock, ms(50), next))
}

impl<C: Clock> Store for Script<C> {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        let _in_flight = self.begin();
        let Inner { clock, next, asked: log, .. } = &*self.0;
        let asked = clock.now();
        let before = {
            let mut log = log.lock().unwrap();
            log.push(Asked { at: asked, ask: ask.clone() });
            log.len() - 1
        };
        let mut step = (next.lock().unwrap())(before, ask);
        let (mut slots, mut appointment, mut refusal) = (Vec::new(), None, None);
        loop {
            match step {
                Step::After(time, then) => {
                    progress.enter(Stage::Query);
                    clock.sleep_until(clock.now() + time).await;
                    step = *then;
                }
                Step::When(event, then) => {
                    progress.enter(Stage::Query);
                    let _ = event.await;
                    step = *then;
                }
                Step::Hang(stage) => {
                    progress.enter(stage);
                    pending::<()>().await;
                    return Err(failure(stage, Failing::Unavailable));
                }
                Step::Fail(stage, kind) => {
                    progress.enter(stage);
                    return Err(failure(stage, kind));
                }
                Step::Grant(waits, rest) => {
                    (slots, appointment) = (waits, rest);
                    break;
                }
                Step::GrantAll => {
                    slots = vec![Duration::ZERO; ask.costs.len()];
                    break;
                }
                Step::Refuse(why) => {
                    refusal = Some(why);
                    break;
                }
            }
        }
        let answer = Answer { slots, appointment, refusal, ..self.nothing() };
        Ok(Reply { asked, answered: clock.now(), answer })
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        let _in_flight = self.begin();
        progress.enter(Stage::Query);
        let now = self.0.clock.now();
        self.0.probed_at.lock().unwrap().push(now);
        let took = (self.0.probe.lock().unwrap())();
        let refusal = Some(Refusal::UnknownBudget);
        Ok(Reply { asked: now, answered: now + took, answer: Answer { refusal, timeline: 0, ..self.nothing() } })
    }

    async fn fence(&self, _: &str, progress: &Arc<Progress>) -> Result<bool, StoreError> {
        let _in_flight = self.begin();
        progress.enter(Stage::Query);
        self.0.fenced_at.lock().unwrap().push(self.0.clock.now());
        let fenced = (self.0.fence.lock().unwrap())().map_err(|kind| failure(Stage::Query, kind))?;
        self.0.fences.fetch_add(i64::from(fenced), Ordering::SeqCst);
        Ok(fenced)
    }

    async fn report_pushback(
        &self,
        _: &str,
        duration: Duration,
        _: &str,
        progress: &Arc<Progress>,
    ) -> Result<Duration, StoreError> {
        progress.enter(Stage::Query);
        Ok(duration)
    }
}

fn failure(stage: Stage, kind: Failing) -> StoreError {
    StoreError::new(stage, kind, "as the script says")
}

struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
