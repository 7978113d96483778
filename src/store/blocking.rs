//! Work that may block a thread, such as reading a file that lies on a network: one piece at a time, whoever gives up waiting.

use tokio::sync::Mutex;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

/// A thread cannot be taken back. Where one hangs, whoever comes next waits for what it brings, and starts no other.
pub(super) struct Blocking<T>(Mutex<Option<JoinHandle<T>>>);

impl<T> Default for Blocking<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + 'static> Blocking<T> {
    /// What `work` brings, or what the same work of somebody who gave up has brought.
    pub async fn run(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let mut running = self.0.lock().await;
        let done = running.get_or_insert_with(|| spawn_blocking(work)).await;
        *running = None;
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, SystemClock};

    #[tokio::test]
    async fn work_that_hangs_takes_one_thread_however_often_it_is_given_up() {
        let (blocking, started) = (Blocking::default(), Arc::new(AtomicUsize::new(0)));
        let (release, hangs) = channel::<()>();
        let hangs = Arc::new(std::sync::Mutex::new(hangs));
        let work = || {
            let (started, hangs) = (Arc::clone(&started), Arc::clone(&hangs));
            move || {
                started.fetch_add(1, Ordering::SeqCst);
                hangs.lock().map(|hangs| hangs.recv()).is_ok()
            }
        };
        for _ in 0..3 {
            let deadline = SystemClock.now() + Duration::from_millis(20);
            assert!(SystemClock.until(deadline, blocking.run(work())).await.is_none());
        }
        release.send(()).unwrap();
        assert!(blocking.run(work()).await.unwrap());
        assert_eq!(started.load(Ordering::SeqCst), 1);
    }
}
