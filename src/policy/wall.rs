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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_to_a_later_moment_is_zero() {
        let (early, late) = (Wall::from_unix_us(-5), Wall::from_unix_us(10));
        assert_eq!(
            (late.saturating_since(early), early.saturating_since(late)),
            (Duration::from_micros(15), Duration::ZERO)
        );
    }

    #[test]
    fn no_duration_leads_beyond_the_ends_of_time() {
        assert_eq!(Wall::default() + Duration::MAX, Wall::from_unix_us(i64::MAX));
        assert_eq!((Wall::from_unix_us(-10) - Duration::MAX).unix_us(), i64::MIN);
        assert_eq!(
            Wall::from_unix_us(i64::MAX).saturating_since(Wall::from_unix_us(i64::MIN)).as_micros(),
            i64::MAX as u128
        );
    }
}
