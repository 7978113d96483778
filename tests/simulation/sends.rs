//! From the store's decision to the vendor's door: what each slot must be able to show on the way.

use std::time::Duration;

use call_budget::Closed;
use call_budget::policy::Instant;
use call_budget::store::memory::scheduler;
use call_budget::store::{Answer, Ask};

use crate::checks::Name;
use crate::checks::grants::Grant;
use crate::checks::order::{Decision, Era};
use crate::checks::spacing::Slot;
use crate::events::Event;
use crate::faults::Kind;
use crate::network::Reading;
use crate::time::{MS, True, seconds};
use crate::vendor::{Arrival, Excuse};
use crate::world::{ProcessId, State};

/// How long one store call may last: `statement_timeout`, and half a second for the way.
pub const STORE_CALL: Duration = Duration::from_secs(1);

impl State {
    /// The store has decided on an ask.
    pub fn decided(&mut self, process: ProcessId, ask: &Ask, answer: &scheduler::Answer, seen: Reading, on_old: bool) {
        let (budget, class) = self.place_of(ask);
        let clock = if on_old { None } else { Some(self.service.primary.clock) };
        let one = &mut self.budgets[budget];
        let (now, slots) = (self.now, answer.waits_us.len());
        self.trace.record(now, 6, process as u64, (slots as u64) << 32 | answer.retry_us.unwrap_or(0) as u64);
        let paused = one.paused && !on_old;
        if !paused && !on_old {
            let free = one.spacing.next_free(answer.interval_us * 1000).max(one.blocked_until as i64) - now as i64;
            self.judge_patience(ask, answer, free);
            self.judge_order(budget, class, ask, answer, seen);
        }
        let one = &mut self.budgets[budget];
        if paused {
            self.tallies.check(Name::Pause, slots == 0, || format!("{slots} slots were granted while paused"));
        }
        if now >= self.plan.measures {
            one.calls_measured += 1;
        }
        for (index, wait_us) in answer.waits_us.iter().enumerate() {
            let cost = i64::from(ask.costs[index]);
            let wait_ns = clock.map_or(wait_us * 1000, |clock| clock.true_ns(*wait_us));
            let slot = Slot {
                at: now as i64 + wait_ns,
                cost,
                interval: clock.map_or(answer.interval_us * 1000, |clock| clock.true_ns(answer.interval_us)),
                lookahead: answer.lookahead_us * 1000,
            };
            if clock.is_some() {
                one.spacing.granted(slot, &mut self.tallies);
                if one.blocked_until + MS > now {
                    let early = one.blocked_until as i64 - slot.at;
                    // Clocks are slewed meanwhile.
                    let tolerance = slot.lookahead / 1000 + one.blocked_for / 1000 + 2 * MS as i64;
                    self.tallies.check(Name::Pushback, early <= tolerance, || {
                        format!("a slot lies {:.3} ms before the end of a pushback", early as f64 / 1e6)
                    });
                }
                if now >= self.plan.heals {
                    one.recovered.get_or_insert(now);
                }
                if now >= self.plan.measures {
                    one.measured[class].0 += cost as u64;
                    one.measured[class].1 += 1;
                    let lanes = &mut self.processes[process].measured;
                    let lane = lanes.iter_mut().find(|(lane, _)| (lane.budget, lane.class) == (budget, class));
                    lane.expect("a process asks for its own lanes").1 += cost as u64;
                }
            }
            let grant = Grant {
                process,
                budget,
                slot,
                decided: now,
                send_window: answer.send_window_us * 1000,
                steps: seen.steps,
                timeline: seen.timeline,
                delivered: None,
                units: None,
            };
            self.grants.decided(nonce(ask, index), grant);
        }
        let shown = self.trace.shown;
        if shown {
            let waits: Vec<i64> = answer.waits_us.clone();
            let (reason, retry) = (answer.reason, answer.retry_us);
            self.trace.tell(now, || {
                format!("store: process {process}, class {class}, costs {:?}: slots in {waits:?} us, {reason:?}, come back in {retry:?} us", ask.costs)
            });
        }
    }

    /// Nothing can start before `free` has passed. Who would not wait so long is told at once, and not kept waiting.
    fn judge_patience(&mut self, ask: &Ask, answer: &scheduler::Answer, free: i64) {
        let patience = i64::try_from(ask.patience.as_nanos()).unwrap_or(i64::MAX);
        // A slot within the lookahead is granted all the same: others of the lane may use it.
        if answer.waits_us.is_empty() && patience < free - free / 500 - MS as i64 {
            self.tallies.check(Name::Patience, answer.reason.is_some(), || {
                format!(
                    "a caller with {:.3} s left was not refused, {:.3} s before the first slot",
                    patience as f64 / 1e9,
                    free as f64 / 1e9
                )
            });
        }
    }

