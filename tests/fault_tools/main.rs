//! The tools of the fault suite, each tried on its own: a fault that is not what it says it is proves nothing.

#[path = "../fault/tools/mod.rs"]
mod tools;

mod scripted_dns;
mod scripted_postgres;
