//! Connections: as many at once as are allowed, none that is silent for long, and all of them ended when it is time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;

/// For the head of a request to come in, and for the next one to begin.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// A silent connection is asked whether somebody is there after so long, and ended when nobody says so: 30 s in all.
const ASK_AFTER: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_TIMES: u32 = 3;
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MS: u32 = 30_000;
/// No descriptor is left, or the like: others may end meanwhile.
const AFTER_REFUSAL: Duration = Duration::from_millis(50);

/// That wait to be accepted: all callers of another service that has ended come at once, and each that finds no room is
/// silent for a second before it tries again. The system may allow fewer.
const MOST_UNACCEPTED: u32 = 4096;

/// Listens there, with room for a crowd.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of one that has just ended may linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(MOST_UNACCEPTED)
}

/// Accepts until it is closed. Dropped, everything ends at once.
pub(super) struct Connections {
    accepting: JoinHandle<()>,
    closing: watch::Sender<Option<Instant>>,
    closed: mpsc::Receiver<()>,
}

impl Connections {
    /// Answers what comes in from here on, on `most` connections at once; more wait until one is free.
    pub fn accept(listener: TcpListener, router: Router, most: usize) -> Self {
        let (closing, told) = watch::channel(None);
        let (done, closed) = mpsc::channel(1);
        let accepting = tokio::spawn(async move {
            run(listener, router, most, told).await;
            drop(done);
        });
        Self { accepting, closing, closed }
    }

    /// Takes no more, and lets what is being answered be answered until the deadline.
    pub async fn close(&mut self, deadline: Instant) {
        self.closing.send_replace(Some(deadline));
        // It ends by the deadline itself.
        let _ = self.closed.recv().await;
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn run(listener: TcpListener, router: Router, most: usize, mut told: watch::Receiver<Option<Instant>>) {
    let places = Arc::new(Semaphore::new(most));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let deadline = loop {
        tokio::select! {
            biased;
            deadline = closing(&mut told) => break deadline,
            Some(_) = connections.join_next() => {}
            (place, stream) = next(&listener, &places) => {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_WITHIN)
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
                let watched = graceful.watch(connection);
                connections.spawn(async move {
                    // A connection that breaks is its caller's affair.
                    let _ = watched.await;
                    drop(place);
                });
            }
        }
    };
    drop(listener);
    SystemClock.until(deadline, graceful.shutdown()).await;
    connections.shutdown().await;
}

async fn next(listener: &TcpListener, places: &Arc<Semaphore>) -> (OwnedSemaphorePermit, TcpStream) {
    let place = Arc::clone(places).acquire_owned().await.expect("the places are never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are small, and callers wait for them.
                let _ = stream.set_nodelay(true);
                // Where it cannot be set, a caller that vanished is waited for until its own time is over.
                let _ = notices_who_vanished(&stream);
                return (place, stream);
            }
            Err(error) => {
                tracing::warn!(%error, "call_budget_accept_failed");
                tokio::time::sleep(AFTER_REFUSAL).await;
            }
        }
    }
}

/// A machine that is gone hangs up on nobody: without this its callers would wait on here, and slots be granted to them.
fn notices_who_vanished(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, ASK_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASK_TIMES)?;
    // Nobody is asked while an answer, or an event, is on its way.
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS)?;
    sockopt::set_socket_keepalive(stream, true)
}

async fn closing(told: &mut watch::Receiver<Option<Instant>>) -> Instant {
    match told.wait_for(Option::is_some).await.ok().and_then(|told| *told) {
        Some(deadline) => deadline,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    /// Linux gives 4096 places where it is asked for them; the usual 128 are not enough for the callers of one service.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_crowd_that_comes_at_once_finds_room() {
        const CROWD: usize = 500;
        // Without room the first packet is lost, and the next one comes after a second.
        const AT_ONCE: Duration = Duration::from_millis(900);
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let crowd: Vec<_> = (0..CROWD).map_while(|_| TcpStream::connect_timeout(&address, AT_ONCE).ok()).collect();
        assert_eq!(crowd.len(), CROWD);
    }
}
