//! The store: PostgreSQL, reached only from here. I/O that decides nothing.

pub mod access;
pub mod admin;
pub mod operation;
pub mod sqlstate;
pub mod status;

/// The contract this program speaks. A schema whose `call_budget_contract()` differs is refused.
pub const CONTRACT: i32 = 1;
