//! Leave to send, told in a way that holds on the caller's own clock.

use serde::Serialize;

use super::json::ms;
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;

/// When the head of the request was here.
#[derive(Clone, Copy)]
pub(super) struct Entered(pub Instant);

/// Leave to send, from now until `held_ms` + `remaining_ms` after the caller began to ask.
#[derive(Serialize)]
pub(super) struct Leave {
    governed: bool,
    nonce: Option<String>,
    held_ms: f64,
    remaining_ms: Option<f64>,
}

impl Leave {
    /// Counted from when the request was here: that is after the caller looked at its clock, so that it stops sending
    /// before its window closes, by as long as the request was under way.
    pub fn new(entered: Entered, nonce: Option<u64>, closes_at: Option<Instant>) -> Self {
        let now = SystemClock.now();
        Self {
            governed: nonce.is_some(),
            nonce: nonce.map(|nonce| nonce.to_string()),
            held_ms: ms(now.saturating_since(entered.0)),
            remaining_ms: closes_at.map(|closes_at| ms(closes_at.saturating_since(now))),
        }
    }
}
