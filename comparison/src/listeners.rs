//! Listeners of a breaker's events: one that counts, one that counts and panics, and a `tracing` subscriber that does so.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static TOLD: AtomicU64 = AtomicU64::new(0);

/// How many events were told so far.
pub fn told() -> u64 {
    TOLD.load(Ordering::Relaxed)
}

pub fn count() {
    TOLD.fetch_add(1, Ordering::Relaxed);
}

pub fn throw() {
    count();
    panic!("a listener throws");
}

/// What `work` gives, while every event of this thread makes its listener panic.
pub fn with_throwing_subscriber<T>(work: impl FnOnce() -> T) -> T {
    tracing::subscriber::with_default(Throws, work)
}

struct Throws;

impl Subscriber for Throws {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.is_event() && (of.target() == "recloser_event" || of.target().starts_with("call_budget"))
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        throw();
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
