//! A PostgreSQL server that misbehaves on order.
//!
//! It speaks as much of protocol 3.0 as the store path needs: the TLS request, startup, a password in clear text, simple
//! queries, and one unnamed statement with parameters up to Sync. Left alone it is a store that is well and grants every
//! asker the same wait: it keeps no budget, so it says nothing about the limit. A [`Script`] changes what it does at a
//! [`Step`], for everybody, for one connection or for one acquire, and may be changed while it runs. What it saw is kept.
//!
//! It runs in a thread and a runtime of its own, so that a test may stall its runtime. When the value is dropped the thread
//! has ended and every socket is closed.

#![allow(unused_imports, reason = "each test binary uses its part")]

mod answer;
mod script;
mod session;
mod stream;
mod wire;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

pub use answer::{Column, Row, Value};
pub use script::{Act, Kind, Point, Report, Script, Step};

/// The running server.
pub struct ScriptedPostgres {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The arguments of `call_budget_acquire`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub budget: String,
    pub class: String,
    pub lane: i64,
    pub costs: Vec<i32>,
    pub patience_us: i64,
    pub nonce: i64,
}

/// A query that was read to its end.
#[derive(Clone, Debug)]
pub struct Query {
    /// The connection's number; the first is 1.
    pub connection: usize,
    pub kind: Kind,
    pub sql: String,
    /// The arguments, where it is a probe or an acquire.
    pub ask: Option<Ask>,
    pub arrived: Instant,
    /// The server's clock, in microseconds, when the query arrived.
    pub store_us: i64,
}

/// A connection, open or over.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The first is 1.
    pub number: usize,
    pub opened: Instant,
    /// Name and value, in the order they came. Empty as long as no startup message was read.
    pub parameters: Vec<(String, String)>,
    /// The TLS handshake was completed.
    pub tls: bool,
    /// Bytes from the client, within TLS where that is on.
    pub bytes: usize,
    pub closed: Option<(Instant, Closing)>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The client said goodbye (Terminate).
    Terminated,
    /// The client closed without a word.
    Left,
    /// The client's side was reset, or its bytes could not be read.
    Broken,
    /// The script closed it, or it was a CancelRequest.
    Here,
}

impl ScriptedPostgres {
    /// A server without TLS on a free loopback port: it answers `N` to a TLS request.
    pub fn start() -> Self {
        Self::launch(None)
    }

    /// A server with TLS: the certificate (with its chain) and the key (PKCS#8) as PEM.
    pub fn start_with_tls(certificate: &[u8], key: &[u8]) -> Self {
        let identity = native_tls::Identity::from_pkcs8(certificate, key).expect("a certificate and its key, as PEM");
        let acceptor = native_tls::TlsAcceptor::new(identity).expect("TLS with this certificate");
        Self::launch(Some(acceptor.into()))
    }

