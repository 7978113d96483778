//! What goes wrong. Each kind begins at a moment of the plan; how far it goes is drawn there and then.

pub mod happened;
pub mod spells;

mod settings;

use self::spells::Spell;
use crate::delivery::Effect;
use crate::events::{Event, Later};
use crate::time::{MS, SECOND, True};
use crate::world::{ProcessId, State};

/// How long nobody calls: longer than a process keeps sight of the store's clock.
pub const IDLE: True = 3600 * SECOND;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind),+ }

        impl Kind {
            pub const ALL: [Kind; [$($name),+].len()] = [$(Kind::$kind),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Kind::$kind => $name),+ }
            }
        }
    };
}

kinds! {
    RequestsLost "requests lost",
    RequestsLate "requests late",
    AnswersLost "answers lost",
    AnswersLate "answers late",
    /// Answers lost for a dozen seconds, all of them.
    Silence "all answers lost",
    Resets "connections reset",
    Refuses "store refuses",
    LongRoundTrips "long round trips",
    Crash "crash with forgotten commits",
    Restart "restart",
    Promotion "promotion of a lagging standby",
    /// After a promotion the old server still answers some.
    OldServer "answers of an older timeline",
    StepBack "store's clock steps back",
    StepForward "store's clock steps forward",
    Slewed "store's clock slewed",
    LockHeld "lock held",
    Stopped "callers stopped",
    /// In the middle of their own code, just before they read their clock.
    Stalled "callers stalled anywhere",
    /// Between the coming of an answer and the look at the clock that says how long it took.
    StalledOnAnswer "callers stalled as an answer comes",
    Suspended "machines suspended",
    StoppedOnTheWire "stopped between check and wire",
    Partition "a caller cut off",
    Killed "callers killed",
    /// Killed, and not started again before everything is well.
    DeadWaiters "dead waiters",
    ColdStart "processes started anew",
    Cancelled "callers cancelled",
    Impatient "impatient callers",
    Holding "permits held too long",
    Burst "cold herd",
    IdleHour "idle hour",
    MixedCosts "mixed costs",
    RateChanged "limit raised or lowered",
    CostsChanged "largest cost changed",
    LookaheadChanged "lookahead changed",
    ClassesChanged "classes changed",
    Paused "paused and resumed",
    PushedBack "pushback",
}

impl Kind {
    /// How often it comes in one seed at the most.
    pub fn most(self) -> usize {
        match self {
            Kind::IdleHour | Kind::Suspended => 1,
            // Few of them come in the moment in which something is promised that they forget.
            Kind::Crash | Kind::Promotion => 10,
            _ => 4,
        }
    }
}

