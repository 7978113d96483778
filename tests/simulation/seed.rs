//! One seed, from its plan to its tallies.

use std::collections::BTreeMap;
use std::sync::Arc;

use call_budget::Counters;
use tokio::runtime::Builder;

use crate::checks::{Name, Tallies};
use crate::delivery::Effect;
use crate::faults::Kind;
use crate::idle::Idle;
use crate::plan::Plan;
use crate::process::Budgets;
use crate::sends::STORE_CALL;
use crate::time::{MS, True};
use crate::world::{State, World};

/// A store call, with what clocks differ by and timers are late.
const GIVEN_UP: True = STORE_CALL.as_nanos() as True + 10 * MS;

/// What came of a seed.
pub struct Played {
    pub seed: u64,
    pub tallies: Tallies,
    pub sends: u64,
    pub hash: u64,
    pub events: u64,
    /// Faults that happened, by kind.
    pub happened: BTreeMap<Kind, u64>,
    pub planned: usize,
}

/// Plays the seed. The same seed gives the same run.
pub fn play(seed: u64, shown: bool) -> Played {
    // The product draws nonces and pauses from the thread's generator.
    fastrand::seed(seed);
    let plan = Arc::new(Plan::of_seed(seed));
    let world = World::new(Arc::clone(&plan), shown);
    let idle = Idle::default();
    let reached = idle.clone();
    let runtime = Builder::new_current_thread().on_thread_park(move || reached.reached()).build();
    let runtime = runtime.expect("a runtime without drivers needs nothing of the machine");
    let fleet = runtime.block_on(run(&world, &idle));
    let mut state = world.lock();
    let counters: Vec<Counters> = fleet.iter().map(Budgets::counters).collect();
    state.judge_books(&counters);
    state.judge_waiting();
    state.judge_health();
    let played = Played {
        seed,
        tallies: state.tallies.clone(),
        sends: state.sends,
        hash: state.trace.hash,
        events: state.trace.events,
        happened: state.happened.by_kind().clone(),
        planned: plan.faults.len(),
    };
    drop(state);
    drop(fleet);
    drop(runtime);
    played
}

async fn run(world: &World, idle: &Idle) -> Vec<Budgets> {
    let parts = world.lock().plan.parts.len();
    let mut fleet: Vec<Budgets> = (0..parts).map(|part| world.start(part)).collect();
    idle.wait().await;
    loop {
        let effect = world.lock().next_event();
        match effect {
            Effect::Nothing => continue,
            Effect::Wake(waker) => waker.wake(),
            Effect::Start(parts) => fleet.extend(parts.into_iter().map(|part| world.start(part))),
            Effect::End => return fleet,
        }
        idle.wait().await;
    }
}

impl State {
    /// Each slot is somewhere, and once.
    fn judge_books(&mut self, counters: &[Counters]) {
        // By then a caller has its answer, or has given up on it. Nothing is late any longer at the end.
        let undelivered = self.grants.undelivered(self.now.saturating_sub(GIVEN_UP));
        for (number, counters) in counters.iter().enumerate() {
            let one = &self.processes[number];
            let (delivered, in_doubt, sent, dead) = (one.delivered, one.in_doubt, one.sent, one.dead);
            let dropped = counters.dropped_round_trip
                + counters.dropped_late
                + counters.dropped_unwanted
                + counters.dropped_clock_step;
            self.tallies.check(Name::Books, counters.granted == delivered, || {
                format!("process {number} was brought {delivered} slots and has {} in its books", counters.granted)
            });
            self.tallies.check(Name::Books, counters.granted == counters.permits + dropped, || {
                format!("process {number}: {counters:?} do not balance")
            });
            let undelivered = undelivered.get(&number).copied().unwrap_or_default();
            self.tallies.check(Name::Books, dead || undelivered <= counters.lost, || {
                format!("{undelivered} slots of process {number} came to nothing, it knows of {}", counters.lost)
            });
            self.tallies.check(Name::Books, dead || in_doubt == counters.lost, || {
                format!("process {number} asked for {in_doubt} slots in vain, it knows of {}", counters.lost)
            });
            self.tallies.check(Name::Books, sent + counters.lapsed <= counters.permits, || {
                format!("process {number} sent {sent}, {} lapsed, of {} permits", counters.lapsed, counters.permits)
            });
        }
        let stored: u64 = self
            .service
            .primary
            .budgets
            .iter()
            .flat_map(|budget| budget.classes.values())
            .map(|class| class.granted.unsigned_abs())
            .sum();
        let (decided, forgotten, beside) = (self.grants.decided, self.service.forgotten, self.service.beside);
        self.tallies.check(Name::Books, stored + forgotten + beside == decided, || {
            format!("the store granted {decided}; it knows of {stored}, forgot {forgotten}, and an old server granted {beside}")
        });
    }

    /// Nobody waits longer than it may.
    fn judge_waiting(&mut self) {
        for number in 0..self.processes.len() {
            let now = self.shows(number);
            let one = &self.processes[number];
            let overdue = one.waiting.iter().filter(|waiting| waiting.is_overdue(one, now)).count();
            if !one.dead {
                self.tallies.check(Name::MaxWait, overdue == 0, || {
                    format!("{overdue} callers of process {number} wait on after their max_wait")
                });
            }
        }
    }
}
