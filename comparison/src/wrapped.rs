//! Breakers that only wrap a call: the call is polled step by step, so that its admission and its outcome stand apart.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::subject::{Report, Subject, Ticket};
use crate::wall;

/// An error of the wrapped call.
#[derive(Debug, PartialEq, Eq)]
pub enum Failed {
    Vendor,
    /// The predicates here say that it is none.
    NotTheirs,
}

/// Whether an error counts, as the crates ask it.
pub fn counts(error: &Failed) -> bool {
    *error == Failed::Vendor
}

/// The call that a breaker wraps.
pub type Work = BoxFuture<'static, Result<(), Failed>>;

#[derive(PartialEq, Eq)]
pub enum Ended {
    Refused,
    Answered,
}

pub struct Wrapped {
    pub call: Box<dyn Fn(Work) -> BoxFuture<'static, Ended> + Send + Sync>,
    pub read: Option<Box<dyn Fn() -> String + Send + Sync>>,
    pub evidence: u64,
    pub pace: Duration,
}

struct InFlight {
    future: BoxFuture<'static, Ended>,
    outcome: oneshot::Sender<Result<(), Failed>>,
}

/// After this long without an answer a caller who asks for leave is polled again, as if it had been woken.
const PATIENCE: Duration = Duration::from_millis(500);
static UNWOKEN: AtomicU64 = AtomicU64::new(0);

/// How many callers so far asked for leave and were never woken.
pub fn unwoken() -> u64 {
    UNWOKEN.load(Ordering::Relaxed)
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime can be built")
});

impl Subject for Wrapped {
    fn admit(&self, _: u64) -> Option<Box<dyn Ticket>> {
        let (outcome, told) = oneshot::channel();
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        let work: Work = Box::pin(async move {
            begins.store(true, Ordering::SeqCst);
            told.await.expect("a call that goes on is told how it ends")
        });
        let mut future = (self.call)(work);
        let mut asking = poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended == Ended::Refused),
            Poll::Pending if begun.load(Ordering::SeqCst) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        });
        let refused = RUNTIME.block_on(async {
            loop {
                match tokio::time::timeout(PATIENCE, &mut asking).await {
                    Ok(refused) => return refused,
                    // Asking takes microseconds. Who sleeps on was not woken; being polled anew helps.
                    Err(_) => {
                        UNWOKEN.fetch_add(1, Ordering::Relaxed);
                        wall::chosen(PATIENCE);
                    }
                }
            }
        });
        if refused { None } else { Some(Box::new(InFlight { future, outcome })) }
    }

    fn read(&self) -> Option<String> {
        self.read.as_ref().map(|read| read())
    }

    fn evidence(&self) -> u64 {
        self.evidence
    }

    fn pace(&self) -> Duration {
        self.pace
    }
}

impl Ticket for InFlight {
    fn settle(self: Box<Self>, report: Report) {
        let result = match report {
            Report::Good => Ok(()),
            Report::Bad => Err(Failed::Vendor),
            Report::Excluded | Report::Local => Err(Failed::NotTheirs),
        };
        let told = self.outcome.send(result);
        assert!(told.is_ok(), "the call waits for its outcome");
        RUNTIME.block_on(self.future);
    }
}
