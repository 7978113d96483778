//! A simulated fleet: many processes' lanes that drive the SQL function in simulated time.
//!
//! Discrete events: a call travels to the store, queues for the row, is decided, and its answer travels back; the lane
//! sends inside the window of each slot and returns at its appointment.

use std::cmp::{Reverse, max};
use std::collections::{BinaryHeap, VecDeque};

use call_budget::store::memory::scheduler::{Answer, Call, Settings};
use fastrand::Rng;

use crate::store::{KIS, START_US, Store};

/// Who asks. One lane has one store call in flight.
#[derive(Clone, Copy)]
pub enum Demand {
    /// So many callers always wait.
    Keep(usize),
    /// Callers arrive by chance, so many a second.
    Poisson(f64),
}

pub struct Fleet {
    pub lanes: Vec<(&'static str, Demand)>,
    pub settings: Settings,
    pub seconds: i64,
    /// Both ways together, from and to.
    pub round_trip_us: (i64, i64),
    /// How long one call holds the row.
    pub service_us: i64,
    /// Answers of calls served in this time (seconds from the start) are lost while the store commits.
    pub lost: Option<(i64, i64)>,
    /// From this second on, other settings.
    pub change: Option<(i64, Settings)>,
    /// Costs that a caller may have, by chance.
    pub costs: &'static [i32],
    pub seed: u64,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            lanes: Vec::new(),
            settings: Settings { interval_us: 62_500, ..KIS },
            seconds: 60,
            round_trip_us: (400, 2000),
            service_us: 800,
            lost: None,
            change: None,
            costs: &[1],
            seed: 1,
        }
    }
}

/// One granted slot. Times are microseconds from the start.
pub struct Grant {
    pub slot_us: i64,
    pub cost: i32,
    pub class: &'static str,
    /// Since when the caller had waited.
    pub arrived_us: i64,
    /// Whether its answer came back, in time to be sent.
    pub sent: bool,
}

pub struct Report {
    pub calls: usize,
    pub grants: Vec<Grant>,
}

impl Report {
    /// Units granted from second `from` to second `to`, by what the interval offers there.
    pub fn use_between(&self, from: i64, to: i64, interval_us: i64) -> f64 {
        let span = from * SECOND..to * SECOND;
        let units: i64 = self.grants.iter().filter(|g| span.contains(&g.slot_us)).map(|g| i64::from(g.cost)).sum();
        units as f64 * interval_us as f64 / ((to - from) * SECOND) as f64
    }

    pub fn share(&self, class: &str) -> f64 {
        let mine = self.grants.iter().filter(|grant| grant.class == class).count();
        mine as f64 / self.grants.len() as f64
    }

    pub fn calls_per_send(&self) -> f64 {
        self.calls as f64 / self.grants.iter().filter(|grant| grant.sent).count() as f64
    }

    /// Panics where a slot starts before the one before it has passed with its cost.
    pub fn assert_spaced(&self, interval_us: i64) {
        for pair in self.grants.windows(2) {
            let (gap_us, least_us) = (pair[1].slot_us - pair[0].slot_us, i64::from(pair[0].cost) * interval_us);
            assert!(gap_us >= least_us, "slots at {} and {}", pair[0].slot_us, pair[1].slot_us);
        }
    }
}

/// So many lanes of a class, each with `callers` always waiting.
pub fn keep(class: &'static str, callers: usize, lanes: usize) -> Vec<(&'static str, Demand)> {
    vec![(class, Demand::Keep(callers)); lanes]
}

struct Lane {
    class: &'static str,
    demand: Demand,
    /// When each caller came, and his cost.
    queue: VecDeque<(i64, i32)>,
    busy: bool,
    timer_us: Option<i64>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Serve { asked_us: i64 },
    Lost,
    Answered { asked_us: i64, served_us: i64, waits_us: Vec<i64>, retry_us: Option<i64>, first_grant: usize },
    Timer,
    Change,
}

struct Run<'a> {
    fleet: &'a Fleet,
    rng: Rng,
    events: BinaryHeap<Reverse<(i64, usize, usize, Event)>>,
    pushed: usize,
    lanes: Vec<Lane>,
    row_free_us: i64,
    report: Report,
}

impl Fleet {
    pub async fn run(&self, store: &Store) -> Report {
        let lane = |&(class, demand): &_| Lane { class, demand, queue: VecDeque::new(), busy: false, timer_us: None };
        let mut run = Run {
            fleet: self,
            rng: Rng::with_seed(self.seed),
            events: BinaryHeap::new(),
            pushed: 0,
            lanes: self.lanes.iter().map(lane).collect(),
            row_free_us: 0,
            report: Report { calls: 0, grants: Vec::new() },
        };
        run.start();
        while let Some(Reverse((now_us, _, lane, event))) = run.events.pop() {
            if now_us > self.seconds * SECOND {
                break;
            }
            match event {
                Event::Serve { asked_us } => run.serve(now_us, lane, asked_us, store).await,
                Event::Change => store.set(self.change.expect("a change is pushed where there is one").1).await,
                event => run.happen(now_us, lane, event),
            }
        }
        run.report
    }
}

