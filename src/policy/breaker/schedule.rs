//! How long it stays open: the wait of a rung, a little longer by chance, cut by the calendar.

use std::time::Duration;

use super::Moment;
use super::rules::Rules;

/// Where on the schedule it stands, and the chance in its waits.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    rung: usize,
    chance: u64,
}

impl Schedule {
    pub(super) const fn new(seed: u64) -> Self {
        Self { rung: 0, chance: seed }
    }

    pub(super) const fn rung(&self) -> usize {
        self.rung
    }

    pub(super) fn up(&mut self, rules: &Rules) {
        self.rung = (self.rung + 1).min(rules.schedule.len() - 1);
    }

    pub(super) const fn back_to_the_start(&mut self) {
        self.rung = 0;
    }

    /// The wait that begins now. One that would outlast the end of an `expect` window ends with it, and the schedule begins
    /// anew.
    pub(super) fn draw(&mut self, rules: &Rules, at: Moment) -> Duration {
        let wait = rules.schedule[self.rung].mul_f64(1.0 + rules.jitter * self.unit());
        let cut = if rules.calendar.windows.is_empty() { None } else { rules.calendar.cut(at.wall, at.wall + wait) };
        match cut {
            Some(end) => {
                self.rung = 0;
                end.saturating_since(at.wall)
            }
            None => wait,
        }
    }

    /// From 0 to 1. The generator is SplitMix64: one number of state, and good enough to spread a fleet.
    fn unit(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}
