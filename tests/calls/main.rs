//! What `call` and the breaker in front promise, judged from outside.

#[path = "../support/mod.rs"]
mod support;

mod breaker;
mod breaking;
mod cancelling;
mod deaf;
mod figures;
mod holds;
mod order;
mod real;
mod retries;
mod stage;
mod throttled;
mod tokens;
mod told;
