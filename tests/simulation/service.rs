//! The store's servers: each has a clock, the product's own scheduler for each budget, and a history of which a crash
//! forgets the last part.

use std::mem;
use std::sync::Arc;

use call_budget::store::memory::scheduler::{self, Call, Scheduler};

use crate::network::Reading;
use crate::plan::{BudgetPlan, Plan};
use crate::time::{Rate, SECOND, True};

/// As many transactions as are certain to be remembered one by one.
const REMEMBERED: usize = 4000;

/// One transaction on a budget.
#[derive(Clone, Debug)]
pub enum Act {
    Reserve { class: Arc<str>, lane: i64, costs: Vec<i32>, patience_us: i64 },
    RequestFence,
    PushBack { duration_us: i64, cap_us: i64 },
    Set(scheduler::Settings),
    SetClass { class: Arc<str>, priority: i32, floor_ppm: i32 },
    Pause,
    Resume,
}

/// What it came to.
pub enum Done {
    Reserved(scheduler::Answer),
    Fenced(bool),
    PushedBack(i64),
    Set,
}

/// A transaction as it was committed.
#[derive(Clone, Debug)]
struct Committed {
    at: True,
    budget: usize,
    now_us: i64,
    act: Act,
    /// Slots that it granted, by class.
    granted: usize,
}

impl Act {
    fn on(&self, scheduler: &mut Scheduler, now_us: i64) -> Done {
        match self {
            Act::Reserve { class, lane, costs, patience_us } => {
                let call = Call { class, lane: *lane, costs, patience_us: *patience_us };
                Done::Reserved(scheduler.reserve(call, now_us))
            }
            Act::RequestFence => Done::Fenced(scheduler.request_fence(now_us)),
            Act::PushBack { duration_us, cap_us } => {
                Done::PushedBack(scheduler.push_back(*duration_us, *cap_us, now_us))
            }
            Act::Set(settings) => {
                scheduler.set(*settings);
                Done::Set
            }
            Act::SetClass { class, priority, floor_ppm } => {
                // One that would be too much is refused, and changes nothing.
                let _ = scheduler.set_class(class, *priority, *floor_ppm);
                Done::Set
            }
            Act::Pause => {
                scheduler.pause();
                Done::Set
            }
            Act::Resume => {
                scheduler.resume();
                Done::Set
            }
        }
    }

    /// Committed durably, whatever the mode: a crash forgets neither it nor anything before it.
    fn is_durable(&self) -> bool {
        !matches!(self, Act::Reserve { .. })
    }

    /// An operator's: done again if a standby has not seen it, so that it is never forgotten here.
    fn is_setting(&self) -> bool {
        !matches!(self, Act::Reserve { .. } | Act::RequestFence | Act::PushBack { .. })
    }
}

/// One server.
pub struct Server {
    pub clock: Rate,
    pub timeline: i64,
    pub steps: u64,
    pub stepped_us: i64,
    pub budgets: Vec<Scheduler>,
    /// Two stretches of history, each with what was before it.
    before: (Vec<Scheduler>, Vec<Committed>),
    since: (Vec<Scheduler>, Vec<Committed>),
}

impl Server {
    fn act(&mut self, at: True, budget: usize, act: Act) -> (Done, i64) {
        let now_us = self.clock.shows_us(at);
        let done = act.on(&mut self.budgets[budget], now_us);
        let granted = if let Done::Reserved(answer) = &done { answer.waits_us.len() } else { 0 };
        self.since.1.push(Committed { at, budget, now_us, act, granted });
        if self.since.1.len() >= REMEMBERED {
            let next = (self.budgets.clone(), Vec::new());
            self.before = mem::replace(&mut self.since, next);
        }
        (done, now_us)
    }

    pub fn reading(&self) -> Reading {
        Reading { timeline: self.timeline, steps: self.steps, stepped_us: self.stepped_us }
    }

    /// Forgets the last transactions, back to `since`, but none of those that `keeps` holds fast, nor what was before them.
    /// Returns how many slots are forgotten.
    fn forget(&mut self, since: True, keeps: impl Fn(&Act) -> bool) -> usize {
        let (first, mut history) = mem::take(&mut self.before);
        let (_, later) = mem::take(&mut self.since);
        history.extend(later);
        let kept = history.iter().rposition(|one| one.at < since || keeps(&one.act)).map_or(0, |last| last + 1);
        let forgotten = history.drain(kept..).map(|one| one.granted).sum();
        let mut budgets = first.clone();
        for one in &history {
            one.act.on(&mut budgets[one.budget], one.now_us);
        }
        self.budgets = budgets;
        self.before = (first, history);
        self.since = (self.budgets.clone(), Vec::new());
        forgotten
    }