    fn judge_order(&mut self, budget: usize, class: usize, ask: &Ask, answer: &scheduler::Answer, seen: Reading) {
        if matches!(answer.reason, Some("cost_out_of_range")) {
            return;
        }
        let now_us = answer.store_us;
        let appointment_us = match answer.reason {
            None => answer.retry_us.map(|retry_us| now_us + retry_us),
            // The first in the lane is refused; those behind it keep the lane's place and come back at once.
            Some("patience") if ask.costs.len() > 1 && self.budgets[budget].order.waits(ask.lane) => Some(now_us),
            Some(_) => None,
        };
        let decision = Decision {
            lane: ask.lane,
            class,
            now_us,
            first_slot_us: answer.waits_us.first().map(|wait_us| now_us + wait_us),
            appointment_us,
            grace_us: answer.send_window_us,
        };
        let era = Era { epoch: self.service.epoch, steps: seen.steps, fences: answer.fences };
        self.budgets[budget].order.decided(era, &decision, &mut self.tallies);
    }

    fn place_of(&self, ask: &Ask) -> (usize, usize) {
        let budget = self.budget_of(&ask.budget);
        let classes = &self.budgets[budget].plan.classes;
        let class = classes.iter().position(|class| class.name == ask.class).expect("the plan has the class");
        (budget, class)
    }

    pub fn budget_of(&self, name: &str) -> usize {
        self.budgets.iter().position(|budget| &*budget.plan.name == name).expect("the plan has the budget")
    }

    /// An answer has reached the lane that asked.
    pub fn delivered(
        &mut self,
        process: ProcessId,
        ask: &Ask,
        asked: Instant,
        answered: Instant,
        answer: &Answer,
        seen: Reading,
    ) {
        for index in 0..answer.slots.len() {
            if let Some(grant) = self.grants.get(nonce(ask, index)) {
                grant.delivered = Some((asked, answered));
            }
        }
        self.processes[process].delivered += answer.slots.len() as u64;
        self.processes[process].newest_timeline = seen.timeline;
        self.heard(process, asked, answered, seen);
    }

    /// An answer tells the store's clock. A caller sees a step by two answers, if they are near enough to each other, and
    /// the step is larger than what is uncertain in them; what it cannot see is a residual that is stated.
    pub fn heard(&mut self, process: ProcessId, asked: Instant, answered: Instant, seen: Reading) {
        let one = &mut self.processes[process];
        let before = one.heard.filter(|(.., before)| before.timeline == seen.timeline);
        let sees = match before {
            Some((.., before)) if before.steps >= seen.steps => return,
            Some((its_asked, its_answered, before)) => {
                let span = answered.saturating_since(its_asked);
                let widths = its_answered.saturating_since(its_asked) + answered.saturating_since(asked);
                let least = widths + Duration::from_millis(1) + span / 500;
                let stepped = (seen.stepped_us - before.stepped_us).unsigned_abs();
                span.as_secs() < 60 && u128::from(stepped) > least.as_micros()
            }
            None => seen.steps == 0,
        };
        if !sees {
            one.blind_to = (seen.timeline, seen.steps);
        }
        one.heard = Some((asked, answered, seen));
    }

