//! A plain pool, as one process has: whoever comes first gets the next connection that is free.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::load::Caller;
use crate::Outcome;

/// What brings one grant with one request, or with one transaction.
pub trait Connection: Send + 'static {
    /// One grant under the key of this number, which counts from 0.
    fn grant(&mut self, key: usize) -> impl Future<Output = Outcome<()>> + Send;
}

pub struct Pool<T> {
    free: Mutex<Vec<T>>,
    turns: Semaphore,
}

impl<T: Connection> Pool<T> {
    pub fn new(connections: Vec<T>) -> Self {
        Self { turns: Semaphore::new(connections.len()), free: Mutex::new(connections) }
    }
}

impl<T: Connection> Caller for Pool<T> {
    async fn grant(&self, _task: usize, key: usize) -> Outcome<()> {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let _turn = self.turns.acquire().await?;
        let mut connection = free().pop().ok_or("a connection was lost")?;
        connection.grant(key).await?;
        free().push(connection);
        Ok(())
    }
}
