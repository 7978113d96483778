//! Faults that last: until when, and how often they hit.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::Kind;
use crate::time::True;

/// One kind of trouble that comes by chance for a while.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spell {
    until: True,
    chance: f64,
}

impl Spell {
    pub fn new(until: True, chance: f64) -> Self {
        Self { until, chance }
    }
}

/// All that may be going on at once.
#[derive(Debug, Default)]
pub struct Spells {
    lasting: BTreeMap<Kind, Spell>,
    /// Calls cost more than 1, to the end.
    pub mixed_costs: bool,
    /// Nobody wants anything before this moment, and why.
    pub idle: Option<(Kind, True)>,
}

impl Spells {
    /// Instead of the one before it.
    pub fn begin(&mut self, kind: Kind, spell: Spell) {
        self.lasting.insert(kind, spell);
    }

    pub fn end(&mut self, kind: Kind) {
        self.lasting.remove(&kind);
    }

    pub fn lasts(&self, kind: Kind, now: True) -> bool {
        self.lasting.get(&kind).is_some_and(|spell| now < spell.until)
    }

    pub fn hits(&self, kind: Kind, now: True, rng: &mut Rng) -> bool {
        self.lasting.get(&kind).is_some_and(|spell| now < spell.until && rng.f64() < spell.chance)
    }

    /// Whatever lasts is over. What calls cost is no fault.
    pub fn end_all(&mut self) {
        *self = Self { mixed_costs: self.mixed_costs, ..Self::default() };
    }
}
