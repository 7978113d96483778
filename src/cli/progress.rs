//! Where a command stands, for a person who waits: one line on stderr, gone when the wait is over. Quiet elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use super::output::cut;
use crate::clock::{Clock, SystemClock};

/// A line that changes. Dropping it wipes it.
pub struct Progress {
    terminal: bool,
}

impl Progress {
    pub fn new() -> Self {
        Self { terminal: stderr().is_terminal() }
    }

    /// Puts this in place of what stood there.
    pub fn say(&self, what: &str) {
        if self.terminal {
            let columns = rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col).max(20));
            let mut stderr = stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{}", cut(what, columns - 1));
            let _ = stderr.flush();
        }
    }

    /// Wipes the line.
    pub fn clear(&self) {
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Does the work, and says what it is and for how long already as soon as that takes more than a second.
pub async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    let progress = Progress::new();
    let mut work = std::pin::pin!(work);
    let begun = SystemClock.now();
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                progress.say(&format!("{what} ({} s)", SystemClock.now().saturating_since(begun).as_secs()));
            }
        }
    }
}
