//! The store: PostgreSQL, reached only from here. I/O that decides nothing.

#[cfg(feature = "test-util")]
pub mod memory;
