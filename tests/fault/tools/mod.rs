//! The parts that make faults. Each stands on its own and holds no global state.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod scripted_dns;
pub mod scripted_postgres;
