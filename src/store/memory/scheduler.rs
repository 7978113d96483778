//! The schedule of one budget, in memory: what `migrations/V5__decide.sql` and `V3__settings.sql` decide, without a
//! database.
//!
//! Why: a program that uses this library can be tested without PostgreSQL, and the SQL has something to be compared with.
//! Promise: the same calls at the same times give the same answers and the same rows as the SQL; `tests/contract` holds
//! both to it, call by call. The rows are kept as the tables keep them, so that they can be compared one by one.
//!
//! Pure: the time is an argument, integers only. Times are microseconds of the store's clock, zero is long ago; floors are
//! parts per million.

mod branch;
mod rows;

use std::cmp::{max, min};
use std::collections::BTreeMap;

pub use self::branch::Branch;
pub use self::rows::{Budget, Class, Settings, Waiter};

/// One budget with its classes and lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduler {
    pub budget: Budget,
    pub classes: BTreeMap<String, Class>,
    /// By lane. A row with `units` 0 waits for nothing.
    pub waiters: BTreeMap<i64, Waiter>,
    /// Whether the marker still stands: nothing was forgotten since the last fence.
    pub remembered: bool,
}

/// One lane's call: the arguments of `call_budget_acquire`.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub class: &'a str,
    /// The lane's own random id, 0 or more.
    pub lane: i64,
    /// Of the callers that wait in this lane, in order: one number or more, each 1 or more.
    pub costs: &'a [i32],
    /// How long the first of them would still wait: 0 to 1 day.
    pub patience_us: i64,
}

/// What the store answers, under the names of `call_budget_answer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub waits_us: Vec<i64>,
    pub retry_us: Option<i64>,
    pub reason: Option<&'static str>,
    pub interval_us: i64,
    pub lookahead_us: i64,
    pub send_window_us: i64,
    pub max_cost: i32,
    pub version: i64,
    pub fences: i64,
    pub store_us: i64,
}

/// The floors of a budget would sum to more than 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorsOverOne {
    /// What they would sum to.
    pub sum_ppm: i64,
}

/// Who goes first; the smaller goes first. A class whose floor is due (earliest due first), else the smaller priority
/// number, else the class served least recently.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Due { since_us: i64 },
    Priority { priority: i32, last_slot_us: i64 },
}

/// What a call sees of the other lanes: those that want something and are in time for their appointment.
struct Others {
    alive: Vec<Waiter>,
    /// Units that one call may take while they wait.
    share: i64,
    heads: BTreeMap<String, Head>,
}

/// A class with somebody alive in its queue.
struct Head {
    class: Class,
    earliest_us: i64,
    units: i64,
}

impl Scheduler {
    /// A new budget without classes. Like after any creation in the store, its first call fences.
    pub fn new(settings: Settings) -> Self {
        let budget = Budget {
            settings,
            version: 1,
            paused: false,
            last_slot_us: 0,
            last_cost: 1,
            last_seen_us: 0,
            blocked_until_us: 0,
            fenced_until_us: 0,
            fences: 0,
            widest_lookahead_us: settings.lookahead_us,
            widest_max_cost: settings.max_cost,
        };
        Self { budget, classes: BTreeMap::new(), waiters: BTreeMap::new(), remembered: false }
    }

    /// One call of one lane at `now_us`.
    pub fn reserve(&mut self, call: Call<'_>, now_us: i64) -> Answer {
        self.reserve_watched(call, now_us, &mut |_| ())
    }

    /// [`Scheduler::reserve`], naming every branch that it takes.
    pub fn reserve_watched(&mut self, call: Call<'_>, now_us: i64, seen: &mut dyn FnMut(Branch)) -> Answer {
        if self.budget.paused {
            seen(Branch::Paused);
            return self.refusal("paused", Some(MILLION), now_us);
        }
        if call.costs.iter().any(|cost| *cost > self.budget.settings.max_cost) {
            seen(Branch::CostOutOfRange);
            return self.refusal("cost_out_of_range", None, now_us);
        }
        if !self.classes.contains_key(call.class) {
            seen(Branch::UnknownClass);
            return self.refusal("unknown_class", None, now_us);
        }
        // A clock that stepped back comes first, the fence second: the fence counts from the clock as it now is.
        self.shift_to(now_us, seen);
        if !self.remembered {
            self.fence_now(now_us, seen);
        }
        self.budget.last_seen_us = now_us;
        self.decide(call, now_us, seen)
    }

