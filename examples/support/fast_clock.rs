//! A clock that runs many times as fast as the machine's, so that minutes can be watched in seconds.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::{Instant, Wall};

/// Clones show the same time.
#[derive(Clone, Copy, Debug)]
pub struct FastClock {
    started: Instant,
    wall: Wall,
    speed: u32,
}

impl FastClock {
    /// Starts now, when its wall shows `wall`.
    pub fn start(wall: Wall, speed: u32) -> Self {
        Self { started: SystemClock.now(), wall, speed }
    }

    /// What its wall showed at this moment of the machine's clock.
    pub fn wall_at(&self, machine: Instant) -> Wall {
        self.wall + machine.saturating_since(self.started) * self.speed
    }

    /// How long it has run, by itself.
    fn elapsed(&self) -> Duration {
        SystemClock.now().saturating_since(self.started) * self.speed
    }

    /// The moment at which its wall shows this.
    pub fn at(&self, wall: Wall) -> Instant {
        self.started + wall.saturating_since(self.wall)
    }
}

impl Clock for FastClock {
    fn now(&self) -> Instant {
        self.started + self.elapsed()
    }

    fn wall(&self) -> Wall {
        self.wall + self.elapsed()
    }

    async fn sleep_until(&self, at: Instant) {
        SystemClock.sleep_until(self.started + at.saturating_since(self.started) / self.speed).await;
        // Division rounds down, by less than a tick of this clock.
        while self.now() < at {
            tokio::task::yield_now().await;
        }
    }
}
