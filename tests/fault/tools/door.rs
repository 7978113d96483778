//! Another address of a server: a listener that passes everything on, and what can go wrong with such an address. It moves,
//! it dies, it forgets its connections, or nobody answers there at all.
//!
//! Plain forwarding within the test's own runtime, for loopback addresses that no proxy outside could be told to listen on.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Somebody who listens, and passes everything on. Dropped, nobody listens there and its connections are reset.
pub struct Door {
    address: SocketAddr,
    shared: Arc<Shared>,
    listens: JoinHandle<()>,
}

/// What happens to the connections that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Pass,
    /// Nothing goes through any more, either way.
    Forget,
    Reset,
}

struct Shared {
    leads_to: Mutex<SocketAddr>,
    delay: Mutex<Duration>,
    /// For those that come from now on.
    orders: Mutex<watch::Sender<Order>>,
    /// For those that were forgotten.
    forgotten: Mutex<Vec<watch::Sender<Order>>>,
    open: AtomicUsize,
    came: AtomicUsize,
}

impl Door {
    /// Listens on `address` (with port 0: any that is free) and leads to `leads_to`.
    ///
    /// # Panics
    /// Where somebody else listens there.
    pub async fn open(address: SocketAddr, leads_to: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap_or_else(|error| panic!("no door at {address}: {error}"));
        let address = listener.local_addr().expect("the address that was bound");
        let shared = Arc::new(Shared {
            leads_to: Mutex::new(leads_to),
            delay: Mutex::default(),
            orders: Mutex::new(watch::Sender::new(Order::Pass)),
            forgotten: Mutex::default(),
            open: AtomicUsize::new(0),
            came: AtomicUsize::new(0),
        });
        let listens = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Self { address, shared, listens }
    }

    /// The same on a free port of 127.0.0.1.
    pub async fn anywhere(leads_to: SocketAddr) -> Self {
        Self::open((Ipv4Addr::LOCALHOST, 0).into(), leads_to).await
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where those that come from now on are led.
    pub fn lead_to(&self, server: SocketAddr) {
        *lock(&self.shared.leads_to) = server;
    }

    /// How long those that come from now on are connected before anything goes through.
    pub fn delay(&self, delay: Duration) {
        *lock(&self.shared.delay) = delay;
    }

    /// Nothing goes through the connections that are open now, without a word, as when a NAT forgets them. New ones are well.
    pub fn forget(&self) {
        let orders = std::mem::replace(&mut *lock(&self.shared.orders), watch::Sender::new(Order::Pass));
        orders.send_replace(Order::Forget);
        lock(&self.shared.forgotten).push(orders);
    }

    /// Resets the connections that are open now, on both sides. New ones are well.
    pub fn reset(&self) {
        let orders = std::mem::replace(&mut *lock(&self.shared.orders), watch::Sender::new(Order::Pass));
        orders.send_replace(Order::Reset);
        for forgotten in lock(&self.shared.forgotten).drain(..) {
            forgotten.send_replace(Order::Reset);
        }
    }

    /// How many connections are open.
    pub fn links(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many have come since the start.
    pub fn came(&self) -> usize {
        self.shared.came.load(Ordering::SeqCst)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.listens.abort();
        self.reset();
    }
}

/// An address where nobody answers, not even with a refusal: whoever listens there has no room for another connection, so
/// that the kernel drops every attempt. As a machine that is down, or behind a firewall.
pub struct Hole {
    address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl Hole {
    /// # Panics
    /// Where somebody else listens there, or the system answers all the same.
    pub async fn dig(address: SocketAddr) -> Self {
        const FILLED: usize = 16;
        const SILENT: Duration = Duration::from_millis(100);
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option of every socket");
        socket.bind(address).unwrap_or_else(|error| panic!("no hole at {address}: {error}"));
        let listener = socket.listen(0).expect("a bound socket listens");
        let address = listener.local_addr().expect("the address that was bound");
        let mut waiting = Vec::new();
        while let Ok(connected) = timeout(SILENT, TcpStream::connect(address)).await {
            waiting.push(connected.expect("it is not refused"));
            assert!(waiting.len() < FILLED, "this system accepts connections that nobody has room for");
        }
        Self { address, _listener: listener, _waiting: waiting }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((near, _)) => {
                shared.came.fetch_add(1, Ordering::SeqCst);
                let orders = lock(&shared.orders).subscribe();
                // It outlives this task by its last act, the reset.
                tokio::spawn(link(near, orders, Open::count(&shared)));
            }
            // Out of file descriptors, for one: that is a fault that tests make.
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn link(mut near: TcpStream, mut orders: watch::Receiver<Order>, open: Open) {
    let leads_to = *lock(&open.0.leads_to);
    let delay = *lock(&open.0.delay);
    let mut far = None;
    let pass = async {
        sleep(delay).await;
        let far = far.insert(TcpStream::connect(leads_to).await?);
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        copy_bidirectional(&mut near, far).await.map(drop)
    };
    let done = tokio::select! {
        done = pass => Some(done),
        () = ordered(&mut orders, |order| order != Order::Pass) => None,
    };
    // Forgotten: the kernel goes on acknowledging what is sent, and nobody reads it.
    if done.is_none() {
        ordered(&mut orders, |order| order == Order::Reset).await;
    }
    let reset = done.is_none_or(|done| done.is_err());
    if reset {
        for stream in [Some(near), far].into_iter().flatten() {
            let _ = stream.set_zero_linger();
        }
    }
}

/// Waits for such an order; that there is no door any more is one too.
async fn ordered(orders: &mut watch::Receiver<Order>, wanted: fn(Order) -> bool) {
    let _ = orders.wait_for(|order| wanted(*order)).await;
}

/// One more is open, until it is dropped.
struct Open(Arc<Shared>);

impl Open {
    fn count(shared: &Arc<Shared>) -> Self {
        shared.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
