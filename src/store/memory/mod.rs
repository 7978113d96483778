//! The store in memory, for unit tests of programs that use this library (feature `test-util`).

pub mod scheduler;