    fn launch(tls: Option<tokio_native_tls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let address = listener.local_addr().expect("the port that was bound");
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            released: watch::Sender::new(()),
            to_idle: watch::Sender::new(None),
            tls,
            started: Instant::now(),
        });
        let (stop, stopped) = oneshot::channel();
        let serving = shared.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("the listener");
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, serving) => {}
                }
            });
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What everybody gets from now on, also on connections that are open.
    pub fn always(&self, script: Script) {
        self.state().always = script;
    }

    /// What connection `number` (from 1) gets instead, also if it is open.
    pub fn on_connection(&self, number: usize, script: Script) {
        self.state().connections.insert(number, script);
    }

    /// What the next `count` connections get instead.
    pub fn next_connections(&self, count: usize, script: &Script) {
        let mut state = self.state();
        let seen = state.seen.len();
        state.connections.extend((seen + 1..=seen + count).map(|number| (number, script.clone())));
    }

    /// What the acquire `number` (from 1, over all connections, probes not counted) gets instead.
    pub fn on_acquire(&self, number: usize, script: Script) {
        self.state().acquires.insert(number, script);
    }

    /// What the next `count` acquires get instead.
    pub fn next_acquires(&self, count: usize, script: &Script) {
        let mut state = self.state();
        let seen = state.acquires_seen;
        state.acquires.extend((seen + 1..=seen + count).map(|number| (number, script.clone())));
    }

    /// How far from now the slots lie that it grants. 0 until it is set.
    pub fn wait(&self, wait: Duration) {
        self.state().wait = wait;
    }

    /// The password that a login needs from now on; none where it is `None`.
    pub fn password(&self, password: Option<&str>) {
        self.state().password = password.map(str::to_owned);
    }

    /// The server's clock is this much further from now on, or further back.
    pub fn step_clock(&self, us: i64) {
        self.state().clock_step_us += us;
    }

    /// Everybody who is held by [`Act::Silence`] goes on from there.
    pub fn release(&self) {
        self.shared.released.send_replace(());
    }

    /// What happens now to every session that waits for its next query.
    pub fn to_idle(&self, act: Act) {
        self.shared.to_idle.send_replace(Some(act));
    }

    pub fn open_connections(&self) -> usize {
        self.state().open()
    }

    /// The most that were open at one time.
    pub fn max_open_connections(&self) -> usize {
        self.state().max_open
    }

    /// Every connection since the start, CancelRequests among them.
    pub fn connections(&self) -> Vec<Connection> {
        self.state().seen.clone()
    }

    /// Every query since the start.
    pub fn queries(&self) -> Vec<Query> {
        self.state().queries.clone()
    }

    /// The acquires for a budget among them, in the order of their numbers.
    pub fn acquires(&self) -> Vec<Query> {
        self.state().queries.iter().filter(|query| query.kind == Kind::Acquire).cloned().collect()
    }

    pub fn cancel_requests(&self) -> usize {
        self.state().cancel_requests
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for ScriptedPostgres {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the scripted server's thread broke");
        }
    }
}

/// What the sessions share with the test.
struct Shared {
    state: Mutex<State>,
    released: watch::Sender<()>,
    to_idle: watch::Sender<Option<Act>>,
    tls: Option<tokio_native_tls::TlsAcceptor>,
    started: Instant,
}

#[derive(Default)]
struct State {
    always: Script,
    connections: HashMap<usize, Script>,
    acquires: HashMap<usize, Script>,
    wait: Duration,
    password: Option<String>,
    clock_step_us: i64,
    seen: Vec<Connection>,
    queries: Vec<Query>,
    acquires_seen: usize,
    max_open: usize,
    cancel_requests: usize,
}

impl State {
    fn open(&self) -> usize {
        self.seen.iter().filter(|connection| connection.closed.is_none()).count()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> usize {
        let mut state = self.state();
        let number = state.seen.len() + 1;
        state.seen.push(Connection {
            number,
            opened: Instant::now(),
            parameters: Vec::new(),
            tls: false,
            bytes: 0,
            closed: None,
        });
        state.max_open = state.max_open.max(state.open());
        number
    }

    fn note(&self, connection: usize, note: impl FnOnce(&mut Connection)) {
        note(&mut self.state().seen[connection - 1]);
    }

    /// Keeps the query. Also its number, where it is an acquire.
    fn asked(&self, connection: usize, kind: Kind, sql: String, ask: Option<Ask>) -> (Query, Option<usize>) {
        let arrived = Instant::now();
        let mut state = self.state();
        let running_us = i64::try_from(arrived.duration_since(self.started).as_micros()).expect("a short test");
        let store_us = SOME_DATE_US + running_us + state.clock_step_us;
        let query = Query { connection, kind, sql, ask, arrived, store_us };
        state.queries.push(query.clone());
        if kind == Kind::Acquire {
            state.acquires_seen += 1;
        }
        (query, (kind == Kind::Acquire).then_some(state.acquires_seen))
    }

    /// The narrowest script that applies: the acquire's, the connection's, everybody's.
    fn script(&self, connection: usize, acquire: Option<usize>) -> Script {
        let state = self.state();
        let own = acquire.and_then(|number| state.acquires.get(&number));
        own.or_else(|| state.connections.get(&connection)).unwrap_or(&state.always).clone()
    }
}

async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let number = shared.opened();
                tokio::spawn(session::serve(socket, number, shared.clone()));
            }
            // Out of file descriptors, for one: that is a fault that tests make.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Where the server's clock starts: some day of 2027.
const SOME_DATE_US: i64 = 1_800_000_000_000_000;
