//! The schema: how it comes into a database, what it is made of, and what survives a restore, a copy and a crash.

#[path = "../support/mod.rs"]
mod support;

mod applying;
mod planted;
