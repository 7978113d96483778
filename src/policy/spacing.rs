//! The bound that makes the limit true.
//!
//! A vendor counts at most `limit` units in any window. A call with slot S leaves in [S, S + send window] and arrives up to
//! `arrival_jitter` later, so with slots `interval` apart and costs up to `max_cost` a closed window of any kind (fixed,
//! first-call or sliding) holds at most floor((window + send_window + arrival_jitter) / interval) + max_cost units.
//! The schema refuses the same settings by a constraint; this is where the numbers come from.

use std::time::Duration;

/// What the vendor counts, and how far a call may land from its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Units in any window: 1 or more.
    pub units: u32,
    /// The vendor's window.
    pub window: Duration,
    /// How long after its slot a call may leave.
    pub send_window: Duration,
    /// Arrival jitter: the range (largest minus smallest) of the time from leaving to arriving.
    pub arrival_jitter: Duration,
    /// The largest cost of one call, 1 to `units`.
    pub max_cost: u32,
}

/// The settings cannot be made safe at any interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsafe {
    /// One call may cost more than the vendor counts in a whole window.
    CostOverLimit,
    /// Nothing may ever be sent.
    NoUnits,
}

impl Limit {
    /// The shortest safe interval between two slots, rounded up to a microsecond: 0.1 % above the bound, for clocks that do
    /// not tick alike.
    pub fn interval(&self) -> Result<Duration, Unsafe> {
        if self.units == 0 {
            return Err(Unsafe::NoUnits);
        }
        let spread = self.spread_us();
        let divisor = match self.units.checked_sub(self.max_cost) {
            Some(rest) if self.max_cost > 0 => u128::from(rest) + 1,
            _ => return Err(Unsafe::CostOverLimit),
        };
        let interval = (spread * 1001).div_ceil(divisor * 1000) + 1;
        Ok(Duration::from_micros(u64::try_from(interval).unwrap_or(u64::MAX)))
    }

    /// The most units that any closed window can hold with slots `interval` apart.
    pub fn worst_window(&self, interval: Duration) -> u64 {
        let slots = self.spread_us() / interval.as_micros().max(1);
        u64::try_from(slots).unwrap_or(u64::MAX).saturating_add(u64::from(self.max_cost))
    }

    /// Whether slots `interval` apart keep every window within the limit.
    pub fn is_safe_at(&self, interval: Duration) -> bool {
        self.interval().is_ok()
            && self.worst_window(interval) <= u64::from(self.units)
            && u128::from(self.units - self.max_cost + 1) * interval.as_micros()
                > self.spread_us() + self.spread_us() / 1000
    }

    fn spread_us(&self) -> u128 {
        self.window.as_micros() + self.send_window.as_micros() + self.arrival_jitter.as_micros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(units: u32, max_cost: u32) -> Limit {
        let ms = Duration::from_millis;
        Limit { units, window: ms(1000), send_window: ms(50), arrival_jitter: ms(50), max_cost }
    }

    #[test]
    fn the_interval_is_the_one_the_design_names() {
        assert_eq!(limit(18, 1).interval(), Ok(Duration::from_micros(61_174)));
        assert_eq!(limit(1, 1).interval(), Ok(Duration::from_micros(1_101_101)));
        assert_eq!(limit(18, 3).interval(), Ok(Duration::from_micros(68_820)));
    }

    #[test]
    fn a_cost_over_the_limit_or_no_units_cannot_be_made_safe() {
        assert_eq!(limit(18, 19).interval(), Err(Unsafe::CostOverLimit));
        assert_eq!(limit(18, 0).interval(), Err(Unsafe::CostOverLimit));
        assert_eq!(limit(0, 1).interval(), Err(Unsafe::NoUnits));
    }

    #[test]
    fn no_window_holds_more_than_the_limit_at_the_interval_and_one_does_below_it() {
        for units in [1, 2, 3, 18, 20, 1000] {
            for max_cost in [1, 2, units].into_iter().filter(|c| *c <= units) {
                let limit = limit(units, max_cost);
                let interval = limit.interval().unwrap();
                assert!(limit.is_safe_at(interval), "{limit:?}");
                assert!(limit.worst_window(interval) <= u64::from(units), "{limit:?}");
                assert!(!limit.is_safe_at(interval.mul_f64(0.99)), "{limit:?}");
            }
        }
    }
}
