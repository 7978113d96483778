//! A KIS-like vendor over real HTTP/1.1 that counts what arrives: for the demo, the tests, and users' own tests.
//!
//! It promises that every request is logged with the time of its first byte on the machine's clock, and that the worst
//! window is computed from that log, whatever kind of window it enforces. It admits when it cannot tell: its heartbeat
//! records when it did not run itself. Beyond that it has the vendor's manners, good and bad: limits, token rules,
//! header case, hanging, resets. It holds no acquire logic, and every arrival stays in memory until it is told to
//! forget. A request whose head never becomes complete is not an arrival.
//!
//! The heartbeat shares the runtime with the sockets. On a runtime of one thread, as the command uses, no call can be
//! read late without the heart beating late.
//!
//! Tokens are checked only if a setting says so: a fleet with an obviously fake key calls without ceremony.

mod answers;
mod arrivals;
mod connection;
mod control;
mod heartbeat;
mod limit;
mod report;
mod routes;
mod settings;
mod tokens;
mod vendor;
mod windows;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

pub use arrivals::{Arrival, Note};
pub use heartbeat::Stall;
pub use limit::Kind;
pub use report::{ClassCount, Report};
pub use settings::Settings;

use answers::HeaderCase;
use connection::{Stamped, Stamps};
use vendor::{Vendor, happens};

use crate::clock::{Clock, SystemClock};

/// A running mock vendor. It ends with [`MockVendor::stop`], or at once when dropped.
#[derive(Debug)]
pub struct MockVendor {
    vendor: Arc<Vendor>,
    addr: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl MockVendor {
    /// Starts a vendor on the current tokio runtime.
    ///
    /// # Errors
    /// The address cannot be bound, or a setting makes no sense (`InvalidInput`, with one sentence).
    pub async fn start(settings: Settings) -> io::Result<MockVendor> {
        settings.check().map_err(|sentence| io::Error::new(io::ErrorKind::InvalidInput, sentence))?;
        let header_case = HeaderCase::learn().await.map_err(io::Error::other)?;
        let listener = TcpListener::bind(settings.listen).await?;
        let addr = listener.local_addr()?;
        let vendor = Arc::new(Vendor::new(settings, header_case));
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(run(Arc::clone(&vendor), listener, stopped));
        Ok(MockVendor { vendor, addr, stop, running })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The figures until now.
    pub fn report(&self) -> Report {
        self.vendor.report()
    }

    /// The arrivals until now, in their order.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.vendor.arrivals()
    }

    /// Changes the settings for the requests that come from now on. The address stays what it is.
    ///
    /// # Errors
    /// One sentence on a value that makes no sense; then nothing has changed.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) -> Result<(), String> {
        self.vendor.change(|settings| {
            let mut settings = settings.clone();
            change(&mut settings);
            settings.check()?;
            Ok(settings)
        })
    }

    /// Ends every connection and returns when nothing is left.
    pub async fn stop(self) {
        // Either of the two fails only when the task is already gone.
        let _ = self.stop.send(());
        let _ = self.running.await;
    }
}

/// Everything the server does, as one task that owns the others: when it ends or is dropped, so do they. It also ends
/// when the sender of `stopped` is dropped.
async fn run(vendor: Arc<Vendor>, listener: TcpListener, mut stopped: oneshot::Receiver<()>) {
    let mut tasks = JoinSet::new();
    tasks.spawn(beat(Arc::clone(&vendor)));
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tasks.spawn(serve(Arc::clone(&vendor), stream));
                }
                // Out of sockets, most likely: others have to be closed first.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    tasks.shutdown().await;
}

async fn beat(vendor: Arc<Vendor>) {
    let mut due = tokio::time::interval(heartbeat::BEAT);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        vendor.beat();
    }
}

async fn serve(vendor: Arc<Vendor>, stream: TcpStream) {
    // Small answers should not wait for company; where it cannot be set they are merely slower.
    let _ = stream.set_nodelay(true);
    let (stream, stamps) = Stamped::new(stream);
    let service = service_fn(|request| answer(&vendor, &stamps, request));
    // How a connection ends is the client's affair; every request on it is in the log.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    vendor: &Vendor,
    stamps: &Stamps,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, ConnectionOver> {
    let at = stamps.arrival();
    let (head, body) = request.into_parts();
    if head.uri.path().starts_with(control::PREFIX) {
        let body = read(body).await?;
        return Ok(control::answer(vendor, &head, &body));
    }
    let received = vendor.receive(at, &head.headers, routes::counted(head.uri.path()));
    let body = read(body).await?;
    let settings = &received.settings;
    if happens(settings.reset) {
        stamps.reset_on_drop();
        return Err(ConnectionOver);
    }
    if happens(settings.hang) {
        // Until the client hangs up or the server stops: both drop this future.
        std::future::pending::<()>().await;
    }
    let answer = routes::answer(vendor, &received, &head, &body);
    if happens(settings.late_answer) {
        SystemClock.sleep_until(SystemClock.now() + settings.late_by).await;
    }
    Ok(vendor.header_case.dress(answer, head.headers.get("tr_id")))
}

/// The whole body, as far as a call's body can be long or take long.
async fn read(body: Incoming) -> Result<Bytes, ConnectionOver> {
    const LONGEST: usize = 64 * 1024;
    const SLOWEST: Duration = Duration::from_secs(10);
    let deadline = SystemClock.now() + SLOWEST;
    match SystemClock.until(deadline, Limited::new(body, LONGEST).collect()).await {
        Some(Ok(body)) => Ok(body.to_bytes()),
        Some(Err(_)) | None => Err(ConnectionOver),
    }
}

/// There is nothing to answer: the connection ends.
#[derive(Debug)]
struct ConnectionOver;

impl fmt::Display for ConnectionOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mock vendor ended the connection")
    }
}

impl std::error::Error for ConnectionOver {}