impl State {
    /// A fault begins.
    pub fn begins(&mut self, kind: Kind) -> Effect {
        let now = self.now;
        self.trace.record(now, 14, kind as u64, 0);
        self.trace.tell(now, || format!("fault: {}", kind.as_str()));
        self.happened.begins(kind);
        let lasts = self.up_to(100 * MS, 8 * SECOND);
        let chance = [0.02, 0.1, 0.5, 1.0][self.rng.usize(0..4)];
        let spell = Spell::new(now + lasts, chance);
        match kind {
            Kind::RequestsLost
            | Kind::RequestsLate
            | Kind::AnswersLate
            | Kind::Resets
            | Kind::Refuses
            | Kind::LongRoundTrips
            | Kind::Cancelled
            | Kind::Impatient
            | Kind::Holding => self.spells.begin(kind, spell),
            Kind::AnswersLost => {
                self.spells.end(Kind::Silence);
                self.spells.begin(kind, spell);
            }
            Kind::Silence => {
                let lasts = self.up_to(12 * SECOND, 12 * SECOND);
                self.spells.end(Kind::AnswersLost);
                self.spells.begin(kind, Spell::new(now + lasts, 1.0));
            }
            Kind::Crash => {
                let forgets = self.rng.u64(0..=600 * MS);
                let before = self.service.forgotten;
                self.service.crash(now, forgets);
                if self.service.forgotten > before {
                    self.takes_effect(kind);
                }
                self.comes_up(lasts / 2);
            }
            Kind::Restart => {
                self.service.restart(now);
                self.takes_effect(kind);
                self.comes_up(lasts / 4);
            }
            Kind::Promotion => {
                self.promotes(lasts / 2);
                self.takes_effect(kind);
            }
            Kind::OldServer => {
                self.promotes(lasts / 4);
                let lasts = self.up_to(SECOND, 20 * SECOND);
                self.spells.begin(kind, Spell::new(now + lasts, 0.3));
            }
            Kind::StepBack | Kind::StepForward => {
                self.steps(if kind == Kind::StepForward { 1 } else { -1 });
                self.takes_effect(kind);
            }
            Kind::Slewed => {
                let ppm = self.rng.i64(-450..=450);
                self.service.primary.clock.run_at(now, ppm);
                self.takes_effect(kind);
            }
            Kind::LockHeld => {
                self.service.free_at = self.service.free_at.max(now) + lasts / 4;
                // Chance has no part in it: whoever comes meanwhile waits.
                self.spells.begin(kind, Spell::new(self.service.free_at, 1.0));
            }
            Kind::Stopped => self.some_processes(|state, process| {
                let lasts = state.up_to(10 * MS, 4 * SECOND);
                state.freeze(process, lasts);
                state.takes_effect(kind);
            }),
            Kind::Stalled => self.some_processes(|state, process| {
                let (reads, lasts) = (state.rng.u32(0..200), state.up_to(5 * MS, 3 * SECOND));
                state.processes[process].stalls = Some((reads, lasts));
            }),
            Kind::StalledOnAnswer => self.spells.begin(kind, Spell::new(now + lasts, 0.1)),
            Kind::Suspended => self.some_processes(|state, process| {
                // Whatever was on its way to it is lost.
                let lasts = state.up_to(5 * SECOND, 80 * SECOND);
                state.processes[process].cut_off = Some((kind, now + lasts));
                state.freeze(process, lasts);
                state.takes_effect(kind);
            }),
            Kind::StoppedOnTheWire => self.spells.begin(kind, Spell::new(now + lasts, 0.05)),
            Kind::Partition => {
                let process = self.rng.usize(0..self.processes.len());
                self.processes[process].cut_off = Some((kind, now + lasts));
            }
            Kind::Killed => self.some_processes(|state, process| {
                state.processes[process].dead = true;
                let (part, rests) = (state.processes[process].part, state.up_to(100 * MS, 4 * SECOND));
                state.later(rests, Later::Start { part });
                state.takes_effect(kind);
            }),
            Kind::DeadWaiters => self.some_processes(|state, process| {
                state.processes[process].dead = true;
                if !state.processes[process].waiting.is_empty() {
                    state.takes_effect(kind);
                }
            }),
            Kind::ColdStart => {
                let parts = self.plan.parts.len();
                let part = self.rng.usize(0..parts);
                if self.processes.iter().filter(|process| !process.dead).count() < 2 * parts {
                    self.takes_effect(kind);
                    return Effect::Start(vec![part]);
                }
            }
            Kind::Burst => self.spells.idle = Some((kind, now + self.up_to(SECOND, 10 * SECOND))),
            Kind::IdleHour => self.spells.idle = Some((kind, now + IDLE)),
            Kind::MixedCosts => self.spells.mixed_costs = true,
            Kind::RateChanged => self.changes_rate(),
            Kind::CostsChanged => self.changes_costs(),
            Kind::LookaheadChanged => self.changes_lookahead(),
            Kind::ClassesChanged => self.changes_classes(),
            Kind::Paused => self.pauses(lasts),
            Kind::PushedBack => {
                let budget = self.rng.usize(0..self.budgets.len());
                let lasts = self.up_to(MS, 20 * SECOND);
                self.pushes_back(budget, crate::clock::duration(lasts));
                self.takes_effect(kind);
            }
        }
        Effect::Nothing
    }

