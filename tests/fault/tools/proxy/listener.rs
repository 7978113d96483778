//! One proxy of the server: its listener, its toxics and triggers, and what has passed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::connection::{Passed, carry};
use super::pipe::Ending;
use super::toxic::{Placed, Stream};
use super::trigger::{Set, Trigger};

/// What the extension of ours offers beyond the API, of one proxy of the own server.
#[derive(Debug, Clone)]
pub struct OwnProxy(pub(super) Arc<Proxy>);

/// What went through a proxy since it was made. Bytes are those handed to the receiver's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    pub accepted: u64,
    pub open: usize,
    pub upstream_bytes: u64,
    pub downstream_bytes: u64,
}

impl OwnProxy {
    /// Sets a trigger, on open connections too. It stays until [`Armed::disarm`], also when the handle is dropped.
    pub fn arm(&self, trigger: Trigger) -> Armed {
        let set = Set::new(self.0.next_id(), trigger);
        self.0.shape.send_modify(|shape| shape.triggers.push(Arc::clone(&set)));
        Armed { proxy: Arc::clone(&self.0), set }
    }

    pub fn counters(&self) -> Counters {
        Counters {
            accepted: self.0.accepted.load(Ordering::SeqCst),
            open: self.0.open.borrow().len(),
            upstream_bytes: self.0.passed.upstream.load(Ordering::SeqCst),
            downstream_bytes: self.0.passed.downstream.load(Ordering::SeqCst),
        }
    }

    /// Ends every connection that is open, with RST or FIN, and returns when they are closed. New ones are welcome.
    ///
    /// # Errors
    /// They did not close within 5 s.
    pub async fn drop_connections(&self, reset: bool) -> Result<(), String> {
        let old = self.0.open.borrow().clone();
        self.0.shape.send_modify(|shape| {
            shape.drops += 1;
            shape.drop_with = if reset { Ending::Reset } else { Ending::Fin };
        });
        self.wait_for(STOP, |open| open.is_disjoint(&old)).await
    }

    /// Waits until `count` connections are open.
    ///
    /// # Errors
    /// Another number was open after `longest`.
    pub async fn open_connections(&self, count: usize, longest: Duration) -> Result<(), String> {
        self.wait_for(longest, |open| open.len() == count).await
    }

    async fn wait_for(&self, longest: Duration, met: impl FnMut(&BTreeSet<u64>) -> bool) -> Result<(), String> {
        let mut open = self.0.open.subscribe();
        let met = timeout(longest, open.wait_for(met)).await.is_ok();
        let count = self.0.open.borrow().len();
        if met { Ok(()) } else { Err(format!("{count} connections are open after {longest:?}")) }
    }
}

/// A trigger that is set.
#[derive(Debug)]
pub struct Armed {
    proxy: Arc<Proxy>,
    set: Arc<Set>,
}

impl Armed {
    /// On how many connections it has gone off.
    pub fn fired(&self) -> u64 {
        self.set.fired()
    }

    /// Takes the trigger away. What it held goes on its way.
    pub fn disarm(self) {
        self.proxy.shape.send_modify(|shape| shape.triggers.retain(|set| set.id != self.set.id));
    }
}

/// What acts on the connections of a proxy. Each sees the latest.
#[derive(Debug)]
pub(super) struct Shape {
    pub toxics: Vec<Toxified>,
    pub triggers: Vec<Arc<Set>>,
    /// Grows when open connections are to be dropped.
    pub drops: u64,
    pub drop_with: Ending,
}

/// A toxic that was not there before is another one, also under the same name.
#[derive(Debug)]
pub(super) struct Toxified {
    pub id: u64,
    pub placed: Placed,
}

#[derive(Debug)]
pub(super) struct Proxy {
    pub name: String,
    pub shape: watch::Sender<Shape>,
    place: Mutex<Place>,
    running: Mutex<Option<Running>>,
    ids: AtomicU64,
    accepted: AtomicU64,
    open: watch::Sender<BTreeSet<u64>>,
    passed: Arc<Passed>,
}

#[derive(Debug, Clone)]
struct Place {
    listen: String,
    upstream: String,
}

