//! A DNS server that misbehaves on order, on UDP and TCP at one port.
//!
//! Each name and type has a [`Reply`], which may be changed while the server runs; a name without any does not exist. What it
//! was asked is kept. It runs in a thread and a runtime of its own, so that a test may stall its runtime. When the value is
//! dropped the thread has ended and every socket is closed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hickory_resolver::proto::op::{Edns, Message, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

/// The running server.
pub struct ScriptedDns {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    tcp_wanted: watch::Sender<bool>,
    /// (In a mutex, so that cases may share the server between their tasks.)
    tcp_switched: Mutex<mpsc::Receiver<()>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a question is answered with.
#[derive(Clone, Debug)]
pub struct Reply {
    what: What,
    delay: Duration,
    truncated: bool,
    wrong_id: bool,
}

#[derive(Clone, Debug)]
enum What {
    Addresses(Vec<IpAddr>, u32),
    Alias(Name, u32),
    Silence,
    No(ResponseCode, u32),
    Garbage,
}

/// A question that came.
#[derive(Clone, Debug)]
pub struct Question {
    /// In lower case, without the dot at its end.
    pub name: String,
    pub record_type: RecordType,
    pub transport: Transport,
    /// The address of the server that was asked.
    pub server: IpAddr,
    pub at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

impl Reply {
    /// The addresses of the type asked for; where there are none of it, the name exists without them (NODATA).
    pub fn addresses(addresses: &[IpAddr], ttl_s: u32) -> Self {
        Self::new(What::Addresses(addresses.to_vec(), ttl_s))
    }

    /// A CNAME, and after it what the target is answered with.
    pub fn alias(target: &str, ttl_s: u32) -> Self {
        Self::new(What::Alias(fully_qualified(target), ttl_s))
    }

    pub fn silence() -> Self {
        Self::new(What::Silence)
    }

    /// No such name, to be remembered for `ttl_s` (by the SOA).
    pub fn no_such_name(ttl_s: u32) -> Self {
        Self::new(What::No(ResponseCode::NXDomain, ttl_s))
    }

    /// The name exists, but not with this type. To be remembered for `ttl_s` (by the SOA).
    pub fn no_data(ttl_s: u32) -> Self {
        Self::new(What::No(ResponseCode::NoError, ttl_s))
    }

    pub fn server_failure() -> Self {
        Self::new(What::No(ResponseCode::ServFail, 0))
    }

    pub fn refused() -> Self {
        Self::new(What::No(ResponseCode::Refused, 0))
    }

    /// The right id, and nothing behind it that could be read.
    pub fn garbage() -> Self {
        Self::new(What::Garbage)
    }

    /// The same, this much later. Other questions do not wait for it.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Over UDP only "too long, ask over TCP"; the whole over TCP.
    #[must_use]
    pub fn truncated(self) -> Self {
        Self { truncated: true, ..self }
    }

    /// The same as the answer to another question's id.
    #[must_use]
    pub fn with_wrong_id(self) -> Self {
        Self { wrong_id: true, ..self }
    }

    fn new(what: What) -> Self {
        Self { what, delay: Duration::ZERO, truncated: false, wrong_id: false }
    }
}

impl ScriptedDns {
    /// A server on a free port of 127.0.0.1.
    pub fn start() -> Self {
        Self::start_on(&[Ipv4Addr::LOCALHOST.into()])
    }

    /// A server on several loopback addresses, at the same free port of each.
    pub fn start_on(servers: &[IpAddr]) -> Self {
        Self::serving((0..ATTEMPTS).find_map(|_| bind(servers, 0)).expect("a port that is free on every address"))
    }

    /// A server at that address.
    ///
    /// # Panics
    /// Somebody else is there.
    pub fn start_at(address: SocketAddr) -> Self {
        let bound = bind(&[address.ip()], address.port());
        Self::serving(bound.unwrap_or_else(|| panic!("{address} cannot be listened on")))
    }

