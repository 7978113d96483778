//! What one process has done with its slots and calls. Books that must balance: per class, what the store granted is what became
//! permits, was dropped, or was lost. By name, the same is in `figures`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::figures::StoreBook;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// A reading of the counters since start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters { $($(#[$doc])* pub $name: u64),+ }

        /// What counts for the whole process.
        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $(pub $name: Count,)+
            /// How its store calls ended.
            pub store: StoreBook,
        }

        impl Tally {
            pub fn read(&self) -> Counters {
                Counters { $($name: self.$name.0.load(Ordering::Relaxed)),+ }
            }
        }
    };
}

counters! {
    /// Store calls that asked for slots.
    store_calls,
    /// Store calls that took nothing: after a long round trip, or to keep sight of the store's clock.
    probes,
    /// Slots that came with an answer.
    granted,
    /// Permits handed to callers.
    permits,
    /// Slots dropped because their answer took longer than `rtt_max`.
    dropped_round_trip,
    /// Slots dropped because their window had closed, or their caller's `max_wait` had passed, before they could be used.
    dropped_late,
    /// Slots dropped because nobody waited for them any longer.
    dropped_unwanted,
    /// Slots dropped because the store's clock had stepped and the budget was not yet fenced.
    dropped_clock_step,
    /// Permits that were never used.
    lapsed,
    /// At most this many slots were spent on calls whose answer never came.
    lost,
    /// Store calls that failed.
    store_failures,
    /// Steps of the store's clock that were seen.
    clock_steps,
    /// Store calls that asked for a fence after a step.
    fence_requests,
    /// Calls of surfaces, whatever became of them.
    calls,
    /// Attempts of such calls that began.
    attempts,
    /// Attempts that a breaker refused before anything was spent.
    refused_by_breaker,
    /// Attempts that a hold refused before anything was spent.
    refused_by_hold,
    /// Attempts that ended well for the vendor.
    verdicts_good,
    /// Attempts that were the vendor's failure.
    verdicts_bad,
    /// Attempts that said nothing of the vendor's health, though an answer came.
    verdicts_none,
    /// Verdicts that came too late to count: the breaker had moved on.
    stale,
    /// Store calls that reported a vendor's "too many".
    pushbacks,
    /// Of these, the ones that failed: others may not have been told.
    pushback_failures,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub fn join(&self, other: &Count) {
        self.0.fetch_add(other.get(), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
