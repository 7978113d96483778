//! The store: PostgreSQL, reached only from here. I/O that decides nothing.

#[cfg(feature = "test-util")]
pub mod memory;
pub mod migrate;

/// What this library and the schema agree on. A client and a schema of different releases work together while their
/// numbers are equal, whatever migrations came on top; `call_budget.call_budget_contract()` is the schema's.
pub const CONTRACT: i32 = 1;
