//! Stage `connect`: a socket to the first address that answers.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, UnixStream};

use super::{Failing, StoreError, descriptors};
use crate::clock::Clock;
use crate::policy::stage::Stage;

/// The next address is tried when the one before has been silent for this long, or has failed.
const STAGGER: Duration = Duration::from_millis(250);

/// A silent address is dialled anew this often, and this many times at once: the kernel repeats a lost SYN only after 1 s,
/// which is all that a store call has.
const REDIAL: Duration = Duration::from_millis(250);
const DIALS: usize = 4;

/// A second line behind the deadline of each call: a half-open connection is noticed by the kernel within 2 s, and only by
/// both together (keepalives are not sent while data is unacknowledged).
const KEEPALIVE: Duration = Duration::from_secs(1);
const KEEPALIVES: u32 = 2;
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(2);

/// One place where the store may answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Tcp {
        /// As the settings name it: what the server's certificate must be for.
        host: Arc<str>,
        address: SocketAddr,
    },
    Socket(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp { host, address } if **host == address.ip().to_string() => write!(f, "{address}"),
            Target::Tcp { host, address } => write!(f, "{host}:{} ({})", address.port(), address.ip()),
            Target::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A stream of bytes, whatever carries it.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Connects to the first of `targets` that answers. They are tried in order, one more every quarter of a second.
pub(super) async fn connect<C: Clock>(clock: &C, targets: &[Target]) -> Result<(Box<dyn Duplex>, Target), StoreError> {
    let mut waiting = targets.iter();
    let mut attempts = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        match waiting.next() {
            Some(target) => attempts.push(open(clock, target)),
            None if attempts.is_empty() => return Err(refused(&failures)),
            None => {}
        }
        let stagger = clock.now() + STAGGER;
        tokio::select! {
            biased;
            Some((target, opened)) = attempts.next() => match opened {
                Ok(stream) => return Ok((stream, target.clone())),
                Err(error) => failures.push((target, error)),
            },
            () = clock.sleep_until(stagger), if waiting.len() > 0 => {}
        }
    }
}

type Opening<'a> = Pin<Box<dyn Future<Output = (&'a Target, io::Result<Box<dyn Duplex>>)> + Send + 'a>>;

fn open<'a, C: Clock>(clock: &'a C, target: &'a Target) -> Opening<'a> {
    Box::pin(async move {
        let opened = match target {
            Target::Tcp { address, .. } => open_tcp(clock, *address).await,
            Target::Socket(path) => UnixStream::connect(path).await.map(|stream| Box::new(stream) as Box<dyn Duplex>),
        };
        (target, opened)
    })
}

/// The first word from there counts, yes or no, whichever of the dials it answers.
async fn open_tcp<C: Clock>(clock: &C, address: SocketAddr) -> io::Result<Box<dyn Duplex>> {
    let mut dials = FuturesUnordered::new();
    loop {
        if dials.len() < DIALS {
            dials.push(dial(address));
        }
        let again = clock.now() + REDIAL;
        tokio::select! {
            biased;
            Some(dialled) = dials.next() => return dialled,
            () = clock.sleep_until(again) => {}
        }
    }
}

async fn dial(address: SocketAddr) -> io::Result<Box<dyn Duplex>> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVES)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(&socket, u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX))?;
    Ok(Box::new(socket.connect(address).await?))
}

fn refused(failures: &[(&Target, io::Error)]) -> StoreError {
    if let Some((target, _)) = failures.iter().find(|(_, error)| descriptors::used_up(error)) {
        let message = format!("no connection to {target}: {}", descriptors::USED_UP);
        return StoreError::new(Stage::Connect, Failing::Unavailable, message);
    }
    let mut seen = HashSet::new();
    let each: Vec<_> = failures
        .iter()
        .map(|(target, error)| format!("{target}: {}", reason(error)))
        .filter(|line| seen.insert(line.clone()))
        .collect();
    let by_socket = failures.iter().all(|(target, _)| matches!(target, Target::Socket(_)));
    let setting = if by_socket { "unix_socket_directories" } else { "listen_addresses" };
    let message =
        format!("no connection to {}: check that PostgreSQL runs there, and its port and {setting}", each.join(", "));
    StoreError::new(Stage::Connect, Failing::Unavailable, message)
}

/// The kernel's reason without its number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused".into(),
        io::ErrorKind::NotFound => "no such socket".into(),
        io::ErrorKind::TimedOut => "no answer, a firewall may be in between".into(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "no way there from this machine".into(),
        _ => match error.to_string().split_once(" (os error ") {
            Some((words, _)) => words.to_owned(),
            None => error.to_string(),
        },
    }
}