    fn serving(listening: Vec<(UdpSocket, TcpListener)>) -> Self {
        let addresses: Vec<SocketAddr> = listening.iter().map(|(_, tcp)| tcp.local_addr().expect("its port")).collect();
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let tcp_wanted = watch::Sender::new(true);
        let (switched, tcp_switched) = mpsc::channel();
        let (serving, wanted) = (shared.clone(), tcp_wanted.subscribe());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                for (udp, tcp) in listening {
                    let udp = tokio::net::UdpSocket::from_std(udp).expect("the socket");
                    let tcp = tokio::net::TcpListener::from_std(tcp).expect("the listener");
                    tokio::spawn(serve_udp(udp, serving.clone()));
                    tokio::spawn(serve_tcp(tcp, wanted.clone(), switched.clone(), serving.clone()));
                }
                let _ = stopped.await;
            });
        });
        let tcp_switched = Mutex::new(tcp_switched);
        Self { addresses, shared, tcp_wanted, tcp_switched, stop: Some(stop), thread: Some(thread) }
    }

    /// The first address.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What this name is answered with from now on, for this type. Of an address name, A and AAAA are two types.
    pub fn set(&self, name: &str, record_type: RecordType, reply: Reply) {
        self.shared.state().replies.insert((key(&fully_qualified(name)), record_type), reply);
    }

    /// The same for A and AAAA.
    pub fn set_both(&self, name: &str, reply: &Reply) {
        self.set(name, RecordType::A, reply.clone());
        self.set(name, RecordType::AAAA, reply.clone());
    }

    /// What everything asked of this one address is answered with, whatever the name; the names' own replies where it is
    /// `None`.
    pub fn set_server(&self, server: IpAddr, reply: Option<Reply>) {
        let mut state = self.shared.state();
        match reply {
            Some(reply) => state.servers.insert(server, reply),
            None => state.servers.remove(&server),
        };
    }

    /// Whether TCP is answered. Where not, a connection is refused: nobody listens. Done when this returns.
    pub fn tcp(&self, wanted: bool) {
        if self.tcp_wanted.send_replace(wanted) != wanted {
            let switched = self.tcp_switched.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in &self.addresses {
                switched.recv_timeout(Duration::from_secs(5)).expect("TCP is switched");
            }
        }
    }

    /// Everything asked since the start.
    pub fn queries(&self) -> Vec<Question> {
        self.shared.state().queries.clone()
    }
}

impl Drop for ScriptedDns {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the scripted DNS server's thread broke");
        }
    }
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    replies: HashMap<(String, RecordType), Reply>,
    servers: HashMap<IpAddr, Reply>,
    queries: Vec<Question>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the question. What to send, and when, where there is an answer.
    fn answer(&self, request: &[u8], transport: Transport, server: IpAddr) -> Option<(Duration, Vec<u8>)> {
        let request = Message::from_vec(request).ok()?;
        let question = request.queries.first()?;
        let mut state = self.state();
        state.queries.push(Question {
            name: key(question.name()),
            record_type: question.query_type(),
            transport,
            server,
            at: Instant::now(),
        });
        let own = state.servers.get(&server).cloned();
        let reply = own.unwrap_or_else(|| state.reply(question.name(), question.query_type()));
        let mut message = Message::response(request.metadata.id, request.metadata.op_code);
        message.metadata.recursion_desired = request.metadata.recursion_desired;
        message.metadata.recursion_available = true;
        message.add_query(question.clone());
        if request.edns.is_some() {
            message.set_edns(Edns::new());
        }
        if reply.wrong_id {
            message.metadata.id = message.metadata.id.wrapping_add(1);
        }
        match &reply.what {
            What::Silence => return None,
            What::Garbage => return Some((reply.delay, garbage(request.metadata.id))),
            _ => state.fill(&mut message, question, &reply),
        }
        if reply.truncated && transport == Transport::Udp {
            message = message.truncate();
        }
        Some((reply.delay, message.to_vec().expect("a short answer")))
    }
}

impl State {
    fn reply(&self, name: &Name, record_type: RecordType) -> Reply {
        let known = self.replies.get(&(key(name), record_type)).cloned();
        known.unwrap_or_else(|| Reply::no_such_name(SOA_TTL_S))
    }

    /// Follows aliases, as a resolver does for whoever asks it.
    fn fill(&self, message: &mut Message, question: &Query, reply: &Reply) {
        let (mut owner, mut reply) = (question.name().clone(), reply.clone());
        for _ in 0..LONGEST_CHAIN {
            match reply.what {
                What::Alias(target, ttl) => {
                    message.add_answer(Record::from_rdata(owner, ttl, RData::CNAME(CNAME(target.clone()))));
                    reply = self.reply(&target, question.query_type());
                    owner = target;
                }
                What::Addresses(addresses, ttl) => {
                    let before = message.answers.len();
                    for address in addresses {
                        let data = match (address, question.query_type()) {
                            (IpAddr::V4(address), RecordType::A) => RData::A(A(address)),
                            (IpAddr::V6(address), RecordType::AAAA) => RData::AAAA(AAAA(address)),
                            _ => continue,
                        };
                        message.add_answer(Record::from_rdata(owner.clone(), ttl, data));
                    }
                    if message.answers.len() == before {
                        message.add_authority(authority(&owner, ttl));
                    }
                    return;
                }
                What::No(code, ttl) => {
                    message.metadata.response_code = code;
                    if matches!(code, ResponseCode::NXDomain | ResponseCode::NoError) {
                        message.add_authority(authority(&owner, ttl));
                    }
                    return;
                }
                // An alias to a silent name: the chain ends here, and whoever asks goes on by himself.
                What::Silence | What::Garbage => return,
            }
        }
    }
}

