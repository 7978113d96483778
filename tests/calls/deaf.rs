//! A store that grants, and never answers a report of a pushback.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use call_budget::store::{Ask, Progress, Reply, Store, StoreError};
use call_budget::test_util::{ManualClock, MemoryStore};

pub struct Deaf(pub MemoryStore<ManualClock>);

impl Store for Deaf {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        self.0.acquire(ask, progress).await
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        self.0.probe(progress).await
    }

    async fn fence(&self, budget: &str, progress: &Arc<Progress>) -> Result<bool, StoreError> {
        self.0.fence(budget, progress).await
    }

    async fn report_pushback(&self, _: &str, _: Duration, _: &str, _: &Arc<Progress>) -> Result<Duration, StoreError> {
        pending().await
    }
}
