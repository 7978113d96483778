//! What happened, as one number: two runs of a seed are the same where it is. And, on request, as text.

use crate::time::{True, seconds};

#[derive(Default)]
pub struct Trace {
    pub hash: u64,
    pub events: u64,
    /// Show it to people.
    pub shown: bool,
}

impl Trace {
    /// Something happened: what, and two numbers of it. Never a lane's id, which is drawn by the system.
    pub fn record(&mut self, now: True, what: u64, of: u64, how: u64) {
        self.events += 1;
        for word in [now, what, of, how] {
            self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }

    pub fn tell(&self, now: True, what: impl FnOnce() -> String) {
        if self.shown {
            println!("{:>14.6}  {}", seconds(now), what());
        }
    }
}
