//! What makes faults, each part on its own and without global state. The fault suite uses them together; the test binary
//! `fault_tools` tries each against something plain.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

pub mod certificates;
pub mod disk_full;
pub mod door;
pub mod faketime;
pub mod kept;
pub mod namespace;
pub mod pgbouncer;
pub mod processes;
pub mod proxy;
pub mod psql;
pub mod scripted_dns;
pub mod scripted_postgres;
pub mod signals;
pub mod slots;
pub mod standby;
pub mod tls_server;