impl Proxy {
    pub fn new(name: String, listen: String, upstream: String) -> Arc<Proxy> {
        let shape = Shape { toxics: Vec::new(), triggers: Vec::new(), drops: 0, drop_with: Ending::Fin };
        Arc::new(Proxy {
            name,
            shape: watch::Sender::new(shape),
            place: Mutex::new(Place { listen, upstream }),
            running: Mutex::new(None),
            ids: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            open: watch::Sender::new(BTreeSet::new()),
            passed: Arc::default(),
        })
    }

    pub fn to_json(&self) -> Value {
        let Place { listen, upstream } = lock(&self.place).clone();
        json!({
            "name": self.name,
            "listen": listen,
            "upstream": upstream,
            "enabled": lock(&self.running).is_some(),
            "toxics": self.toxics(),
        })
    }

    /// Those of the upstream come first, as in toxiproxy.
    pub fn toxics(&self) -> Value {
        let shape = self.shape.borrow();
        let of = |stream| shape.toxics.iter().map(|toxic| &toxic.placed).filter(move |placed| placed.stream == stream);
        of(Stream::Upstream).chain(of(Stream::Downstream)).map(Placed::to_json).collect()
    }

    pub fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::SeqCst)
    }

    /// Opens the listener, unless it is open. A port of 0 becomes the one that was found, and stays.
    pub async fn start(self: &Arc<Self>) -> Result<(), String> {
        if lock(&self.running).is_some() {
            return Ok(());
        }
        let Place { listen, upstream } = lock(&self.place).clone();
        let at = if listen.is_empty() { "127.0.0.1:0" } else { &listen };
        let listener = TcpListener::bind(at).await.map_err(|error| format!("listen tcp {at}: {error}"))?;
        let found = listener.local_addr().map_err(|error| error.to_string())?;
        lock(&self.place).listen = found.to_string();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept(Arc::clone(self), listener, upstream, stopped));
        *lock(&self.running) = Some(Running { stop: Some(stop), task });
        Ok(())
    }

    /// Closes the listener and its connections, and returns when they are closed.
    pub async fn stop(&self) -> Result<(), String> {
        let Some(mut running) = lock(&self.running).take() else { return Ok(()) };
        running.stop = None;
        match timeout(STOP, &mut running.task).await {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("the proxy {} did not stop within {STOP:?}", self.name)),
        }
    }

    /// The same without waiting: for a drop.
    pub fn abort(&self) {
        lock(&self.running).take();
    }

    /// Moves it. Its connections end.
    pub async fn place(&self, listen: Option<&str>, upstream: Option<&str>) -> Result<(), String> {
        let mut new = lock(&self.place).clone();
        new.listen = listen.unwrap_or(&new.listen).to_owned();
        new.upstream = upstream.unwrap_or(&new.upstream).to_owned();
        let old = lock(&self.place).clone();
        if old.listen != new.listen || old.upstream != new.upstream {
            self.stop().await?;
            *lock(&self.place) = new;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Running {
    /// Dropped: stop.
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Owns the listener and all connections: they end with it.
async fn accept(proxy: Arc<Proxy>, listener: TcpListener, upstream: String, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    proxy.accepted.fetch_add(1, Ordering::SeqCst);
                    let open = Open::new(&proxy);
                    let carried = carry(client, upstream.clone(), Arc::clone(&proxy.passed), proxy.shape.subscribe());
                    connections.spawn(async move {
                        let _open = open;
                        carried.await;
                    });
                }
                // Out of sockets, most likely: others have to be closed first.
                Err(_) => sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// Counts a connection as open, until its sockets are closed.
struct Open {
    proxy: Arc<Proxy>,
    id: u64,
}

impl Open {
    fn new(proxy: &Arc<Proxy>) -> Open {
        let id = proxy.next_id();
        proxy.open.send_modify(|open| {
            open.insert(id);
        });
        Open { proxy: Arc::clone(proxy), id }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.proxy.open.send_modify(|open| {
            open.remove(&self.id);
        });
    }
}

/// Every value behind these locks is whole at any moment, also where a test panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const STOP: Duration = Duration::from_secs(5);
