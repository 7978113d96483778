//! The parts that make faults, each tried on its own: a fault that is not what its name says would make the fault suite
//! prove nothing.

#[path = "../fault/tools/mod.rs"]
mod tools;

mod certificates;
mod pgbouncer;
mod standby;
mod tls_server;
