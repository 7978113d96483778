use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Secret;

/// What the caller's request is told.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// The access token to use, where the surface has a token source.
    pub token: Option<Arc<Secret>>,
    /// The number of the slot it uses, for the vendor's log or one's own; `None` while the switch is off.
    pub nonce: Option<u64>,
    heard: Arc<AtomicBool>,
}

impl Attempt {
    pub(super) fn new(number: u32, token: Option<Arc<Secret>>, nonce: Option<u64>) -> Self {
        Self { number, token, nonce, heard: Arc::default() }
    }

    /// The head of an answer is there. Say so as soon as it is: a caller who gives up on a vendor that was silent for longer
    /// than the slow limit tells something of the vendor; one who gives up on an answer that is coming does not.
    pub fn heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}