impl Run<'_> {
    fn start(&mut self) {
        for lane in 0..self.lanes.len() {
            match self.lanes[lane].demand {
                Demand::Keep(callers) => (0..callers).for_each(|_| {
                    let at_us = self.rng.i64(0..50_000);
                    self.push(at_us, lane, Event::Arrive);
                }),
                Demand::Poisson(_) => self.push_next_arrival(0, lane),
            }
        }
        if let Some((second, _)) = self.fleet.change {
            self.push(second * SECOND, 0, Event::Change);
        }
    }

    async fn serve(&mut self, now_us: i64, index: usize, asked_us: i64, store: &Store) {
        let served_us = max(now_us, self.row_free_us);
        self.row_free_us = served_us + self.fleet.service_us;
        self.report.calls += 1;
        let lane = &self.lanes[index];
        let costs: Vec<i32> = lane.queue.iter().map(|(_, cost)| *cost).collect();
        let call = Call { class: lane.class, lane: index as i64, costs: &costs, patience_us: 86_400 * SECOND };
        let Answer { waits_us, retry_us, reason, .. } = store.reserve(call, START_US + served_us).await;
        assert_eq!(reason, None);
        let first_grant = self.report.grants.len();
        for (wait_us, (arrived_us, cost)) in waits_us.iter().zip(&lane.queue) {
            let (slot_us, class, arrived_us) = (served_us + wait_us, lane.class, *arrived_us);
            self.report.grants.push(Grant { slot_us, cost: *cost, class, arrived_us, sent: false });
        }
        let lost = self.fleet.lost.is_some_and(|(from, to)| (from * SECOND..to * SECOND).contains(&now_us));
        if lost {
            // The caller's own deadline. Its slots are spent.
            self.push(asked_us + SECOND, index, Event::Lost);
        } else {
            let back_us = self.row_free_us + self.travel_us();
            self.push(back_us, index, Event::Answered { asked_us, served_us, waits_us, retry_us, first_grant });
        }
    }

    fn happen(&mut self, now_us: i64, index: usize, event: Event) {
        match event {
            Event::Arrive => {
                let cost = self.fleet.costs[self.rng.usize(..self.fleet.costs.len())];
                self.lanes[index].queue.push_back((now_us, cost));
                if self.lanes[index].timer_us.is_none() {
                    self.kick(now_us, index);
                }
                if let Demand::Poisson(_) = self.lanes[index].demand {
                    self.push_next_arrival(now_us, index);
                }
            }
            Event::Lost => {
                self.lanes[index].busy = false;
                self.kick(now_us, index);
            }
            Event::Answered { asked_us, served_us, waits_us, retry_us, first_grant } => {
                self.lanes[index].busy = false;
                for (n, wait_us) in waits_us.iter().enumerate() {
                    self.lanes[index].queue.pop_front();
                    let opens_us = now_us + wait_us;
                    let closes_us = asked_us + wait_us + self.fleet.settings.send_window_us;
                    assert!(served_us >= asked_us && served_us <= now_us);
                    self.report.grants[first_grant + n].sent = opens_us <= closes_us;
                    if let Demand::Keep(_) = self.lanes[index].demand {
                        self.push(opens_us, index, Event::Arrive);
                    }
                }
                // Come back counted from the question, not from the answer.
                self.lanes[index].timer_us = retry_us.map(|retry_us| max(now_us, asked_us + retry_us));
                match self.lanes[index].timer_us {
                    Some(at_us) => self.push(at_us, index, Event::Timer),
                    None => self.kick(now_us, index),
                }
            }
            Event::Timer => {
                if self.lanes[index].timer_us == Some(now_us) {
                    self.lanes[index].timer_us = None;
                    self.kick(now_us, index);
                }
            }
            Event::Serve { .. } | Event::Change => unreachable!("these are for the store"),
        }
    }

    fn kick(&mut self, now_us: i64, index: usize) {
        let lane = &mut self.lanes[index];
        if !lane.busy && !lane.queue.is_empty() {
            lane.busy = true;
            let there_us = now_us + self.travel_us();
            self.push(there_us, index, Event::Serve { asked_us: now_us });
        }
    }

    fn travel_us(&mut self) -> i64 {
        let (from, to) = self.fleet.round_trip_us;
        self.rng.i64(from..=to) / 2
    }

    fn push_next_arrival(&mut self, now_us: i64, index: usize) {
        if let Demand::Poisson(per_second) = self.lanes[index].demand {
            let pause_us = -(1.0 - self.rng.f64()).ln() / per_second * SECOND as f64;
            self.push(now_us + pause_us as i64, index, Event::Arrive);
        }
    }

    fn push(&mut self, at_us: i64, lane: usize, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((at_us, self.pushed, lane, event)));
    }
}

const SECOND: i64 = 1_000_000;
