//! How programs of the suites are told to end.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. A container's first process ends by no signal that it does not wait for.
pub async fn told_to_end() {
    let mut terminate = signal(SignalKind::terminate()).expect("a signal can be waited for");
    let mut interrupt = signal(SignalKind::interrupt()).expect("a signal can be waited for");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
