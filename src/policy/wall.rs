use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on the wall clock: whole microseconds since 1970, UTC.
///
/// For calendars and for people. No wait is measured by it, since it can be set at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(i64);

impl Wall {
    /// The moment this many microseconds after the beginning of 1970, UTC.
    pub const fn from_unix_us(us: i64) -> Self {
        Self(us)
    }

    /// Microseconds since the beginning of 1970, UTC.
    pub const fn unix_us(self) -> i64 {
        self.0
    }

    /// How long from `earlier` until this moment; zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Wall) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or_default())
    }
}

impl Add<Duration> for Wall {
    type Output = Wall;

    fn add(self, duration: Duration) -> Wall {
        Wall(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Wall {
    type Output = Wall;

    fn sub(self, duration: Duration) -> Wall {
        Wall(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}
