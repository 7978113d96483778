//! `CallBudget::call`: breaker, budget, send, classify, settle.

mod answer;
mod error;

pub use answer::{Answer, Answered, Attempt, Credential, Failed};
pub use error::CallError;
