//! The store: PostgreSQL, reached only from here. I/O that decides nothing.

pub mod access;
pub mod admin;
pub mod migrate;
pub mod operation;
pub mod sqlstate;
pub mod status;

/// What this library and the schema agree on. A client and a schema of different releases work together while their
/// numbers are equal, whatever migrations came on top; `call_budget.call_budget_contract()` is the schema's.
pub const CONTRACT: i32 = 1;
