//! Everything that the simulated processes share: time, the queue of events, the network, the store, the vendor, and the
//! books of the simulation. One lock around all of it, which nobody ever waits for: a seed runs on one thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use call_budget::policy::Instant;
use fastrand::Rng;

use crate::checks::Tallies;
use crate::checks::grants::Grants;
use crate::checks::order::Order;
use crate::checks::spacing::Spacing;
use crate::events::{Event, Events};
use crate::faults::Kind;
use crate::faults::happened::Happened;
use crate::faults::spells::Spells;
use crate::network::Answered;
use crate::plan::{BudgetPlan, Plan};
use crate::process::Process;
use crate::service::Service;
use crate::time::{MS, True};
use crate::timers::{Key, Timers};
use crate::trace::Trace;
use crate::vendor::Vendor;

/// A process of the fleet, by the order of its start.
pub type ProcessId = usize;

#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

pub struct State {
    pub now: True,
    pub plan: Arc<Plan>,
    pub rng: Rng,
    pub events: Events,
    pub timers: Timers,
    /// Store calls whose answer is awaited.
    pub calls: Timers,
    pub answers: HashMap<u64, Answered>,
    pub processes: Vec<Process>,
    pub service: Service,
    pub spells: Spells,
    pub happened: Happened,
    pub budgets: Vec<Budget>,
    pub grants: Grants,
    pub tallies: Tallies,
    pub trace: Trace,
    pub sends: u64,
    pub store_calls: u64,
}

/// One budget as it is at the time, and what its checks keep of it.
pub struct Budget {
    pub plan: BudgetPlan,
    pub vendor: Vendor,
    pub spacing: Spacing,
    pub order: Order,
    pub paused: bool,
    /// No slot before this moment of true time, since the vendor or an operator said so.
    pub blocked_until: True,
    pub blocked_for: i64,
    /// A change of its settings is under way until then.
    pub changing_until: True,
    /// The longest promise that it has ever made.
    pub widest_promise: True,
    /// Units and slots granted since measuring began, by class.
    pub measured: Vec<(u64, u64)>,
    pub calls_measured: u64,
    /// Units of the slots on which calls were sent since then.
    pub sent_measured: u64,
    /// Since when somebody waits for a slot of it, after everything was well again.
    pub wanted: Option<True>,
    /// The first grant since then.
    pub recovered: Option<True>,
}

impl World {
    pub fn new(plan: Arc<Plan>, shown: bool) -> Self {
        let mut rng = Rng::with_seed(plan.seed ^ 0x5EED);
        let budgets = plan.budgets.iter().map(|budget| Budget::new(budget, &mut rng)).collect();
        let mut events = Events::default();
        for (number, (at, _)) in plan.faults.iter().enumerate() {
            events.push(*at, Event::Fault(number));
        }
        events.push(plan.heals, Event::Heals);
        events.push(plan.measures, Event::Measures);
        events.push(plan.ends, Event::Ends);
        Self(Arc::new(Mutex::new(State {
            now: 0,
            rng,
            events,
            timers: Timers::default(),
            calls: Timers::default(),
            answers: HashMap::new(),
            processes: Vec::new(),
            service: Service::new(&plan),
            spells: Spells::default(),
            happened: Happened::default(),
            budgets,
            grants: Grants::default(),
            tallies: Tallies::default(),
            trace: Trace { shown, ..Trace::default() },
            sends: 0,
            store_calls: 0,
            plan,
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Budget {
    fn new(plan: &BudgetPlan, rng: &mut Rng) -> Self {
        let window = plan.window();
        Self {
            vendor: Vendor::new(window, plan.limit.units, rng.u64(0..window)),
            spacing: Spacing::default(),
            order: Order::default(),
            paused: false,
            blocked_until: 0,
            blocked_for: 0,
            changing_until: 0,
            widest_promise: plan.promise(),
            measured: vec![(0, 0); plan.classes.len()],
            calls_measured: 0,
            sent_measured: 0,
            wanted: None,
            recovered: None,
            plan: plan.clone(),
        }
    }
}

/// Processes and their clocks.
impl State {
    /// The moment in which a process is: while it is stopped or busy with something, it is already in the moment in which it
    /// goes on.
    pub fn moment_of(&self, process: ProcessId) -> True {
        self.now.max(self.processes[process].frozen_until)
    }

    pub fn shows(&self, process: ProcessId) -> Instant {
        let ns = self.processes[process].clock.shows_ns(self.moment_of(process));
        Instant::from_boot(crate::clock::duration(u64::try_from(ns).expect("a machine's clock counts from its boot")))
    }

    /// The process's own code reads its clock, and may be stopped just before it does.
    pub fn reads_clock(&mut self, process: ProcessId) -> Instant {
        let one = &mut self.processes[process];
        if let Some((reads, lasts)) = &mut one.stalls {
            if *reads == 0 {
                let lasts = *lasts;
                one.stalls = None;
                self.freeze(process, lasts);
                self.takes_effect(Kind::Stalled);
            } else {
                *reads -= 1;
            }
        }
        self.shows(process)
    }

    /// Stops a process: nothing moves it before it goes on.
    pub fn freeze(&mut self, process: ProcessId, lasts: True) {
        let moment = self.moment_of(process);
        // Not beyond the moment in which all is to be well.
        let lasts = lasts.min(self.plan.heals.saturating_sub(moment));
        let one = &mut self.processes[process];
        one.frozen_until = moment + lasts;
        one.frozen_for += lasts;
        self.trace.record(self.now, 1, process as u64, lasts);
        self.trace.tell(self.now, || format!("process {process} stands still for {:.3} s", lasts as f64 / 1e9));
    }

    /// A timer of a process: it is a little late, as timers are.
    pub fn wakes_at(&mut self, process: ProcessId, at: Instant, waker: Waker) -> Key {
        let key = self.timers.add(waker);
        let ns = i128::try_from(at.since_boot().as_nanos()).unwrap_or(i128::MAX / 4);
        let late = self.rng.u64(0..=11 * MS / 10);
        let due = self.processes[process].clock.reaches(ns).max(self.moment_of(process));
        self.events.push(due + late, Event::Timer(process, key));
        key
    }
}
