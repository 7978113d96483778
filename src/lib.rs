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
