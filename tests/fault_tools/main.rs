//! The parts of the fault suite that make faults, each tried on its own: a fault that is not what it says it is would let
//! every row of the suite pass.

#[path = "../fault/tools/mod.rs"]
mod tools;

mod proxy;
mod scripted_dns;
mod scripted_postgres;
