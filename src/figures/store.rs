//! How the store calls of one process ended, and for how long the store failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::histogram::Steps;
use super::{StoreCalls, StoreFigures};
use crate::policy::Instant;
use crate::policy::stage::Stage;

/// Where nobody has asked for so long, nobody knows whether it still fails. The watch over its clock asks for as long.
const SILENCE: Duration = Duration::from_secs(60);
const STAGES: [Stage; 6] = [Stage::LocalWait, Stage::Dns, Stage::Connect, Stage::Tls, Stage::Startup, Stage::Query];

#[derive(Debug, Default)]
pub(crate) struct StoreBook {
    answered: Steps,
    /// By stage.
    failed: [Steps; STAGES.len()],
    /// So that an answer takes no lock while all is well.
    failing: AtomicBool,
    outage: Mutex<Outage>,
}

#[derive(Debug, Default)]
struct Outage {
    /// Up to the last failure.
    total: Duration,
    last_failure: Option<Instant>,
}

impl StoreBook {
    /// A call that began then was answered now.
    pub fn answered(&self, began: Instant, now: Instant) {
        self.answered.add(now.saturating_since(began));
        if self.failing.load(Ordering::Acquire) {
            let mut outage = self.outage();
            outage.reach(now);
            outage.last_failure = None;
            self.failing.store(false, Ordering::Release);
        }
    }

    /// A call that began then failed now, in this stage. It says nothing of an outage: see [`StoreBook::failing`].
    pub fn failed(&self, stage: Stage, began: Instant, now: Instant) {
        let place = STAGES.iter().position(|known| *known == stage).unwrap_or_default();
        self.failed[place].add(now.saturating_since(began));
    }

    /// Callers who wait were failed: the store is out from the first of these moments on.
    pub fn failing(&self, now: Instant) {
        let mut outage = self.outage();
        outage.reach(now);
        outage.last_failure = Some(now);
        self.failing.store(true, Ordering::Release);
    }

    pub fn read(&self, now: Instant) -> StoreFigures {
        let failed = STAGES.iter().zip(&self.failed).map(|(stage, took)| (*stage, false, took));
        let calls = [(Stage::Query, true, &self.answered)].into_iter().chain(failed);
        let calls = calls.map(|(stage, answered, took)| StoreCalls { stage, answered, took: took.read() }).collect();
        let outage = self.outage();
        let failing = outage.last_failure.is_some_and(|last| now.saturating_since(last) < SILENCE);
        StoreFigures { calls, outage: outage.until(now), failing }
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    fn until(&self, now: Instant) -> Duration {
        self.total + self.last_failure.map_or(Duration::ZERO, |last| now.saturating_since(last).min(SILENCE))
    }

    fn reach(&mut self, now: Instant) {
        self.total = self.until(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn an_outage_lasts_from_the_first_failure_to_the_next_answer_and_counts_while_it_lasts() {
        let book = StoreBook::default();
        let outage = |now| (book.read(at(now)).outage.as_secs(), book.read(at(now)).failing);
        book.answered(at(99), at(100));
        assert_eq!(outage(100), (0, false));
        book.failing(at(100));
        book.failing(at(110));
        assert_eq!(outage(115), (15, true));
        book.answered(at(119), at(120));
        assert_eq!(outage(500), (20, false));
        book.failing(at(600));
        assert_eq!(outage(601), (21, true));
    }

    #[test]
    fn a_silence_counts_for_a_minute_at_most() {
        let book = StoreBook::default();
        book.failing(at(100));
        for now in [160, 161, 90_000] {
            let read = book.read(at(now));
            assert_eq!((read.outage.as_secs(), read.failing), (60, false), "{now}");
        }
        book.failing(at(90_000));
        assert_eq!(book.read(at(90_005)).outage.as_secs(), 65);
    }

    #[test]
    fn each_call_is_counted_where_it_ended() {
        let book = StoreBook::default();
        book.answered(at(0), at(1));
        for stage in STAGES {
            book.failed(stage, at(0), at(2));
        }
        let calls = book.read(at(2)).calls;
        assert!(calls.iter().all(|calls| calls.took.count() == 1), "{calls:?}");
        assert_eq!(
            calls.iter().filter(|calls| calls.answered).map(|calls| calls.stage).collect::<Vec<_>>(),
            [Stage::Query]
        );
    }
}
