//! The only readers of time.
//!
//! Everything above takes a [`Clock`], so that a test or a simulation decides what time it is; everything below in
//! `policy/` takes `now` as an argument.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use crate::policy::{Instant, Wall};

/// One machine's clock, and waiting on it.
pub trait Clock: Clone + Send + Sync + 'static {
    /// The time now. Must keep counting while the machine sleeps, and must never go back.
    fn now(&self) -> Instant;

    /// The time on the wall, for calendars and for people. It can be set, so nothing waits by it.
    fn wall(&self) -> Wall;

    /// Completes at `at` or later; at once if `at` has passed. Being late is allowed: callers look at the clock again.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send;

    /// The output of `work`, or `None` at `deadline`. Work that is done when the deadline has passed counts as done: what
    /// that is worth is for the caller to judge by the clock.
    fn until<F>(&self, deadline: Instant, work: F) -> impl Future<Output = Option<F::Output>> + Send
    where
        F: Future + Send,
        F::Output: Send,
    {
        async move {
            let mut work = pin!(work);
            tokio::select! {
                biased;
                output = &mut work => Some(output),
                () = self.sleep_until(deadline) => None,
            }
        }
    }
}

/// The machine's own clock: `CLOCK_BOOTTIME` on Linux, since a clock that stops while the machine sleeps would let a stale
/// permit through; elsewhere the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        #[cfg(target_os = "linux")]
        const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(ID);
        Instant::from_boot(Duration::new(
            u64::try_from(time.tv_sec).unwrap_or_default(),
            u32::try_from(time.tv_nsec).unwrap_or_default(),
        ))
    }

    fn wall(&self) -> Wall {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Wall::from_unix_us(time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1000))
    }

    async fn sleep_until(&self, at: Instant) {
        // The timer runs on the monotonic clock: after a suspend it would be late by the suspend. Looking again bounds that.
        const LONGEST_NAP: Duration = Duration::from_secs(1);
        // Tokio rounds the moment up to a millisecond, and the time until then once more: it is late by up to two, by one on
        // the average. Asked for a millisecond less it comes at most one early, and the short rest takes one more at most.
        const COARSENESS: Duration = Duration::from_millis(1);
        // Of nothing at all it might not wait for its next millisecond.
        const SHORTEST_NAP: Duration = Duration::from_micros(1);
        loop {
            let rest = at.saturating_since(self.now());
            if rest.is_zero() {
                return;
            }
            tokio::time::sleep(rest.saturating_sub(COARSENESS).clamp(SHORTEST_NAP, LONGEST_NAP)).await;
        }
    }
}

#[cfg(feature = "test-util")]
pub use manual::ManualClock;

#[cfg(feature = "test-util")]
mod manual {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use tokio::sync::watch;

    use super::Clock;
    use crate::policy::{Instant, Wall};

    /// A clock that moves only when a test says so. Clones share the time. Its wall shows 1970 at the machine's boot until
    /// it is set.
    #[derive(Clone, Debug)]
    pub struct ManualClock(Arc<watch::Sender<Instant>>, Arc<AtomicI64>);

    impl ManualClock {
        /// A clock that stands at `now`.
        pub fn at(now: Instant) -> Self {
            Self(Arc::new(watch::Sender::new(now)), Arc::default())
        }

        /// Sets the wall clock: it shows `wall` now. Nobody's wait changes.
        pub fn set_wall(&self, wall: Wall) {
            self.1.store(wall.unix_us() - since_boot_us(self.now()), Ordering::Relaxed);
        }

        /// Moves the clock forward and wakes whoever's moment has come.
        pub fn advance(&self, by: Duration) {
            self.0.send_modify(|now| *now = *now + by);
        }
    }

    impl Clock for ManualClock {
        fn now(&self) -> Instant {
            *self.0.borrow()
        }

        fn wall(&self) -> Wall {
            Wall::from_unix_us(self.1.load(Ordering::Relaxed) + since_boot_us(self.now()))
        }

        async fn sleep_until(&self, at: Instant) {
            // The sender lives in self: waiting cannot fail while self is borrowed.
            let _ = self.0.subscribe().wait_for(|now| *now >= at).await;
        }
    }

    fn since_boot_us(now: Instant) -> i64 {
        i64::try_from(now.since_boot().as_micros()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleeping_never_ends_early_and_a_passed_moment_does_not_wait() {
        let clock = SystemClock;
        let at = clock.now() + Duration::from_millis(5);
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
        clock.sleep_until(at).await;
    }

    #[tokio::test]
    async fn work_without_end_ends_at_the_deadline() {
        let clock = SystemClock;
        let deadline = clock.now() + Duration::from_millis(5);
        assert_eq!(clock.until(deadline, std::future::pending::<()>()).await, None);
        assert!(clock.now() >= deadline);
    }
}
