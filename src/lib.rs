//! One vendor call limit, shared by every process.

pub mod clock;
pub mod error;
pub mod policy;
pub mod store;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod service;