    fn lose_markers(&mut self) {
        for scheduler in &mut self.budgets {
            scheduler.remembered = false;
        }
        // The marker is no part of the history: what is replayed later begins without it.
        self.before = (self.budgets.clone(), Vec::new());
        self.since = (self.budgets.clone(), Vec::new());
    }
}

/// The servers under one name.
pub struct Service {
    pub primary: Server,
    /// The primary of before, which still answers whoever is sent to it.
    pub old: Option<Server>,
    pub up: bool,
    /// How often it has started: what a server had in hand when it ended is lost.
    pub epoch: u32,
    /// When the lock is free again.
    pub free_at: True,
    asynchronous: bool,
    /// Slots that were granted and then forgotten.
    pub forgotten: u64,
    /// Slots that the server of before has granted since.
    pub beside: u64,
}

pub fn settings(plan: &BudgetPlan) -> scheduler::Settings {
    let us = |duration: std::time::Duration| i64::try_from(duration.as_micros()).expect("a plan's durations are short");
    scheduler::Settings {
        interval_us: us(plan.limit.interval().expect("a plan's limit can be made safe")),
        lookahead_us: us(plan.lookahead),
        send_window_us: us(plan.limit.send_window),
        max_cost: i32::try_from(plan.limit.max_cost).expect("a plan's costs are small"),
    }
}

impl Service {
    pub fn new(plan: &Plan) -> Self {
        let budgets: Vec<Scheduler> = plan
            .budgets
            .iter()
            .map(|budget| {
                let mut scheduler = Scheduler::new(settings(budget));
                for class in &budget.classes {
                    let fits = scheduler.set_class(&class.name, class.priority, class.floor_ppm);
                    fits.expect("a plan's floors sum to 1 or less");
                }
                scheduler
            })
            .collect();
        // A date of our century, so that nothing is near zero.
        let clock = Rate::new(1_700_000_000 * i128::from(SECOND), plan.store.ppm);
        let before = (budgets.clone(), Vec::new());
        let since = before.clone();
        let primary = Server { clock, timeline: 1, steps: 0, stepped_us: 0, budgets, before, since };
        Self {
            primary,
            old: None,
            up: true,
            epoch: 0,
            free_at: 0,
            asynchronous: plan.store.asynchronous,
            forgotten: 0,
            beside: 0,
        }
    }

    /// One transaction, whose lock is taken at `at`. What it came to, and the server's clock.
    pub fn act(&mut self, at: True, budget: usize, act: Act, on_old: bool) -> (Done, i64, Reading) {
        let newest = self.primary.timeline;
        let server = match &mut self.old {
            Some(old) if on_old => old,
            _ => &mut self.primary,
        };
        let is_old = server.timeline < newest;
        let (done, now_us) = server.act(at, budget, act);
        if let (true, Done::Reserved(answer)) = (is_old, &done) {
            self.beside += answer.waits_us.len() as u64;
        }
        (done, now_us, server.reading())
    }

    /// The server ends without a word, and its last commits may be forgotten.
    pub fn crash(&mut self, now: True, forgets: True) {
        let since = if self.asynchronous { now.saturating_sub(forgets) } else { now };
        self.forgotten += self.primary.forget(since, Act::is_durable) as u64;
        self.restart(now);
    }

    /// The server ends in order and forgets nothing.
    pub fn restart(&mut self, now: True) {
        self.primary.lose_markers();
        self.up = false;
        self.epoch += 1;
        self.free_at = now;
    }

    /// A standby takes over that had not seen the last of it. Its clock is its own.
    pub fn promote(&mut self, now: True, lag: True, ahead_us: i64, ppm: i64) {
        let mut clock = self.primary.clock;
        clock.step_us(now, ahead_us);
        clock.run_at(now, ppm);
        let (budgets, before, since) =
            (self.primary.budgets.clone(), self.primary.before.clone(), self.primary.since.clone());
        let timeline = self.primary.timeline + 1;
        let mut standby = Server { clock, timeline, steps: 0, stepped_us: 0, budgets, before, since };
        self.forgotten += standby.forget(now.saturating_sub(lag), Act::is_setting) as u64;
        self.old = Some(mem::replace(&mut self.primary, standby));
        self.restart(now);
    }
}