async fn serve_udp(socket: tokio::net::UdpSocket, shared: Arc<Shared>) {
    let server = socket.local_addr().expect("its address").ip();
    let socket = Arc::new(socket);
    let mut request = [0; 4096];
    loop {
        // An error is an earlier answer's that nobody was there for any more.
        let Ok((length, asker)) = socket.recv_from(&mut request).await else { continue };
        if let Some((delay, answer)) = shared.answer(&request[..length], Transport::Udp, server) {
            let socket = socket.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let _ = socket.send_to(&answer, asker).await;
            });
        }
    }
}

async fn serve_tcp(
    listener: tokio::net::TcpListener,
    mut wanted: watch::Receiver<bool>,
    switched: mpsc::Sender<()>,
    shared: Arc<Shared>,
) {
    let address = listener.local_addr().expect("its address");
    let mut listener = Some(listener);
    loop {
        let socket = match &listener {
            Some(listener) => tokio::select! {
                accepted = listener.accept() => accepted.ok().map(|(socket, _)| socket),
                Ok(()) = wanted.changed() => None,
                else => return,
            },
            None if wanted.changed().await.is_ok() => None,
            None => return,
        };
        if let Some(socket) = socket {
            tokio::spawn(serve_connection(socket, shared.clone()));
            continue;
        }
        let on = *wanted.borrow_and_update();
        if on != listener.is_some() {
            listener =
                if on { Some(tokio::net::TcpListener::bind(address).await.expect("the port again")) } else { None };
            let _ = switched.send(());
        } else {
            // The accept failed (no file descriptor left, for one): not at once again.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn serve_connection(socket: tokio::net::TcpStream, shared: Arc<Shared>) {
    let Ok(server) = socket.local_addr() else { return };
    let (mut reading, writing) = socket.into_split();
    let writing = Arc::new(tokio::sync::Mutex::new(writing));
    while let Ok(length) = reading.read_u16().await {
        let mut request = vec![0; usize::from(length)];
        if reading.read_exact(&mut request).await.is_err() {
            return;
        }
        if let Some((delay, answer)) = shared.answer(&request, Transport::Tcp, server.ip()) {
            let writing = writing.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let length = u16::try_from(answer.len()).expect("a short answer").to_be_bytes();
                let _ = writing.lock().await.write_all(&[&length[..], &answer].concat()).await;
            });
        }
    }
}

/// UDP and TCP at one port of every address (0: a free one); `None` where somebody else has that port on one of them.
fn bind(servers: &[IpAddr], mut port: u16) -> Option<Vec<(UdpSocket, TcpListener)>> {
    let mut bound = Vec::new();
    for server in servers {
        let tcp = TcpListener::bind((*server, port)).ok()?;
        port = tcp.local_addr().ok()?.port();
        let udp = UdpSocket::bind((*server, port)).ok()?;
        tcp.set_nonblocking(true).ok()?;
        udp.set_nonblocking(true).ok()?;
        bound.push((udp, tcp));
    }
    Some(bound)
}

fn authority(owner: &Name, ttl_s: u32) -> Record {
    let zone = owner.base_name();
    let soa = SOA::new(zone.clone(), zone.clone(), 1, 3600, 600, 86_400, ttl_s);
    Record::from_rdata(zone, ttl_s, RData::SOA(soa))
}

/// A header that claims a question, and no question that can be read.
fn garbage(id: u16) -> Vec<u8> {
    [&id.to_be_bytes()[..], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], &[0xff; 24]].concat()
}

fn fully_qualified(name: &str) -> Name {
    let mut name = Name::from_ascii(name).expect("a host name");
    name.set_fqdn(true);
    name
}

fn key(name: &Name) -> String {
    name.to_ascii().to_lowercase().trim_end_matches('.').to_owned()
}

const ATTEMPTS: usize = 50;
const SOA_TTL_S: u32 = 1;
/// More than any chain of aliases that a test makes, and an end for one that runs in a circle.
const LONGEST_CHAIN: usize = 8;
