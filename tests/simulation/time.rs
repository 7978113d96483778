//! True time, which nobody in the simulation can read, and the clocks that show something else.

/// Nanoseconds of true time since the simulation began.
pub type True = u64;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// A clock that began at some moment of its own and runs a little fast or slow. It may be stepped and slewed.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// True time at which the clock showed `shown_ns`; it has run at `ppm` since.
    since: True,
    shown_ns: i128,
    ppm: i64,
}

impl Rate {
    /// A clock that shows `shown_ns` as the simulation begins.
    pub fn new(shown_ns: i128, ppm: i64) -> Self {
        Self { since: 0, shown_ns, ppm }
    }

    /// What the clock shows at `at`, which is not before its last step.
    pub fn shows_ns(&self, at: True) -> i128 {
        let passed = i128::from(at) - i128::from(self.since);
        self.shown_ns + passed + passed * i128::from(self.ppm) / 1_000_000
    }

    pub fn shows_us(&self, at: True) -> i64 {
        i64::try_from(self.shows_ns(at).div_euclid(1000)).expect("a clock shows less than 290,000 years")
    }

    /// The first moment at which the clock shows `ns` or more.
    pub fn reaches(&self, ns: i128) -> True {
        let rest = ns - self.shown_ns;
        let mut at = i128::from(self.since) + rest * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        while at < i128::from(self.since) || self.shows_ns(u64::try_from(at.max(0)).unwrap_or(u64::MAX)) < ns {
            at += 1;
        }
        u64::try_from(at).unwrap_or(u64::MAX)
    }

    /// How much true time passes while the clock moves on by `us`.
    pub fn true_ns(&self, us: i64) -> i64 {
        let ns = i128::from(us) * 1000 * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    pub fn step_us(&mut self, now: True, by_us: i64) {
        *self = Self { since: now, shown_ns: self.shows_ns(now) + i128::from(by_us) * 1000, ppm: self.ppm };
    }

    pub fn run_at(&mut self, now: True, ppm: i64) {
        *self = Self { since: now, shown_ns: self.shows_ns(now), ppm };
    }
}

pub fn seconds(ns: True) -> f64 {
    ns as f64 / 1e9
}