    /// Changes the settings with the next call: no reset, no debt.
    pub fn set(&mut self, settings: Settings) {
        let b = &mut self.budget;
        b.settings = settings;
        b.version += 1;
        // Slots promised under the old settings may still be out.
        b.widest_lookahead_us = max(b.widest_lookahead_us, settings.lookahead_us);
        b.widest_max_cost = max(b.widest_max_cost, settings.max_cost);
    }

    /// Creates the class or changes it.
    pub fn set_class(&mut self, name: &str, priority: i32, floor_ppm: i32) -> Result<(), FloorsOverOne> {
        let others = self.classes.iter().filter(|(other, _)| other.as_str() != name);
        let sum_ppm = others.map(|(_, class)| i64::from(class.floor_ppm)).sum::<i64>() + i64::from(floor_ppm);
        if sum_ppm > MILLION {
            return Err(FloorsOverOne { sum_ppm });
        }
        let class = self.classes.entry(name.to_owned()).or_default();
        class.priority = priority;
        class.floor_ppm = floor_ppm;
        Ok(())
    }

    /// Deletes the class and whoever waits in it. Says whether there was one.
    pub fn delete_class(&mut self, name: &str) -> bool {
        self.waiters.retain(|_, waiter| waiter.class != name);
        self.classes.remove(name).is_some()
    }

    /// Stops grants at once.
    pub fn pause(&mut self) {
        self.budget.paused = true;
        self.budget.version += 1;
    }

    /// Lets grants through again: no burst, since nothing was saved up.
    pub fn resume(&mut self) {
        self.budget.paused = false;
        self.budget.version += 1;
    }

    /// The vendor said "too many": everybody's next slot moves. Repeated reports come to their maximum, never their sum,
    /// and one moves it by at most `cap_us`. Returns the time left.
    pub fn push_back(&mut self, duration_us: i64, cap_us: i64, now_us: i64) -> i64 {
        self.shift_to(now_us, &mut |_| ());
        let until_us = now_us + min(duration_us, cap_us);
        if until_us > self.budget.blocked_until_us {
            self.budget.blocked_until_us = until_us;
            self.budget.last_seen_us = now_us;
        }
        self.budget.blocked_until_us - now_us
    }

    /// One quiet moment, by hand. Returns its length.
    pub fn fence(&mut self, now_us: i64) -> i64 {
        self.shift_to(now_us, &mut |_| ());
        self.fence_now(now_us, &mut |_| ());
        self.budget.fenced_until_us - now_us
    }

    /// A caller saw the store's clock step: at most one fence in 10 s. Says whether this call fenced.
    pub fn request_fence(&mut self, now_us: i64) -> bool {
        self.shift_to(now_us, &mut |_| ());
        let allowed = self.budget.fenced_until_us <= now_us - FENCE_CAP_US;
        if allowed {
            self.fence_now(now_us, &mut |_| ());
        }
        allowed
    }

    fn decide(&mut self, call: Call<'_>, now_us: i64, seen: &mut dyn FnMut(Branch)) -> Answer {
        let own_row = self.waiters.get(&call.lane).filter(|row| row.units > 0);
        let was_waiting = own_row.is_some();
        let place_us = own_row.filter(|row| row.class == call.class).map(|row| row.place_us);
        if was_waiting && place_us.is_none() {
            seen(Branch::ChangedClass);
        }
        let others = self.others(call.lane, now_us);
        let base_us = self.first_free_slot(now_us, seen);
        let mut slots = Vec::new();
        if !self.is_blocked(call.class, place_us.is_some(), &others, base_us, seen) {
            slots = self.slots(call.costs, &others, base_us, now_us, seen);
        }
        self.grant(call, &slots, base_us, seen);

        let mut answer = self.answer(now_us);
        answer.waits_us = slots.iter().map(|slot_us| slot_us - now_us).collect();
        let rest: i64 = call.costs[slots.len()..].iter().map(|cost| i64::from(*cost)).sum();
        if rest > 0 {
            let kept = place_us.filter(|_| slots.is_empty());
            if kept.is_some() {
                seen(Branch::KeptItsPlace);
            }
            let place_us = kept.unwrap_or(now_us);
            let early_us = self.estimate(call.class, place_us, &others, base_us, seen) - now_us;
            if slots.is_empty() && early_us > call.patience_us {
                seen(Branch::RefusedByPatience);
                answer.reason = Some("patience");
                answer.retry_us = Some(early_us);
                let behind = rest - i64::from(call.costs[0]);
                if kept.is_some() && behind > 0 {
                    seen(Branch::KeptItsPlaceThroughRefusal);
                    self.keep_place(call.lane, behind, now_us);
                    return answer;
                }
            } else {
                let retry_us = self.appointment(early_us, seen);
                answer.retry_us = Some(retry_us);
                let appointment_us = now_us + retry_us;
                let waiter = Waiter { class: call.class.to_owned(), units: rest, place_us, appointment_us };
                self.book(call.lane, waiter, now_us, seen);
                return answer;
            }
        }
        if was_waiting {
            seen(Branch::WaitsNoMore);
            self.waiters.entry(call.lane).and_modify(|row| row.units = 0);
        }
        answer
    }