    /// A permit was handed to a caller, who wanted a call of this cost.
    pub fn permitted(&mut self, process: ProcessId, nonce: u64, cost: Option<u32>, wanted: u32) {
        // Whatever the settings say, an answer later than its call may last is none.
        let longest = self.plan.rtt_max.min(STORE_CALL);
        let one = &self.processes[process];
        let Some(grant) = self.grants.get(nonce) else {
            self.tallies.fail(Name::InDoubt, || format!("process {process} has a permit that the store never granted"));
            return;
        };
        let twice = grant.units.replace(wanted).is_some();
        let grant = *grant;
        let unseen = excuse(grant, one.blind_to, self.budgets[grant.budget].spacing.doubtful_until);
        let why = match grant.delivered {
            _ if twice => Some("was handed out twice".to_owned()),
            None => Some("came with an answer that was in doubt".to_owned()),
            Some((asked, answered)) if answered.saturating_since(asked) > longest => {
                Some(format!("came after a round trip of {:?}", answered.saturating_since(asked)))
            }
            Some(_) if cost != Some(wanted) => Some(format!("says a cost of {cost:?}, not {wanted}")),
            Some(_) if i64::from(wanted) > grant.slot.cost => {
                Some(format!("was granted for {}, not for {wanted}", grant.slot.cost))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            self.tallies.fail(Name::InDoubt, || format!("a permit of process {process} {why}"));
        }
        if unseen == Excuse::None {
            self.budgets[grant.budget].spacing.permitted(grant.slot, &mut self.tallies);
        } else {
            self.tallies.excuse(Name::Spacing);
        }
    }

    /// A call leaves.
    pub fn sends(&mut self, process: ProcessId, nonce: Option<u64>) {
        let moment = self.moment_of(process);
        self.trace.record(moment, 7, process as u64, nonce.unwrap_or(0));
        self.sends += 1;
        self.processes[process].sent += 1;
        let Some(grant) = nonce.and_then(|nonce| self.grants.spend(nonce)) else {
            self.tallies
                .check(Name::InDoubt, false, || format!("process {process} sent without a slot, or twice on one"));
            return;
        };
        let (from, to) = (grant.slot.at, grant.slot.at + grant.send_window);
        // What two clocks differ by since the decision.
        let tolerance = |moment: True| (moment - grant.decided.min(moment)) as i64 / 900 + 2000;
        let is_late = |moment: True| moment as i64 > to + tolerance(moment);
        let inside = moment as i64 >= from - tolerance(moment) && !is_late(moment);
        self.tallies.check(Name::InDoubt, inside, || {
            format!(
                "process {process} sent at {:.6} s, {:.3} ms after its slot, whose window is {:.3} ms",
                seconds(moment),
                (moment as i64 - from) as f64 / 1e6,
                grant.send_window as f64 / 1e6
            )
        });
        let budget = &mut self.budgets[grant.budget];
        if self.now >= self.plan.measures {
            budget.sent_measured += grant.slot.cost.unsigned_abs();
        }
        let mut excuse = excuse(grant, self.processes[process].blind_to, budget.spacing.doubtful_until);
        let mut leaves = moment;
        if self.hits(Kind::StoppedOnTheWire) {
            let lasts = self.rng.u64(10 * MS..=3000 * MS);
            self.freeze(process, lasts);
            leaves = self.moment_of(process);
            if is_late(leaves) {
                excuse = Excuse::Stopped;
            }
        }
        let jitter = budget_jitter(self, grant.budget);
        let arrives = leaves + self.plan.network.to_vendor + self.rng.u64(0..=jitter);
        let units = grant.units.unwrap_or(u32::MAX);
        let arrival = Arrival { budget: grant.budget, units, excuse };
        self.events.push(arrives, Event::Counts(Box::new(arrival)));
    }

    /// The permit said no.
    pub fn closed(&mut self, process: ProcessId, closed: &Closed) {
        self.trace.record(self.now, 8, process as u64, 0);
        let now = self.now;
        self.trace.tell(now, || format!("process {process}: {closed}"));
    }

    /// A call is at the vendor's door.
    pub fn reaches_vendor(&mut self, arrival: &Arrival) {
        let now = self.now;
        self.trace.record(now, 9, arrival.budget as u64, u64::from(arrival.units));
        let vendor = &mut self.budgets[arrival.budget].vendor;
        let windows = vendor.count(now, arrival);
        let limit = vendor.limit;
        for window in windows {
            let (all, without) = (window.units.all, window.units.without);
            self.tallies.check(Name::Windows, without <= limit, || {
                format!("{without} units in one {} window at {:.6} s, the limit is {limit}", window.kind, seconds(now))
            });
            if all > limit && without <= limit {
                self.tallies.excuse(Name::Windows);
            }
        }
    }
}

fn nonce(ask: &Ask, index: usize) -> u64 {
    ask.nonce.unsigned_abs().wrapping_add(index as u64)
}

fn budget_jitter(state: &State, budget: usize) -> True {
    state.budgets[budget].plan.limit.arrival_jitter.as_nanos() as u64
}

/// Decided after a step forward that its caller could not see, where it may meet what was promised before the step.
fn excuse(grant: Grant, blind_to: (i64, u64), doubtful_until: True) -> Excuse {
    let (timeline, steps) = blind_to;
    let blind = grant.timeline == timeline && grant.steps > 0 && grant.steps <= steps;
    if blind && grant.slot.at < doubtful_until as i64 { Excuse::UnseenStep } else { Excuse::None }
}
