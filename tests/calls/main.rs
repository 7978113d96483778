//! What `call` and the breaker in front promise, judged from outside.

#[path = "../support/mod.rs"]
mod support;

mod breaker;
mod told;