    fn others(&self, lane: i64, now_us: i64) -> Others {
        let Settings { interval_us, lookahead_us, send_window_us: grace_us, .. } = self.budget.settings;
        let others = self.waiters.iter().filter(|(other, _)| **other != lane).map(|(_, row)| row);
        let alive: Vec<Waiter> =
            others.filter(|row| row.units > 0 && row.appointment_us + grace_us >= now_us).cloned().collect();
        let share = max(1, lookahead_us / (interval_us * (1 + min(4, alive.len() as i64))));
        let mut heads = BTreeMap::new();
        for row in &alive {
            let Some(class) = self.classes.get(&row.class) else { continue };
            let head = || Head { class: class.clone(), earliest_us: i64::MAX, units: 0 };
            let head = heads.entry(row.class.clone()).or_insert_with(head);
            head.earliest_us = min(head.earliest_us, row.appointment_us);
            head.units += min(row.units, share);
        }
        Others { alive, share, heads }
    }

    fn first_free_slot(&self, now_us: i64, seen: &mut dyn FnMut(Branch)) -> i64 {
        let b = &self.budget;
        let free_us = max(b.spaced_us(), now_us);
        if b.fenced_until_us > free_us {
            seen(Branch::FirstSlotIsFenced);
        }
        if b.blocked_until_us > free_us {
            seen(Branch::FirstSlotIsPushedBack);
        }
        free_us.max(b.fenced_until_us).max(b.blocked_until_us)
    }

    /// A lane blocks this one if it ranks better AND its appointment comes in time for this slot: the absent never hold a
    /// slot idle. In its own class a newcomer queues behind whoever is due.
    fn is_blocked(
        &self,
        class: &str,
        has_place: bool,
        others: &Others,
        base_us: i64,
        seen: &mut dyn FnMut(Branch),
    ) -> bool {
        let rank = self.classes[class].rank(base_us);
        let mut blocked = false;
        for (name, head) in others.heads.iter().filter(|(_, head)| head.earliest_us <= base_us) {
            if name == class && !has_place {
                seen(Branch::BlockedInOwnClass);
                blocked = true;
            } else if name != class && head.class.rank(base_us) < rank {
                seen(Branch::BlockedByClass);
                blocked = true;
            }
        }
        blocked
    }

    /// The slots for the first callers, as many as start within the lookahead and fit into the share.
    fn slots(
        &self,
        costs: &[i32],
        others: &Others,
        base_us: i64,
        now_us: i64,
        seen: &mut dyn FnMut(Branch),
    ) -> Vec<i64> {
        let Settings { interval_us, lookahead_us, .. } = self.budget.settings;
        let mut slots = Vec::new();
        let mut used = 0;
        for cost in costs {
            let slot_us = base_us + used * interval_us;
            if slot_us > now_us + lookahead_us {
                seen(Branch::CutByLookahead);
                break;
            }
            if !slots.is_empty() && !others.alive.is_empty() && used + i64::from(*cost) > others.share {
                seen(Branch::CutByShare);
                break;
            }
            slots.push(slot_us);
            used += i64::from(*cost);
        }
        slots
    }

