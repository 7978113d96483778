use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::Clock;
use crate::config::Secret;
use crate::permit::Permit;
use crate::policy::Instant;

/// What the caller's request is told.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// The access token to use, where the surface has a token source.
    pub token: Option<Arc<Secret>>,
    /// The number of the slot it uses, for the vendor's log or one's own; `None` while the switch is off.
    pub nonce: Option<u64>,
    /// The last moment at which it may leave; `None` while the switch is off.
    pub closes_at: Option<Instant>,
    heard: Arc<AtomicBool>,
}

impl Attempt {
    /// The attempt of this number, that uses this permit.
    pub(super) fn new<C: Clock>(number: u32, token: Option<Arc<Secret>>, permit: &Permit<C>) -> Self {
        Self { number, token, nonce: permit.nonce(), closes_at: permit.closes_at(), heard: Arc::default() }
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
