//! Inside a class a newcomer queues behind whoever is due.
//!
//! What lanes were told is kept here once more, from the store's answers alone. A fence and a start make the store forget
//! who waits; a step of its clock leaves everybody's place, and nobody due for certain.

use std::collections::HashMap;

use super::{Name, Tallies};

/// The lanes of one budget that were told when to come back.
#[derive(Default)]
pub struct Order {
    waiting: HashMap<i64, Place>,
    era: Era,
}

/// While this stays as it is, what lanes were told holds.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Era {
    pub epoch: u32,
    pub steps: u64,
    pub fences: i64,
}

struct Place {
    class: usize,
    /// By the store's clock, in microseconds, as everything here; none after a step of it.
    appointment_us: Option<i64>,
}

/// A lane's question and what came of it.
pub struct Decision {
    pub lane: i64,
    pub class: usize,
    pub now_us: i64,
    pub first_slot_us: Option<i64>,
    /// When the lane is to come back, if it still waits.
    pub appointment_us: Option<i64>,
    /// Past its appointment by more than this, a lane keeps nobody waiting.
    pub grace_us: i64,
}

impl Order {
    pub fn waits(&self, lane: i64) -> bool {
        self.waiting.contains_key(&lane)
    }

    pub fn decided(&mut self, era: Era, decision: &Decision, tallies: &mut Tallies) {
        if (self.era.epoch, self.era.fences) != (era.epoch, era.fences) {
            self.waiting.clear();
        } else if self.era.steps != era.steps {
            self.waiting.values_mut().for_each(|place| place.appointment_us = None);
        }
        self.era = era;
        let Decision { lane, class, now_us, grace_us, .. } = *decision;
        if let Some(slot_us) = decision.first_slot_us.filter(|_| !self.waits(lane)) {
            let due = |place: &&Place| {
                let in_time = |at_us: i64| at_us <= slot_us && at_us + grace_us >= now_us;
                place.class == class && place.appointment_us.is_some_and(in_time)
            };
            let passed_over = self.waiting.values().filter(due).count();
            tallies.check(Name::Order, passed_over == 0, || {
                format!("a lane of class {class} that did not wait went before {passed_over} that were due")
            });
        }
        match decision.appointment_us {
            Some(_) => drop(self.waiting.insert(lane, Place { class, appointment_us: decision.appointment_us })),
            None => drop(self.waiting.remove(&lane)),
        }
    }
}
