//! Connections: as many at once as are allowed, none that is silent for long or whose caller is gone, and all of them ended
//! when it is time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
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
/// From the sign that a caller has closed its side, until it counts as gone: what can be answered at once still is.
const GONE_AFTER: Duration = Duration::from_millis(250);
/// For what was answered to be on its way, before a connection that has no whole request is ended.
const UNFINISHED_FOR: Duration = Duration::from_millis(250);

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
    let mut is_failing = false;
    let deadline = loop {
        tokio::select! {
            biased;
            deadline = closing(&mut told) => break deadline,
            Some(_) = connections.join_next() => {}
            (place, stream) = next(&listener, &places, &mut is_failing) => {
                let (stream, answering) = (Arc::new(stream), Arc::<AtomicUsize>::default());
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_WITHIN)
                    .serve_connection(TokioIo::new(Shared(Arc::clone(&stream))), counted(&router, &answering));
                let watched = graceful.watch(connection);
                let mut told = told.clone();
                connections.spawn(async move {
                    // A connection that breaks is its caller's affair.
                    tokio::select! {
                        _ = watched => {}
                        () = gone(&stream) => {}
                        () = unfinished(&mut told, &answering) => {}
                    }
                    drop(place);
                });
            }
        }
    };
    drop(listener);
    SystemClock.until(deadline, graceful.shutdown()).await;
    connections.shutdown().await;
}

async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    is_failing: &mut bool,
) -> (OwnedSemaphorePermit, TcpStream) {
    let place = Arc::clone(places).acquire_owned().await.expect("the places are never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if std::mem::take(is_failing) {
                    tracing::info!("call_budget_accept_recovered");
                }
                // Answers are small, and callers wait for them.
                let _ = stream.set_nodelay(true);
                // Where it cannot be set, a caller that vanished is waited for until its own time is over.
                let _ = notices_who_vanished(&stream);
                return (place, stream);
            }
            Err(error) => {
                if !std::mem::replace(is_failing, true) {
                    tracing::warn!(%error, "call_budget_accept_failed");
                }
                tokio::time::sleep(AFTER_REFUSAL).await;
            }
        }
    }
}

type Requests = hyper::Request<hyper::body::Incoming>;
type Responses = axum::response::Response;

/// The router, and how many requests it is answering.
fn counted(
    router: &Router,
    answering: &Arc<AtomicUsize>,
) -> impl Service<Requests, Response = Responses, Error = Infallible, Future: Send> + use<> {
    let (router, answering) = (TowerToHyperService::new(router.clone()), Arc::clone(answering));
    service_fn(move |request| {
        let counted = Counted::new(&answering);
        let answer = router.call(request);
        async move {
            let answer = answer.await;
            drop(counted);
            answer
        }
    })
}

struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Completes when the caller has closed its side or is gone. Who reads for the requests does not see it while bytes of a next
/// request are there, and a caller that waits would keep its place for a day.
async fn gone(stream: &TcpStream) {
    loop {
        let ready = stream.ready(Interest::READABLE).await;
        let is_closed = ready.map_or(true, |ready| ready.is_read_closed());
        tokio::time::sleep(GONE_AFTER).await;
        if is_closed {
            return;
        }
    }
}

/// Completes when it is time to close and no whole request is there to be answered.
async fn unfinished(told: &mut watch::Receiver<Option<Instant>>, answering: &AtomicUsize) {
    closing(told).await;
    tokio::time::sleep(UNFINISHED_FOR).await;
    if answering.load(Ordering::Relaxed) > 0 {
        // It ends with the answer.
        std::future::pending().await
    }
}

/// A stream of which somebody else sees when its caller is gone.
struct Shared(Arc<TcpStream>);

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(into.initialize_unfilled()) {
                Ok(length) => {
                    into.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write).map_err(io::Error::from))
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
