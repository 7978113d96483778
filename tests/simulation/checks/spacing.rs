//! Slots of one budget are an interval apart for each unit of cost, in true time, whoever has them.
//!
//! Two ways to look. Of all that the store ever granted, forgotten commits and lost answers too, each slot lies behind the
//! ones before it. A step forward of the store's clock breaks that, and the store cannot see it; so of the slots that became
//! permits, those of callers that could see the step are apart all the same.

use std::collections::BTreeMap;

use super::{Name, Tallies};
use crate::time::{True, seconds};

/// One slot in true time.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub at: i64,
    pub cost: i64,
    /// The interval when it was granted.
    pub interval: i64,
    /// How far ahead of its granting it lies at the most.
    pub lookahead: i64,
}

#[derive(Default)]
pub struct Spacing {
    /// The end of the last slot that was granted: nothing starts before it.
    last: Option<Slot>,
    permits: BTreeMap<i64, Slot>,
    /// Until then a slot may lie too near to one from before a step forward.
    pub doubtful_until: True,
}

impl Slot {
    /// Clocks do not run alike, by a thousandth at the most.
    fn is_apart_from(&self, next: &Slot) -> bool {
        let least = self.cost * next.interval;
        let tolerance = least / 900 + (self.lookahead.max(next.lookahead)) / 1000 + 2000;
        next.at - self.at >= least - tolerance
    }
}

impl Spacing {
    /// The store's clock has stepped forward.
    pub fn step_forward(&mut self, until: True) {
        self.last = None;
        self.doubtful_until = until;
    }

    /// Before this moment no slot is free.
    pub fn next_free(&self, interval: i64) -> i64 {
        self.last.map_or(0, |last| last.at + last.cost * interval)
    }

    pub fn granted(&mut self, slot: Slot, tallies: &mut Tallies) {
        if let Some(last) = self.last.replace(slot) {
            tallies.check(Name::Spacing, last.is_apart_from(&slot), || too_near("granted", &last, &slot));
        }
    }

    /// A permit was handed out for it.
    pub fn permitted(&mut self, slot: Slot, tallies: &mut Tallies) {
        if let Some((_, before)) = self.permits.range(..=slot.at).next_back() {
            tallies.check(Name::Spacing, before.is_apart_from(&slot), || too_near("permitted", before, &slot));
        }
        if let Some((_, next)) = self.permits.range(slot.at + 1..).next() {
            tallies.check(Name::Spacing, slot.is_apart_from(next), || too_near("permitted", &slot, next));
        }
        self.permits.insert(slot.at, slot);
        if self.permits.len() > 4096 {
            let middle = *self.permits.keys().nth(2048).expect("there are more");
            self.permits = self.permits.split_off(&middle);
        }
    }
}

fn too_near(how: &str, first: &Slot, next: &Slot) -> String {
    format!(
        "two {how} slots are {:.3} ms apart, at {:.6} s and {:.6} s; the first costs {} of {:.3} ms",
        (next.at - first.at) as f64 / 1e6,
        seconds(first.at.unsigned_abs()),
        seconds(next.at.unsigned_abs()),
        first.cost,
        next.interval as f64 / 1e6,
    )
}
