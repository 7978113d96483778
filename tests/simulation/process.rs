//! The processes of the fleet: each is a `CallBudget` of the product with callers that acquire and send.

use std::sync::Arc;
use std::time::Duration;

use call_budget::clock::Clock;
use call_budget::policy::Instant;
use call_budget::{AcquireError, CallBudget, Code, Options, Permit, Settings};

use crate::checks::Name;
use crate::clock::{SimClock, duration};
use crate::faults::Kind;
use crate::network::{Reading, SimStore};
use crate::plan::LanePlan;
use crate::time::{MS, Rate, SECOND, True};
use crate::world::{ProcessId, State, World};

pub type Budgets = CallBudget<SimClock, SimStore>;

/// `acquire` may be late by as much as timers are.
const LATE: Duration = Duration::from_millis(5);

/// One process, as the simulation sees it.
pub struct Process {
    pub part: usize,
    pub clock: Rate,
    /// Killed: nothing moves it any longer.
    pub dead: bool,
    /// Stopped: whatever comes before this moment comes in this moment.
    pub frozen_until: True,
    /// In all.
    pub frozen_for: True,
    /// It is stopped before it reads its clock for the so manieth time, for so long.
    pub stalls: Option<(u32, True)>,
    /// Nothing reaches it, and nothing of it gets out, until then, and why.
    pub cut_off: Option<(Kind, True)>,
    /// The last answer: between which moments it was asked and came, and what the store's clock was.
    pub heard: Option<(Instant, Instant, Reading)>,
    /// The timeline and the number of steps that it had no way to see.
    pub blind_to: (i64, u64),
    pub newest_timeline: i64,
    /// Slots that came to it with an answer.
    pub delivered: u64,
    /// Slots that it asked for in calls that it gave up on, or whose answer it could not use.
    pub in_doubt: u64,
    pub sent: u64,
    /// Units granted since measuring began, by lane.
    pub measured: Vec<(LanePlan, u64)>,
    pub waiting: Vec<Waiting>,
}

/// A caller that waits.
#[derive(Clone, Copy)]
pub struct Waiting {
    pub number: u64,
    pub budget: usize,
    pub entered: Instant,
    pub max_wait: Duration,
    frozen_for: True,
}

impl World {
    /// Starts a process that plays this part of the plan. It is to be kept until the seed ends.
    pub fn start(&self, part: usize) -> Budgets {
        let (process, lanes, settings) = {
            let mut state = self.lock();
            let plan = Arc::clone(&state.plan);
            let own = &plan.parts[part];
            let process = state.processes.len();
            state.processes.push(Process {
                part,
                clock: Rate::new(own.offset_ns, own.ppm),
                dead: false,
                frozen_until: 0,
                frozen_for: 0,
                stalls: None,
                cut_off: None,
                heard: None,
                blind_to: (0, 0),
                newest_timeline: 0,
                delivered: 0,
                in_doubt: 0,
                sent: 0,
                measured: own.lanes.iter().map(|lane| (*lane, 0)).collect(),
                waiting: Vec::new(),
            });
            let now = state.now;
            state.trace.record(now, 2, process as u64, part as u64);
            state.trace.tell(now, || format!("process {process} starts"));
            let mut settings = Settings::default();
            settings.rtt_max = plan.rtt_max;
            (process, own.lanes.clone(), settings)
        };
        let clock = SimClock { world: self.clone(), process };
        let budgets = CallBudget::with_store(&settings, clock.clone(), SimStore::new(clock.clone()))
            .expect("the settings are the default ones");
        for lane in lanes {
            for number in 0..lane.callers {
                let caller = Caller { clock: clock.clone(), budgets: budgets.clone(), lane };
                tokio::spawn(caller.run(number));
            }
        }
        budgets
    }
}

/// One task of a process that calls again and again.
struct Caller {
    clock: SimClock,
    budgets: Budgets,
    lane: LanePlan,
}

/// What a caller does next.
struct Next {
    rests: True,
    cost: u32,
    max_wait: Duration,
    /// It goes away after so long.
    goes_after: Option<True>,
    /// It keeps its permit for so long before it uses it.
    holds: True,
}

impl Caller {
    async fn run(self, number: usize) {
        let (budget, class, stays_below) = {
            let state = self.state();
            let plan = &state.plan.budgets[self.lane.budget];
            let class = &plan.classes[self.lane.class];
            (Arc::clone(&plan.name), Arc::clone(&class.name), class.stays_below)
        };
        // Not all in the same instant.
        let begins = self.state().rng.u64(0..=number as u64 * MS);
        self.rest(begins).await;
        loop {
            let next = self.state().next(&self.lane);
            if next.rests > 0 {
                self.rest(next.rests).await;
                continue;
            }
            let ticket = self.state().enters(self.clock.process, self.lane.budget, next.max_wait);
            let options = Options { cost: next.cost, max_wait: Some(next.max_wait) };
            let acquire = self.budgets.acquire_with(&budget, &class, options);
            let result = match next.goes_after {
                None => Some(acquire.await),
                Some(after) => self.clock.until(ticket.entered + duration(after), acquire).await,
            };
            let pause = self.state().returns(self.clock.process, ticket, &result, next.cost);
            if stays_below && matches!(result, Some(Ok(_))) {
                let took = self.clock.now().saturating_since(ticket.entered);
                self.state().judge_wait(self.lane.budget, took);
            }
            match result {
                Some(Ok(permit)) => {
                    self.rest(next.holds).await;
                    self.send(permit);
                }
                _ => self.rest(pause).await,
            }
            if stays_below {
                let rest = self.lane.rest + self.state().rng.u64(0..=self.lane.rest);
                self.rest(rest).await;
            } else if self.lane.rest > 0 && !self.state().is_well() {
                let rest = self.state().rng.u64(0..=2 * self.lane.rest);
                self.rest(rest).await;
            }
        }
    }

