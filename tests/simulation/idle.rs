//! Waiting until nobody has anything to do: the runtime is about to park its thread.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// The moment in which the runtime has nothing left to run.
#[derive(Clone, Default)]
pub struct Idle(Arc<Mutex<Option<Waker>>>);

impl Idle {
    /// For the runtime's `on_thread_park`.
    pub fn reached(&self) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Lets everybody run who can.
    pub async fn wait(&self) {
        let mut asked = false;
        poll_fn(|context| {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Woken by anybody else, it goes on waiting.
            if asked && waiting.is_none() {
                return Poll::Ready(());
            }
            asked = true;
            *waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
