//! What makes faults: each part stands alone and is tried on its own in `tests/fault_tools`.
#![allow(dead_code, reason = "two test binaries use these parts, each its own")]

pub mod certificates;
pub mod disk_full;
pub mod faketime;
pub mod kept;
pub mod namespace;
pub mod pgbouncer;
pub mod psql;
pub mod standby;
pub mod tls_server;
