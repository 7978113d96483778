//! A program that calls the vendor: asks for leave and, with leave in hand, sends at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::{AcquireError, CallBudget, Options, Permit};

use super::judge::{Account, Leave};
use super::vendor::{Wire, now_us};
use crate::tools::slots::dropped;

/// One `CallBudget` of its own, asking for one class. Cheap to clone; clones share everything, sessions too.
#[derive(Clone)]
pub struct Caller {
    pub(super) budget: CallBudget,
    pub(super) name: Arc<str>,
    pub(super) class: Arc<str>,
    pub(super) max_wait: Duration,
    pub(super) ledger: Arc<Ledger>,
    pub(super) wire: Arc<Wire>,
}

/// How one call ended.
#[derive(Debug)]
pub struct Ended {
    /// From the entry of `acquire` to its return.
    pub took: Duration,
    pub result: Result<Sent, AcquireError>,
}

/// What became of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The request left.
    Left,
    /// Its window had closed when it was to leave: nothing was sent.
    WindowClosed,
}

impl Ended {
    /// The error of a call that must not have been sent.
    #[track_caller]
    pub fn refused(self) -> AcquireError {
        match self.result {
            Err(error) => error,
            Ok(sent) => panic!("a permit came, where none should: {sent:?} after {:?}", self.took),
        }
    }
}

impl Caller {
    /// Asks, with the setting `max_wait` as patience, and sends if it may. Under a fault (after `Round::fault`, before
    /// `Round::heal`) the time it took is recorded.
    pub async fn try_send(&self) -> Ended {
        self.try_send_within(self.max_wait).await
    }

    pub async fn try_send_within(&self, max_wait: Duration) -> Ended {
        let measured = self.ledger.fault.load(Ordering::SeqCst);
        let ended = self.attempt(max_wait).await;
        if measured {
            self.ledger.ended(ended.took);
        }
        ended
    }

    /// Sends, as nothing is in the way: for opening the session before a fault, and for seeing that all is well.
    ///
    /// # Panics
    /// After 5 s.
    pub async fn send(&self) {
        let patience = Duration::from_secs(5);
        let sent = async { while self.attempt(patience).await.result.expect("nothing is in the way") != Sent::Left {} };
        tokio::time::timeout(2 * patience, sent).await.expect("a permit in time");
    }

    pub fn counters(&self) -> call_budget::Counters {
        self.budget.counters()
    }

    /// The library itself, for what is not `try_send`. A permit that is taken here is to be dropped unused.
    pub fn library(&self) -> (&CallBudget, &str, &str) {
        (&self.budget, &self.name, &self.class)
    }

    pub(super) async fn attempt(&self, max_wait: Duration) -> Ended {
        self.attempt_after(max_wait, async {}).await
    }

    /// The same with something between the permit and its use.
    pub(super) async fn attempt_after(&self, max_wait: Duration, between: impl Future<Output = ()>) -> Ended {
        let options = Options { max_wait: Some(max_wait), ..Options::default() };
        let entered = SystemClock.now();
        let answer = self.budget.acquire_with(&self.name, &self.class, options).await;
        let took = SystemClock.now().saturating_since(entered);
        let result = match answer {
            Ok(permit) => {
                let nonce = permit.nonce().expect("the switch is on");
                let closes = permit.closes_at().expect("the switch is on").since_boot();
                let closes_us = u64::try_from(closes.as_micros()).unwrap_or(u64::MAX);
                self.ledger.leave(Leave { nonce, given_us: now_us(), closes_us });
                between.await;
                Ok(self.use_up(permit, nonce))
            }
            Err(error) => Err(error),
        };
        Ended { took, result }
    }

    fn use_up(&self, permit: Permit, nonce: u64) -> Sent {
        match permit.start() {
            Ok(sending) => {
                self.wire.send(nonce).expect("the vendor listens");
                self.ledger.sent.fetch_add(1, Ordering::SeqCst);
                drop(sending);
                Sent::Left
            }
            Err(_) => Sent::WindowClosed,
        }
    }

    pub(super) fn account(&self) -> Account {
        let counters = self.budget.counters();
        Account {
            class: self.class.to_string(),
            permits: counters.permits,
            dropped: dropped(&counters),
            lost: counters.lost,
        }
    }
}

/// What the callers of a round write down.
#[derive(Default)]
pub(super) struct Ledger {
    /// The fault is on.
    pub fault: AtomicBool,
    /// Requests that left, the vendor must have seen as many.
    pub sent: AtomicU64,
    leaves: Mutex<Vec<Leave>>,
    ends: Mutex<Vec<Duration>>,
    /// Who else is told of leave, before it is used.
    told: Option<fn(Leave)>,
}

impl Ledger {
    /// One that says each leave as it is given.
    pub fn telling(told: fn(Leave)) -> Self {
        Self { told: Some(told), ..Self::default() }
    }

    pub fn leave(&self, leave: Leave) {
        if let Some(tell) = self.told {
            tell(leave);
        }
        lock(&self.leaves).push(leave);
    }

    pub fn ended(&self, took: Duration) {
        lock(&self.ends).push(took);
    }

    pub fn leaves(&self) -> Vec<Leave> {
        lock(&self.leaves).clone()
    }

    pub fn ends(&self) -> Vec<Duration> {
        lock(&self.ends).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
