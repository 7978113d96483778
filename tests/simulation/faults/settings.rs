//! What operators do while everything runs, in the order that the product asks for.

use std::time::Duration;

use super::Kind;
use crate::events::{Event, Later};
use crate::service::{self, Act};
use crate::time::{MS, SECOND, True};
use crate::world::State;

impl State {
    /// The budget's settings, as they now stand in the plan, are set in the store.
    pub fn sets(&mut self, budget: usize) {
        let settings = service::settings(&self.budgets[budget].plan);
        self.service.act(self.now, budget, Act::Set(settings), false);
        let one = &mut self.budgets[budget];
        one.widest_promise = one.widest_promise.max(one.plan.promise());
    }

    pub fn sets_paused(&mut self, budget: usize, paused: bool) {
        let act = if paused { Act::Pause } else { Act::Resume };
        self.service.act(self.now, budget, act, false);
        self.budgets[budget].paused = paused;
    }

    /// A budget that no other change is going on in.
    fn one_at_rest(&mut self, takes: impl Fn(&State, usize) -> True) -> Option<(usize, True)> {
        let budget = self.rng.usize(0..self.budgets.len());
        let until = self.now + takes(self, budget);
        let one = &mut self.budgets[budget];
        if one.changing_until > self.now || until >= self.plan.heals {
            return None;
        }
        one.changing_until = until + 1;
        Some((budget, until))
    }

    /// Nothing that was granted before can share a window with what is granted after so long.
    fn one_window(&self, budget: usize) -> True {
        let one = &self.budgets[budget];
        let limit = &one.plan.limit;
        let ns = |duration: Duration| duration.as_nanos() as True;
        let all = one.plan.window() + one.widest_promise + ns(limit.send_window) + ns(limit.arrival_jitter);
        all + all / 500 + 50 * MS
    }

    /// Ours is lowered before the vendor's, and raised after it.
    pub fn changes_rate(&mut self) {
        let Some((budget, until)) = self.one_at_rest(Self::one_window) else { return };
        let limit = self.budgets[budget].plan.limit;
        let units = match self.rng.u32(0..4) {
            0 => limit.units * 2,
            1 => limit.units + 1,
            2 => limit.units / 2,
            _ => limit.units.saturating_sub(1),
        };
        let units = units.max(limit.max_cost).min(1000);
        if units != limit.units {
            self.takes_effect(Kind::RateChanged);
        }
        self.trace.tell(self.now, || format!("budget {budget}: {} units become {units}", limit.units));
        let (set, vendor) = (Later::SetUnits { budget, units }, Later::VendorLimit { budget, units });
        let (first, then) = if units < limit.units { (set, vendor) } else { (vendor, set) };
        self.events.push(self.now, Event::Later(first));
        self.events.push(until, Event::Later(then));
    }

    /// A largest cost is raised, or lowered, while the budget is paused, and one window after the last slot.
    pub fn changes_costs(&mut self) {
        let Some((budget, until)) = self.one_at_rest(Self::one_window) else { return };
        let most = self.budgets[budget].plan.limit.units.min(5);
        let max_cost = self.rng.u32(1..=most);
        if max_cost != self.budgets[budget].plan.limit.max_cost {
            self.takes_effect(Kind::CostsChanged);
        }
        self.sets_paused(budget, true);
        self.events.push(until, Event::Later(Later::SetCostAndResume { budget, max_cost }));
    }

    /// At any time and in any direction.
    pub fn changes_lookahead(&mut self) {
        let Some((budget, _)) = self.one_at_rest(|_, _| 0) else { return };
        let lookahead = self.budgets[budget].plan.lookahead;
        // Never much less: the seed's network must fit into it.
        let changed = (lookahead * self.rng.u32(90..200) / 100).min(Duration::from_secs(2));
        if changed != lookahead {
            self.takes_effect(Kind::LookaheadChanged);
        }
        self.budgets[budget].plan.lookahead = changed;
        self.sets(budget);
    }

    /// Priorities and floors.
    pub fn changes_classes(&mut self) {
        let budget = self.rng.usize(0..self.budgets.len());
        let class = self.rng.usize(0..self.budgets[budget].plan.classes.len());
        let classes = &mut self.budgets[budget].plan.classes;
        let others: i32 =
            classes.iter().enumerate().filter(|(one, _)| *one != class).map(|(_, one)| one.floor_ppm).sum();
        let floor_ppm = [0, 100_000, 400_000][self.rng.usize(0..3)].min(1_000_000 - others);
        let one = &mut classes[class];
        let before = (one.priority, one.floor_ppm);
        (one.priority, one.floor_ppm) = (self.rng.i32(0..=2), floor_ppm);
        let changed = before != (one.priority, one.floor_ppm);
        let (class, priority) = (std::sync::Arc::clone(&one.name), one.priority);
        self.service.act(self.now, budget, Act::SetClass { class, priority, floor_ppm }, false);
        if changed {
            self.takes_effect(Kind::ClassesChanged);
        }
    }

    pub fn pauses(&mut self, lasts: True) {
        let Some((budget, until)) = self.one_at_rest(|_, _| lasts.min(4 * SECOND)) else { return };
        self.sets_paused(budget, true);
        self.takes_effect(Kind::Paused);
        self.events.push(until, Event::Later(Later::Resume { budget }));
    }
}