    fn grant(&mut self, call: Call<'_>, slots: &[i64], base_us: i64, seen: &mut dyn FnMut(Branch)) {
        let Some(last_slot_us) = slots.last().copied() else { return };
        seen(Branch::Granted);
        let Settings { interval_us, lookahead_us, max_cost, .. } = self.budget.settings;
        let costs = &call.costs[..slots.len()];
        let last_cost = costs[costs.len() - 1];
        let used: i64 = costs.iter().map(|cost| i64::from(*cost)).sum();
        self.budget.last_slot_us = last_slot_us;
        self.budget.last_cost = last_cost;
        let Some(class) = self.classes.get_mut(call.class) else { return };
        if class.floor_ppm > 0 {
            // A share claimed because it was due moves on by what it took, so that waiting never adds up to a burst; a
            // share taken by priority starts anew.
            class.due_us = if let Rank::Due { .. } = class.rank(base_us) {
                seen(Branch::DueMovesOn);
                let behind_us = max(lookahead_us, CALLS_BEHIND * i64::from(max_cost) * interval_us);
                max(class.due_us, base_us - behind_us) + class.share_of(used * interval_us)
            } else {
                seen(Branch::DueStartsAnew);
                last_slot_us + class.share_of(i64::from(last_cost) * interval_us)
            };
        }
        class.last_slot_us = last_slot_us;
        class.granted += slots.len() as i64;
    }

    /// When the rest can have its slot at the earliest: a lower bound.
    fn estimate(&self, class: &str, place_us: i64, others: &Others, base_us: i64, seen: &mut dyn FnMut(Branch)) -> i64 {
        let interval_us = self.budget.settings.interval_us;
        let mine = &self.classes[class];
        let at_us = max(self.budget.spaced_us(), base_us);
        let in_front = others.alive.iter().filter(|other| other.class == class && other.place_us < place_us);
        let ahead: i64 = in_front.map(|other| min(other.units, others.share)).sum();
        if ahead > 0 {
            seen(Branch::AheadInOwnClass);
        }
        let heads = others.heads.iter().filter(|(name, _)| *name != class);
        let before_me: i64 = heads.map(|(_, head)| head.before(mine, others.share, at_us, seen)).sum();
        let by_rank_us = at_us + (ahead + before_me) * interval_us;
        if mine.floor_ppm == 0 || mine.due_us <= at_us {
            return by_rank_us;
        }
        // Wide: a long queue of a slow budget would not fit into a bigint.
        let wait_us = i128::from(ahead) * i128::from(interval_us) * i128::from(MILLION) / i128::from(mine.floor_ppm);
        match i64::try_from(i128::from(mine.due_us) + wait_us) {
            Ok(by_floor_us) if by_floor_us < by_rank_us => {
                seen(Branch::EstimateByDueFloor);
                by_floor_us
            }
            _ => by_rank_us,
        }
    }

    fn appointment(&self, estimate_us: i64, seen: &mut dyn FnMut(Branch)) -> i64 {
        let Settings { interval_us, lookahead_us, .. } = self.budget.settings;
        let early_us = estimate_us - lookahead_us / 2;
        let least_us = min(interval_us, lookahead_us) / 4;
        seen(match early_us {
            _ if max(early_us, least_us) > NAP_US => Branch::AppointmentByNap,
            _ if early_us >= least_us => Branch::AppointmentByEstimate,
            _ => Branch::AppointmentByMinimum,
        });
        min(NAP_US, max(early_us, least_us))
    }

    /// The first in the lane is refused. Those behind him keep its place: it comes back for them at once.
    fn keep_place(&mut self, lane: i64, units: i64, now_us: i64) {
        self.waiters.entry(lane).and_modify(|row| {
            row.units = units;
            row.appointment_us = now_us;
        });
    }

    fn book(&mut self, lane: i64, waiter: Waiter, now_us: i64, seen: &mut dyn FnMut(Branch)) {
        if self.waiters.get(&lane).is_none_or(|row| row.units == 0) {
            let before = self.waiters.len();
            self.waiters.retain(|_, row| row.appointment_us >= now_us - SWEEP_US);
            if self.waiters.len() < before {
                seen(Branch::Swept);
            }
        }
        self.waiters.insert(lane, waiter);
    }

