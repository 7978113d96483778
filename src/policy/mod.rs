//! The rules, pure: `std` only, `now` is an argument, nothing waits, nothing asks the clock.
//!
//! A rule that can be read here without knowing tokio or PostgreSQL can also be tested without them, and a simulation can
//! run it in its own time.

pub mod breaker;
pub mod fallback;
pub mod hold;
mod instant;
pub mod outage;
pub mod polite;
pub mod retry;
pub mod round_trip;
pub mod send_window;
pub mod spacing;
pub mod stage;
pub mod step_fence;
pub mod store_clock;
pub mod verdict;
mod wall;
pub mod window_probe;

pub use instant::Instant;
pub use wall::Wall;