    /// Everything is well again: what was to last is over, and whoever is missing is started.
    pub fn heals(&mut self) -> Effect {
        self.trace.tell(self.now, || "all faults are over".to_owned());
        self.spells.end_all();
        let now = self.now;
        for process in &mut self.processes {
            process.cut_off = None;
            process.stalls = None;
        }
        self.service.up = true;
        self.service.free_at = self.service.free_at.min(now);
        for process in self.processes.iter().filter(|process| !process.dead) {
            for waiting in &process.waiting {
                self.budgets[waiting.budget].wanted = Some(now);
            }
        }
        let missing = |part: &usize| !self.processes.iter().any(|process| process.part == *part && !process.dead);
        Effect::Start((0..self.plan.parts.len()).filter(missing).collect())
    }

    /// A span that is drawn, and over when all is to be well.
    fn up_to(&mut self, least: True, most: True) -> True {
        let left = self.plan.heals.saturating_sub(self.now);
        // Many short ones and some long ones.
        let most = if self.rng.bool() { least + (most - least) / 8 } else { most };
        self.rng.u64(least..=most).min(left)
    }

    fn later(&mut self, rests: True, later: Later) {
        let at = (self.now + rests).min(self.plan.heals);
        self.events.push(at, Event::Later(later));
    }

    /// A server is down for up to `most`, and often for a moment only: then what it promised is still to come.
    fn comes_up(&mut self, most: True) {
        let rests = if self.rng.bool() { most } else { self.rng.u64(0..=20 * MS) };
        self.trace.tell(self.now, || format!("the server is down for {:.3} s", rests as f64 / 1e9));
        self.later(rests, Later::ServerUp);
    }

    fn promotes(&mut self, rests: True) {
        let most = [20 * MS, 300 * MS, 3 * SECOND][self.rng.usize(0..3)];
        let lag = self.up_to(0, most);
        let far = [1_000, 100_000, 3_000_000, 7_200_000_000][self.rng.usize(0..4)];
        let (ahead_us, ppm) = (self.rng.i64(-far..=far), self.rng.i64(-450..=450));
        self.trace.tell(self.now, || format!("a standby {lag} ns behind takes over, its clock {ahead_us} us ahead"));
        self.service.promote(self.now, lag, ahead_us, ppm);
        for budget in &mut self.budgets {
            // The report of a pushback may be among what is forgotten.
            budget.blocked_until = 0;
        }
        self.comes_up(rests);
    }

    fn steps(&mut self, sign: i64) {
        let far = [50_000, 500_000, 5_000_000, 3_600_000_000][self.rng.usize(0..4)];
        let by_us = sign * self.rng.i64(1000..=far);
        self.trace.tell(self.now, || format!("the store's clock steps by {by_us} us"));
        let now = self.now;
        let server = &mut self.service.primary;
        server.clock.step_us(now, by_us);
        server.steps += 1;
        server.stepped_us += by_us;
        for budget in &mut self.budgets {
            if by_us > 0 {
                budget.spacing.step_forward(now + budget.widest_promise + 2 * MS);
                // Dates come earlier by the step.
                budget.blocked_until = budget.blocked_until.saturating_sub(by_us.unsigned_abs() * 1000);
            }
        }
    }

    /// One process or several, of those that live.
    fn some_processes(&mut self, mut to: impl FnMut(&mut Self, ProcessId)) {
        let alive: Vec<ProcessId> =
            (0..self.processes.len()).filter(|process| !self.processes[*process].dead).collect();
        let chance = [0.2, 0.5, 1.0][self.rng.usize(0..3)];
        let mut hit = 0;
        for process in &alive {
            if self.rng.f64() < chance {
                hit += 1;
                to(self, *process);
            }
        }
        if let (0, Some(process)) = (hit, alive.first()) {
            to(self, *process);
        }
    }
}
