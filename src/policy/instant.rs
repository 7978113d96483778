use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on one machine's clock that keeps counting while the machine sleeps (`CLOCK_BOOTTIME` on Linux).
///
/// Comparable with moments of the same machine only. It says nothing about the store's clock: the store answers with
/// durations, never with a date.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
    /// The moment `since_boot` after the clock's own beginning.
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Time since the clock's own beginning.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// How long from `earlier` until this moment; zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", self.0)
    }
}
