//! When an attempt may be made once more, and after how long.

use std::time::Duration;

use super::verdict::Finding;

/// The waits between the attempts of one call, and what they are made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Before the second attempt, before the third, ...: 1 attempt more than there are waits.
    pub waits: Vec<Duration>,
    pub on: On,
}

/// Which failures are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Every bad verdict.
    Bad,
    /// No whole answer came.
    Transport,
}

impl Retry {
    /// The wait before the next attempt, or `None` where there is to be none. `failed` attempts have been made, the last of
    /// which ended as `finding` says; `retry_after` is what the vendor asked for.
    pub fn next(
        &self,
        failed: u32,
        finding: &Finding,
        transport: bool,
        idempotent: bool,
        retry_after: Option<Duration>,
    ) -> Option<Duration> {
        let _ = (failed, finding, transport, idempotent, retry_after);
        todo!()
    }
}
