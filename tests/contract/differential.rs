//! The SQL against the scheduler in memory, over random calls at chosen times; and part of the same calls against the
//! model in Python.
//!
//! After every step the answers and all rows must be equal. The run counts the branches that the decision took and fails
//! if it missed one. `CONTRACT_SEED` repeats a run.

use std::collections::BTreeMap;
use std::env;

use call_budget::store::memory::scheduler::{Answer, Branch, Call, Scheduler, Settings};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::model;
use crate::store::{BUDGET, START_US, Store};

const FLEETS: usize = 16;
const STEPS_A_FLEET: usize = 1400;
/// Every so manieth fleet goes through the model in Python too.
const MODEL_EVERY: usize = 3;
const VISITS_A_BRANCH: usize = 100;

#[tokio::test]
async fn sql_memory_and_model_decide_alike_at_every_step() {
    let seed = env::var("CONTRACT_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("CONTRACT_SEED={seed}");
    let mut visits: BTreeMap<Branch, usize> = BTreeMap::new();
    let mut steps = 0;
    for fleet in 0..FLEETS {
        let mut run = Run::new(seed, fleet).await;
        for _ in 0..STEPS_A_FLEET {
            run.step(&mut visits).await;
        }
        if fleet % MODEL_EVERY == 0 {
            run.compare_with_model();
        }
        steps += run.log.len();
    }
    println!("{steps} steps, visits: {visits:?}");
    assert!(steps >= 20_000, "{steps} steps are too few");
    for branch in Branch::ALL {
        let visits = visits.get(&branch).copied().unwrap_or_default();
        assert!(visits >= VISITS_A_BRANCH, "{branch:?} was visited {visits} times only (CONTRACT_SEED={seed})");
    }
}

/// One fleet: its store, its scheduler in memory, and what was done so far.
struct Run {
    name: String,
    rng: Rng,
    store: Store,
    memory: Scheduler,
    now_us: i64,
    /// What a restart falls back to.
    kept: Scheduler,
    last_call: Option<(usize, Vec<i32>, i64)>,
    /// Lane ids with the class that each one asks under.
    lanes: Vec<(i64, &'static str)>,
    log: Vec<Value>,
    expected: Vec<Value>,
}

const CLASSES: [&str; 4] = ["order", "minute", "index", "eod"];

impl Run {
    async fn new(seed: u64, fleet: usize) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_add(fleet as u64));
        let settings = settings(&mut rng);
        let store = Store::new(settings).await;
        let memory = Scheduler::new(settings);
        let lanes = (0..rng.i64(1..=24)).map(|lane| (lane * 7919, CLASSES[rng.usize(..CLASSES.len())])).collect();
        let name = format!("CONTRACT_SEED={seed}, fleet {fleet}");
        let kept = memory.clone();
        let (log, expected) = (Vec::new(), Vec::new());
        let mut run = Self { name, rng, store, memory, now_us: START_US, kept, last_call: None, lanes, log, expected };
        run.note(new_budget("new", settings), json!({}));
        for class in CLASSES {
            run.set_class(class).await;
        }
        run.remember();
        run
    }

    async fn step(&mut self, visits: &mut BTreeMap<Branch, usize>) {
        match self.rng.u32(..1000) {
            // A lane keeps its appointment; others, whose appointments have passed meanwhile, are the dead ones.
            0..500 => {
                let due = self.lanes.iter().enumerate().filter_map(|(index, (lane, _))| {
                    let row = self.memory.waiters.get(lane).filter(|row| row.units > 0)?;
                    (row.appointment_us >= self.now_us).then_some((row.appointment_us, index))
                });
                let lane = match due.min() {
                    Some((appointment_us, index)) => {
                        self.now_us = appointment_us + self.rng.i64(0..2000);
                        index
                    }
                    None => self.rng.usize(..self.lanes.len()),
                };
                self.call(lane, visits).await;
            }
            // Somebody calls whenever he likes.
            500..720 => {
                let spread_us = [100, 20_000, 3 * self.memory.budget.settings.interval_us][self.rng.usize(..3)];
                self.now_us += self.rng.i64(0..=spread_us);
                let lane = self.rng.usize(..self.lanes.len());
                self.call(lane, visits).await;
            }
            // The answer was lost: the same call again.
            720..760 => {
                self.now_us += self.rng.i64(0..1000);
                if let Some((lane, costs, patience_us)) = self.last_call.clone() {
                    let (lane, class) = self.lanes[lane];
                    self.reserve(class, lane, &costs, patience_us, visits).await;
                }
            }
            760..775 => self.lane_changes_class(visits).await,
            775..785 => {
                let too_much = self.memory.budget.settings.max_cost + self.rng.i32(1..3);
                self.reserve("order", 1, &[1, too_much], 0, visits).await;
            }
            785..795 => self.reserve("nobody", 1, &[1], 0, visits).await,
            795..815 => {
                self.now_us -=
                    [self.rng.i64(0..500), self.rng.i64(0..100_000), self.rng.i64(0..20_000_000)][self.rng.usize(..3)]
            }
            815..835 => self.remember(),
            835..850 => self.restart_forgetting_commits().await,
            850..860 => self.forget().await,
            860..875 => self.push_back().await,
            875..885 => self.pause_for_a_few_calls(visits).await,
            885..905 => {
                let settings = settings(&mut self.rng);
                self.set(settings).await;
            }
            905..915 => self.fence_narrow_and_fence_again(visits).await,
            915..935 => {
                let class = CLASSES[self.rng.usize(..CLASSES.len())];
                self.set_class(class).await;
            }
            935..940 => self.delete_and_create_a_class(visits).await,
            // Long silence: rows older than ten minutes are swept by the next newcomer.
            940..956 => {
                self.now_us += self.rng.i64(550_000_000..700_000_000);
                let (index, lane) = (self.rng.usize(..self.lanes.len()), self.rng.i64(1_000_000..));
                self.lanes[index].0 = lane;
                self.call(index, visits).await;
            }
            956..962 => self.now_us += self.rng.i64(0..10_000_000),
            _ => self.everybody_calls(visits).await,
        }
    }

    /// Call with costs and patience by chance.
    async fn call(&mut self, lane: usize, visits: &mut BTreeMap<Branch, usize>) {
        let Settings { interval_us, max_cost, .. } = self.memory.budget.settings;
        let callers = match self.rng.u32(..10) {
            0..4 => 1,
            4..7 => self.rng.usize(1..8),
            _ => self.rng.usize(1..300),
        };
        let costs: Vec<i32> =
            (0..callers).map(|_| if self.rng.bool() { 1 } else { self.rng.i32(1..=max_cost) }).collect();
        let patience_us = match self.rng.u32(..10) {
            0 => 0,
            1 => self.rng.i64(0..=(10 * interval_us).min(DAY_US)),
            _ => DAY_US,
        };
        self.last_call = Some((lane, costs.clone(), patience_us));
        let (lane, class) = self.lanes[lane];
        self.reserve(class, lane, &costs, patience_us, visits).await;
    }

    async fn reserve(
        &mut self,
        class: &str,
        lane: i64,
        costs: &[i32],
        patience_us: i64,
        visits: &mut BTreeMap<Branch, usize>,
    ) {
        let call = Call { class, lane, costs, patience_us };
        let before = self.memory.clone();
        let mut taken = Vec::new();
        let expected = self.memory.reserve_watched(call, self.now_us, &mut |branch| taken.push(branch));
        let (answer, rows) = self.store.reserve_and_rows(call, self.now_us).await;
        let context = || {
            format!(
                "{}, step {}, {call:?} at {}, {taken:?}, before: {before:#?}",
                self.name,
                self.log.len(),
                self.now_us
            )
        };
        assert_eq!(answer, expected, "{}", context());
        assert_eq!(rows, self.memory, "{}", context());
        self.check_bounds(&answer);
        for branch in taken {
            *visits.entry(branch).or_default() += 1;
        }
        let Answer { waits_us, retry_us, reason, .. } = answer;
        self.note(
            json!({"do": "reserve", "now": self.now_us, "class": class, "lane": lane, "costs": costs, "patience": patience_us}),
            json!({"waits": waits_us, "retry": retry_us, "reason": reason}),
        );
    }

    fn check_bounds(&self, answer: &Answer) {
        assert!(answer.waits_us.iter().all(|wait_us| (0..=answer.lookahead_us).contains(wait_us)), "{answer:?}");
        if answer.reason.is_none() {
            assert!(answer.retry_us.is_none_or(|retry_us| (0..=5_000_000).contains(&retry_us)), "{answer:?}");
            assert!(!answer.waits_us.is_empty() || answer.retry_us.is_some(), "{answer:?}");
        } else {
            assert!(answer.waits_us.is_empty(), "{answer:?}");
        }
    }

    /// A crowd: whoever ranks low sees long queues before him.
    async fn everybody_calls(&mut self, visits: &mut BTreeMap<Branch, usize>) {
        for lane in 0..self.lanes.len() {
            self.now_us += self.rng.i64(0..200);
            self.call(lane, visits).await;
        }
    }

    async fn lane_changes_class(&mut self, visits: &mut BTreeMap<Branch, usize>) {
        // One that waits, where one does: its place in the queue is in the other class.
        let waits = |(lane, _): &(i64, &str)| self.memory.waiters.get(lane).is_some_and(|row| row.units > 0);
        let index = self.lanes.iter().position(waits).unwrap_or(0);
        self.lanes[index].1 = CLASSES[self.rng.usize(..CLASSES.len())];
        self.call(index, visits).await;
    }

    fn remember(&mut self) {
        self.kept = self.memory.clone();
        self.note(json!({"do": "remember"}), json!({}));
    }

    async fn restart_forgetting_commits(&mut self) {
        self.memory = Scheduler { remembered: false, ..self.kept.clone() };
        self.store.restore(&self.memory).await;
        self.note(json!({"do": "restore"}), json!({}));
        self.compare_rows().await;
    }

    async fn forget(&mut self) {
        self.memory.remembered = false;
        self.store.forget().await;
        self.note(json!({"do": "forget"}), json!({}));
    }

    async fn push_back(&mut self) {
        let duration_us = self.rng.i64(0..100_000_000);
        let (function, cap_us) =
            if self.rng.bool() { ("report_pushback", 60_000_000) } else { ("pushback", 3_600_000_000) };
        let left = self.memory.push_back(duration_us, cap_us, self.now_us);
        self.store.at(self.now_us).await;
        let sql = format!("SELECT call_budget.call_budget_{function}($1, {duration_us}, 'too many')");
        assert_eq!(self.store.number(&sql).await, left, "{}", self.name);
        self.compare_rows().await;
        self.note(
            json!({"do": "push", "duration": duration_us, "cap": cap_us, "now": self.now_us}),
            json!({"left": left}),
        );
        // Or nothing else would happen for the rest of the fleet.
        if self.rng.bool() {
            self.now_us += left;
        }
    }

    async fn pause_for_a_few_calls(&mut self, visits: &mut BTreeMap<Branch, usize>) {
        self.memory.pause();
        self.store.client().query("SELECT call_budget.call_budget_pause($1, 'test')", &[&BUDGET]).await.unwrap();
        self.note(json!({"do": "pause", "paused": true}), json!({}));
        for _ in 0..3 {
            self.now_us += self.rng.i64(0..100_000);
            let lane = self.rng.usize(..self.lanes.len());
            self.call(lane, visits).await;
        }
        self.memory.resume();
        self.store.client().query("SELECT call_budget.call_budget_resume($1)", &[&BUDGET]).await.unwrap();
        self.note(json!({"do": "pause", "paused": false}), json!({}));
        self.compare_rows().await;
    }

    async fn set(&mut self, settings: Settings) {
        self.memory.set(settings);
        self.store.set(settings).await;
        self.note(new_budget("set", settings), json!({}));
        self.compare_rows().await;
    }

    /// The second fence must not end before the first.
    async fn fence_narrow_and_fence_again(&mut self, visits: &mut BTreeMap<Branch, usize>) {
        let before = self.memory.budget.settings;
        self.fence().await;
        self.set(Settings { interval_us: 100, lookahead_us: 1000, send_window_us: 1000, max_cost: 1 }).await;
        self.now_us += self.rng.i64(0..1000);
        for _ in 0..2 {
            self.forget().await;
            let lane = self.rng.usize(..self.lanes.len());
            self.call(lane, visits).await;
        }
        self.set(before).await;
    }

    async fn fence(&mut self) {
        let length_us = self.memory.fence(self.now_us);
        self.store.at(self.now_us).await;
        assert_eq!(self.store.number("SELECT call_budget.call_budget_fence($1)").await, length_us, "{}", self.name);
        self.note(json!({"do": "fence", "now": self.now_us}), json!({}));
        self.compare_rows().await;
    }

    /// Priority and floor by chance; a floor that does not fit in is refused by both and then halved.
    async fn set_class(&mut self, class: &str) {
        let priority = self.rng.i32(0..3);
        let mut floor_ppm = if self.rng.bool() { 0 } else { self.rng.i32(1000..=600_000) };
        loop {
            let refused = self.memory.set_class(class, priority, floor_ppm).is_err();
            assert_eq!(self.store.set_class(class, priority, floor_ppm).await.is_err(), refused, "{}", self.name);
            if !refused {
                break;
            }
            floor_ppm = if floor_ppm < 2000 { 0 } else { floor_ppm / 2 };
        }
        self.note(json!({"do": "class", "class": class, "priority": priority, "floor": floor_ppm}), json!({}));
        self.compare_rows().await;
    }

    async fn delete_and_create_a_class(&mut self, visits: &mut BTreeMap<Branch, usize>) {
        let class = CLASSES[self.rng.usize(..CLASSES.len())];
        assert!(self.memory.delete_class(class));
        let sql = "SELECT call_budget.call_budget_class_delete($1, $2)";
        self.store.client().query(sql, &[&BUDGET, &class]).await.unwrap();
        self.note(json!({"do": "drop", "class": class}), json!({}));
        let lane = self.rng.usize(..self.lanes.len());
        self.call(lane, visits).await;
        self.set_class(class).await;
    }

    async fn compare_rows(&self) {
        assert_eq!(self.store.rows().await, self.memory, "{}, step {}", self.name, self.log.len());
    }

    /// Notes the command for the model, and what it must answer.
    fn note(&mut self, command: Value, mut answer: Value) {
        let Scheduler { budget: b, classes, waiters, .. } = &self.memory;
        let units: i64 = waiters.values().map(|waiter| waiter.units).sum();
        let due: i64 = classes.values().map(|class| class.due_us).sum();
        answer["state"] =
            json!([b.last_slot_us, b.last_seen_us, b.blocked_until_us, b.fenced_until_us, b.fences, units, due]);
        self.log.push(command);
        self.expected.push(answer);
    }

    fn compare_with_model(&self) {
        let answers = model::answers(&self.log);
        assert_eq!(answers.len(), self.expected.len());
        for (step, (answer, expected)) in answers.iter().zip(&self.expected).enumerate() {
            assert_eq!(answer, expected, "{}, step {step}: the model parts at {}", self.name, self.log[step]);
        }
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let pick = |rng: &mut Rng, from: &[i64]| from[rng.usize(..from.len())];
    Settings {
        interval_us: pick(rng, &[100, 1000, 1000, 10_000, 10_000, 61_174, 200_000, 1_101_101, 10_000_000]),
        lookahead_us: pick(rng, &[1000, 60_000, 60_000, 250_000, 250_000, 5_000_000]),
        send_window_us: pick(rng, &[1000, 50_000, 50_000, 1_000_000]),
        max_cost: pick(rng, &[1, 3, 5, 20]) as i32,
    }
}

fn new_budget(verb: &str, s: Settings) -> Value {
    json!({"do": verb, "interval": s.interval_us, "lookahead": s.lookahead_us, "grace": s.send_window_us, "max_cost": s.max_cost})
}

const DAY_US: i64 = 86_400_000_000;
