//! The clock that a simulated process reads and waits by: `call_budget::clock::Clock` in simulated time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use call_budget::clock::Clock;
use call_budget::policy::{Instant, Wall};

use crate::timers::Key;
use crate::world::{ProcessId, World};

/// One process's clock: its machine's, with an offset and a rate of its own.
#[derive(Clone)]
pub struct SimClock {
    pub world: World,
    pub process: ProcessId,
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.world.lock().reads_clock(self.process)
    }

    fn wall(&self) -> Wall {
        Wall::from_unix_us(0)
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send {
        Sleep { clock: self.clone(), at, key: None }
    }
}

/// Waits for one moment of the process's clock.
struct Sleep {
    clock: SimClock,
    at: Instant,
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.clock.world.lock();
        if state.shows(this.clock.process) >= this.at {
            return Poll::Ready(());
        }
        match this.key {
            Some(key) => state.timers.wake_by(key, context.waker()),
            None => this.key = Some(state.wakes_at(this.clock.process, this.at, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // The waker outlives the lock: it may be the last to hold a task.
            let _waker = self.clock.world.lock().timers.cancel(key);
        }
    }
}

pub fn duration(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}
