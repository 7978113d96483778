//! One vendor call limit, shared by every process that holds the key: each call waits for a send slot from PostgreSQL.
//!
//! ```no_run
//! use call_budget::{CallBudget, Options, Settings};
//! use std::time::Duration;
//!
//! async fn order(send: impl Future<Output = u16>) -> Result<u16, Box<dyn std::error::Error>> {
//!     let budgets = CallBudget::new(&Settings::load()?)?; // one for the process
//!     let patience = Options { max_wait: Some(Duration::from_millis(500)), ..Options::default() };
//!     let permit = budgets.acquire_with("kis-real", "order", patience).await?; // an error means: do not send
//!     Ok(permit.call(|| send).await?) // sends inside the permit's window, or not at all
//! }
//! ```
//!
//! Promise: slots of one budget are evenly spaced over all processes, so that no window of the vendor ever holds more than
//! the limit; and on any doubt nothing is sent. Every wait has an end: `acquire` returns within `max_wait`.
//!
//! The switch `call_budget_enabled` is off by default. Off, no call touches a store: each class keeps this process's own
//! polite pace, and [`Permit::governed`] is false.

mod breaker;
mod call;
pub mod clock;
pub mod config;
mod coordinator;
mod counters;
pub mod error;
pub mod fallback;
mod figures;
#[cfg(any(feature = "reqwest", feature = "tower"))]
mod http;
mod lane;
mod pace;
mod permit;
pub mod policy;
mod publisher;
#[cfg(feature = "reqwest")]
pub mod reqwest;
pub mod store;
#[cfg(feature = "tower")]
pub mod tower;
pub mod vendor;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod service;

pub use breaker::{Breaker, Pass};
pub use call::{
    Answer, Answered, Attempt, BreakerReport, CallError, CallOptions, Credential, Failed, Fetching, Guarded, Token,
    TokenSource, Told,
};
pub use config::{Settings, SettingsError};
pub use coordinator::{CallBudget, Options};
pub use counters::Counters;
pub use error::{AcquireError, Code, Failure};
pub use figures::{
    BreakerFigures, ClassFigures, Dropped, Figures, Histogram, StoreCalls, StoreFigures, SurfaceFigures,
};
pub use permit::{Closed, Permit, Sending};

/// For unit tests of programs that use this library (feature `test-util`): a store in memory and a clock that a test moves.
#[cfg(feature = "test-util")]
pub mod test_util {
    pub use crate::clock::ManualClock;
    pub use crate::policy::Instant;
    pub use crate::policy::spacing::Limit;
    pub use crate::store::memory::MemoryStore;
}