    /// Uses the permit, or not, as the permit says.
    fn send(&self, permit: Permit<SimClock>) {
        let nonce = permit.nonce();
        match permit.start() {
            Ok(sending) => {
                self.state().sends(self.clock.process, nonce);
                drop(sending);
            }
            Err(closed) => self.state().closed(self.clock.process, &closed),
        }
    }

    async fn rest(&self, lasts: True) {
        if lasts > 0 {
            let until = self.clock.now() + duration(lasts);
            self.clock.sleep_until(until).await;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.clock.world.lock()
    }
}

impl State {
    /// Faults are over.
    pub fn is_well(&self) -> bool {
        self.now >= self.plan.heals
    }

    fn next(&mut self, lane: &LanePlan) -> Next {
        let (now, well) = (self.now, self.is_well());
        let max_cost = self.budgets[lane.budget].plan.limit.max_cost;
        let interval = self.budgets[lane.budget].plan.spaced_by();
        let mixed = self.spells.mixed_costs && self.rng.bool();
        let cost = if mixed { self.rng.u32(1..=max_cost) } else { 1 };
        if cost > 1 {
            self.takes_effect(Kind::MixedCosts);
        }
        let idle = self.spells.idle.filter(|(_, until)| *until > now);
        if let Some((kind, _)) = idle {
            self.takes_effect(kind);
        }
        let rests = idle.map_or(0, |(_, until)| until - now);
        let impatient = self.hits(Kind::Impatient);
        // It takes effect only if nothing came before.
        let cancels = self.spells.hits(Kind::Cancelled, now, &mut self.rng);
        let goes_after = cancels.then(|| self.rng.u64(0..=4 * interval.min(SECOND)));
        // For long, or until about the end of the send window.
        let closes = self.budgets[lane.budget].plan.limit.send_window.as_nanos() as True;
        let holds = match self.hits(Kind::Holding) {
            true if self.rng.bool() => self.rng.u64(0..=400 * MS),
            true => self.rng.u64(closes.saturating_sub(5 * MS)..=closes + 2 * MS),
            false => 0,
        };
        let max_wait = if well {
            Duration::from_secs(30)
        } else if impatient {
            duration(self.rng.u64(0..=3 * interval.min(SECOND)))
        } else {
            duration(self.rng.u64(100 * MS..=20 * SECOND))
        };
        Next { rests, cost, max_wait, goes_after, holds }
    }

    fn enters(&mut self, process: ProcessId, budget: usize, max_wait: Duration) -> Waiting {
        let entered = self.shows(process);
        let number = self.trace.events;
        self.trace.record(self.now, 3, process as u64, max_wait.as_nanos() as u64);
        let one = &mut self.processes[process];
        let waiting = Waiting { number, budget, entered, max_wait, frozen_for: one.frozen_for };
        one.waiting.push(waiting);
        if self.is_well() {
            self.budgets[budget].wanted.get_or_insert(self.now);
        }
        waiting
    }

    /// An acquire has ended. Returns how long the caller pauses if it came to nothing.
    fn returns(
        &mut self,
        process: ProcessId,
        ticket: Waiting,
        result: &Option<Result<Permit<SimClock>, AcquireError>>,
        cost: u32,
    ) -> True {
        let now = self.shows(process);
        let one = &mut self.processes[process];
        one.waiting.retain(|waiting| waiting.number != ticket.number);
        let overdue = ticket.is_overdue(one, now);
        let took = now.saturating_since(ticket.entered);
        self.tallies.check(Name::MaxWait, !overdue, || {
            format!("process {process} waited {took:?} with a max_wait of {:?}", ticket.max_wait)
        });
        match result {
            Some(Ok(permit)) => {
                let nonce = permit.nonce().unwrap_or_default();
                self.trace.record(self.now, 4, process as u64, nonce);
                self.permitted(process, nonce, permit.cost(), cost);
                0
            }
            Some(Err(error)) => {
                self.trace.record(self.now, 5, process as u64, error.code() as u64);
                let (at, code) = (self.now, error.code());
                self.trace.tell(at, || format!("process {process} is told: {error}"));
                self.refused(process, code);
                self.rng.u64(20 * MS..=200 * MS)
            }
            None => {
                self.takes_effect(Kind::Cancelled);
                0
            }
        }
    }

    fn refused(&mut self, process: ProcessId, code: Code) {
        // Budgets and classes are never deleted here, and no cost is out of range when it is asked for; it can be when the
        // store looks at it, since an operator lowers the largest cost.
        let wrong = matches!(code, Code::UnknownBudget | Code::UnknownClass);
        self.tallies.check(Name::Refusals, !wrong, || format!("process {process} was told {code}"));
    }
}

impl Waiting {
    /// Longer than its max_wait and what its process stood still meanwhile.
    pub fn is_overdue(&self, process: &Process, now: Instant) -> bool {
        let frozen = duration(process.frozen_for - self.frozen_for).mul_f64(1.001);
        now.saturating_since(self.entered) > self.max_wait + frozen + LATE
    }
}
