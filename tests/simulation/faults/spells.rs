//! Faults that last: until when, and how often they hit.

use fastrand::Rng;

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

    pub fn hits(&self, now: True, rng: &mut Rng) -> bool {
        now < self.until && rng.f64() < self.chance
    }
}

/// All that may be going on at once.
#[derive(Debug, Default)]
pub struct Spells {
    pub requests_lost: Spell,
    pub requests_late: Spell,
    pub answers_lost: Spell,
    pub answers_late: Spell,
    pub resets: Spell,
    pub refuses: Spell,
    pub long_round_trips: Spell,
    /// Some are sent to the server that was left behind by a promotion.
    pub old_server: Spell,
    pub stalled_on_answer: Spell,
    pub impatient: Spell,
    pub cancelling: Spell,
    pub holding: Spell,
    pub stopped_on_the_wire: Spell,
    /// Calls cost more than 1, to the end.
    pub mixed_costs: bool,
    /// Nobody wants anything before.
    pub idle_until: True,
}

impl Spells {
    /// Whatever lasts is over. What calls cost is no fault.
    pub fn end(&mut self) {
        *self = Self { mixed_costs: self.mixed_costs, ..Self::default() };
    }
}
