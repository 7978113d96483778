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
mod black_hole;
mod body;
mod connection;
mod control;
mod door;
mod heartbeat;
mod limit;
mod report;
mod routes;
mod script;
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
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

pub use arrivals::{Arrival, Note};
pub use black_hole::{BlackHole, Span};
pub use heartbeat::Stall;
pub use limit::Kind;
pub use report::{ClassCount, Report};
pub use script::{Fault, Scripted};
pub use settings::Settings;

use answers::HeaderCase;
use body::Body;
use connection::{Stamped, Stamps};
use door::Door;
use vendor::{Counted, Vendor, happens};

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
        let door = Door::open_at(settings.listen).await?;
        let addr = door.addr();
        let vendor = Arc::new(Vendor::new(settings, header_case));
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(run(Arc::clone(&vendor), door, stopped));
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

    /// Every token issued so far expires now.
    pub fn expire_tokens(&self) {
        self.vendor.expire_tokens();
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
async fn run(vendor: Arc<Vendor>, mut door: Door, mut stopped: oneshot::Receiver<()>) {
    let mut tasks = JoinSet::new();
    tasks.spawn(beat(Arc::clone(&vendor)));
    let mut look = tokio::time::interval(heartbeat::BEAT);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            _ = look.tick() => door.turn(vendor.black_hole() == Some(BlackHole::Refused)),
            stream = door.accept() => match vendor.black_hole() {
                None | Some(BlackHole::Silent) => {
                    tasks.spawn(serve(Arc::clone(&vendor), stream));
                }
                Some(BlackHole::Reset | BlackHole::Refused) => {
                    vendor.turn_away();
                    // Where this fails the socket is already gone, which is what was wanted.
                    let _ = stream.set_zero_linger();
                }
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
) -> Result<Response<Body>, ConnectionOver> {
    let at = stamps.arrival();
    let (head, body) = request.into_parts();
    if head.uri.path().starts_with(control::PREFIX) {
        let body = read(body).await?;
        return Ok(control::answer(vendor, &head, &body));
    }
    let received = vendor.receive(at, &head, routes::counted(head.uri.path()));
    let body = read(body).await?;
    match received.fault() {
        Some(Fault::Reset) => {
            stamps.reset_on_drop();
            return Err(ConnectionOver);
        }
        // Until the client hangs up or the server stops: both drop this future.
        Some(Fault::Hang) => std::future::pending().await,
        None => {}
    }
    let tr_id = head.headers.get("tr_id");
    let response = match &received.scripted {
        Some(script) => vendor.header_case.dress_scripted(script, tr_id, received.counted == Counted::AsTokenAttempt),
        None => vendor.header_case.dress(routes::answer(vendor, &received, &head, &body), tr_id),
    };
    if happens(received.settings.late_answer) {
        SystemClock.sleep_until(SystemClock.now() + received.settings.late_by).await;
    }
    Ok(response)
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
pub struct ConnectionOver;

impl fmt::Display for ConnectionOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mock vendor ended the connection")
    }
}

impl std::error::Error for ConnectionOver {}