    /// The clock may have gone back: whatever holds a date goes back with it, or the budget would stand still for as long
    /// as the step.
    fn shift_to(&mut self, now_us: i64, seen: &mut dyn FnMut(Branch)) {
        let step_us = self.budget.last_seen_us - now_us;
        if step_us <= 0 {
            return;
        }
        seen(Branch::SteppedBack);
        let b = &mut self.budget;
        for date_us in [&mut b.last_seen_us, &mut b.last_slot_us, &mut b.blocked_until_us, &mut b.fenced_until_us] {
            *date_us -= step_us;
        }
        for class in self.classes.values_mut() {
            class.due_us -= step_us;
            class.last_slot_us -= step_us;
        }
        for waiter in self.waiters.values_mut() {
            waiter.place_us -= step_us;
            waiter.appointment_us -= step_us;
        }
    }

    /// Commits may have been forgotten: nothing starts before every slot that they can have promised is over. The queue is
    /// forgotten with them.
    fn fence_now(&mut self, now_us: i64, seen: &mut dyn FnMut(Branch)) {
        seen(Branch::Fenced);
        let b = &mut self.budget;
        let Settings { interval_us, lookahead_us, max_cost, .. } = b.settings;
        if (b.widest_lookahead_us, b.widest_max_cost) != (lookahead_us, max_cost) {
            seen(Branch::FencedWiderThanSettings);
        }
        let widest_cost = i64::from(max(b.widest_max_cost, max_cost));
        let until_us = now_us + max(b.widest_lookahead_us, lookahead_us) + widest_cost * interval_us;
        if b.fenced_until_us > until_us {
            seen(Branch::FencedWithinEarlierFence);
        }
        b.fenced_until_us = max(b.fenced_until_us, until_us);
        b.widest_lookahead_us = lookahead_us;
        b.widest_max_cost = max_cost;
        b.last_seen_us = now_us;
        b.fences += 1;
        self.waiters.clear();
        self.remembered = true;
    }

    fn answer(&self, now_us: i64) -> Answer {
        let Budget { settings, version, fences, .. } = &self.budget;
        Answer {
            waits_us: Vec::new(),
            retry_us: None,
            reason: None,
            interval_us: settings.interval_us,
            lookahead_us: settings.lookahead_us,
            send_window_us: settings.send_window_us,
            max_cost: settings.max_cost,
            version: *version,
            fences: *fences,
            store_us: now_us,
        }
    }

    fn refusal(&self, reason: &'static str, retry_us: Option<i64>, now_us: i64) -> Answer {
        Answer { reason: Some(reason), retry_us, ..self.answer(now_us) }
    }
}

impl Budget {
    /// Where the last slot's cost ends, at today's interval.
    fn spaced_us(&self) -> i64 {
        self.last_slot_us + i64::from(self.last_cost) * self.settings.interval_us
    }
}

impl Class {
    fn rank(&self, at_us: i64) -> Rank {
        if self.floor_ppm > 0 && self.due_us <= at_us {
            Rank::Due { since_us: self.due_us }
        } else {
            Rank::Priority { priority: self.priority, last_slot_us: self.last_slot_us }
        }
    }

    /// How long the class's floor takes to earn `duration_us` of the schedule.
    fn share_of(&self, duration_us: i64) -> i64 {
        duration_us * MILLION / i64::from(self.floor_ppm)
    }
}

impl Head {
    /// Units of this class that go before the class `mine` at the slot `at_us`.
    fn before(&self, mine: &Class, share: i64, at_us: i64, seen: &mut dyn FnMut(Branch)) -> i64 {
        let rank = self.class.rank(at_us);
        if rank >= mine.rank(at_us) {
            return 0;
        }
        if let Rank::Due { .. } = rank {
            seen(Branch::AheadByFloor);
            1
        } else if self.class.priority < mine.priority {
            seen(Branch::AheadByPriority);
            self.units
        } else {
            seen(Branch::AheadByAge);
            min(self.units, share)
        }
    }
}

const MILLION: i64 = 1_000_000;
/// Nobody sleeps longer: new settings and dead lanes are noticed by then.
const NAP_US: i64 = 5 * MILLION;
/// A class whose floor is due may have to wait for so many calls that are due before it, and loses nothing by it.
const CALLS_BEHIND: i64 = 3;
/// Callers get at most one fence in so long.
const FENCE_CAP_US: i64 = 10 * MILLION;
/// A lane not seen for this long is gone.
const SWEEP_US: i64 = 600 * MILLION;
