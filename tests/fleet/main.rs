//! Fleets of real processes on a real PostgreSQL, judged at the vendor. One at a time: each wants the machine for itself.

#[path = "../support/mod.rs"]
mod support;

mod demo;
mod killed;
mod processes;

use tokio::sync::{Mutex, MutexGuard};

/// Held by the one fleet that runs.
async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}
