//! Faults at an exact byte: an extension of ours that toxiproxy does not have, for use inside the process only. A test
//! that uses one says that its proxy is our own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::toxic::Stream;

/// What happens at the byte. It happens when that many have passed, also if none follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Both ends see the end of the stream (FIN), after the bytes that passed.
    Fin,
    /// Both ends see a reset (RST), after the bytes that passed.
    Reset,
    /// Nothing passes any more, the end of the stream neither. What came is kept and passes after
    /// [`Armed::disarm`](super::Armed::disarm). Senders feel it once 64 KiB are kept.
    Hold,
    /// What follows is read and lost for ever, the end of the stream too.
    Swallow,
}

/// After `after` bytes of `stream`, do `action`. Once a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger {
    stream: Stream,
    after: u64,
    action: Action,
    since_armed: bool,
}

impl Trigger {
    /// Counts from the start of each connection. A connection that is already past the byte is left alone.
    pub fn new(stream: Stream, after: u64, action: Action) -> Trigger {
        Trigger { stream, after, action, since_armed: false }
    }

    /// Counts from the moment of arming on connections open by then; from the start on later ones.
    #[must_use]
    pub fn since_armed(self) -> Trigger {
        Trigger { since_armed: true, ..self }
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    /// How many bytes may still pass, where `passed` already have. None: it came too late.
    pub(super) fn left(&self, passed: u64) -> Option<u64> {
        if self.since_armed { Some(self.after) } else { self.after.checked_sub(passed) }
    }

    pub(super) fn action(&self) -> Action {
        self.action
    }
}

/// A trigger that is set, shared by the proxy and its connections.
#[derive(Debug)]
pub(super) struct Set {
    pub id: u64,
    pub trigger: Trigger,
    fired: AtomicU64,
}

impl Set {
    pub fn new(id: u64, trigger: Trigger) -> Arc<Set> {
        Arc::new(Set { id, trigger, fired: AtomicU64::new(0) })
    }

    pub fn fire(&self) {
        self.fired.fetch_add(1, Ordering::SeqCst);
    }

    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::SeqCst)
    }
}
