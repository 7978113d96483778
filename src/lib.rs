//! One vendor call limit, shared by every process.

pub mod clock;
pub mod config;
mod coordinator;
mod counters;
pub mod error;
mod lane;
mod pace;
mod permit;
pub mod policy;
pub mod store;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod service;

pub use config::{Settings, SettingsError};
pub use coordinator::{CallBudget, Options};
pub use counters::Counters;
pub use error::{AcquireError, Code, Failure};
pub use permit::{Closed, Permit, Sending};

/// For unit tests of programs that use this library (feature `test-util`): a store in memory and a clock that a test moves.
#[cfg(feature = "test-util")]
pub mod test_util {
    pub use crate::clock::ManualClock;
    pub use crate::policy::Instant;
    pub use crate::policy::spacing::Limit;
    pub use crate::store::memory::MemoryStore;
}
