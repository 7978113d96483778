//! The parts of the fault suite that make faults, each tried on its own: a fault that does not happen would let every row
//! of the suite pass.

#[path = "../fault/tools/mod.rs"]
mod tools;

mod proxy;
