//! The vendor: who receives what callers send, and stamps when it came.
//!
//! On a thread and a runtime of its own, so that a stall of the callers' runtime is not its own. Its heartbeat says when it
//! stood still itself: a late arrival in such a moment says nothing about the caller.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::judge::{Arrival, JITTER_US, Span};

/// A running receiver; it ends with this value.
pub struct Vendor {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    /// By the number of their round.
    arrivals: HashMap<u64, Vec<Arrival>>,
    stalls: Vec<Span>,
}

impl Vendor {
    pub fn start() -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let address = listener.local_addr().expect("a listener has an address");
        let thread = std::thread::Builder::new().name("vendor".into()).spawn({
            let seen = Arc::clone(&seen);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    tokio::spawn(heartbeat(Arc::clone(&seen)));
                    tokio::select! {
                        () = receive(listener, seen) => {}
                        _ = stopped => {}
                    }
                });
            }
        });
        Self { address, seen, stop: Some(stop), thread: Some(thread.expect("a thread")) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has come of a round so far.
    pub fn arrivals(&self, round: u64) -> Vec<Arrival> {
        lock(&self.seen).arrivals.get(&round).cloned().unwrap_or_default()
    }

    /// When the receiver itself stood still.
    pub fn stalls(&self) -> Vec<Span> {
        lock(&self.seen).stalls.clone()
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The way to the vendor, opened before any fault: sending is one write.
pub struct Wire {
    stream: Mutex<TcpStream>,
    round: u64,
}

impl Wire {
    pub fn open(vendor: SocketAddr, round: u64) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&vendor, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        Ok(Self { stream: Mutex::new(stream), round })
    }

    pub fn send(&self, nonce: u64) -> io::Result<()> {
        let mut message = [0; MESSAGE];
        message[..8].copy_from_slice(&self.round.to_be_bytes());
        message[8..].copy_from_slice(&nonce.to_be_bytes());
        lock(&self.stream).write_all(&message)
    }
}

/// The machine's clock, as the library reads it.
pub fn now_us() -> u64 {
    u64::try_from(SystemClock.now().since_boot().as_micros()).unwrap_or(u64::MAX)
}

/// The round's number and the nonce.
const MESSAGE: usize = 16;
const BEAT: Duration = Duration::from_millis(10);

async fn receive(listener: std::net::TcpListener, seen: Arc<Mutex<Seen>>) {
    let listener = TcpListener::from_std(listener).expect("a listener of the runtime");
    loop {
        match listener.accept().await {
            Ok((mut stream, _)) => {
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let mut message = [0; MESSAGE];
                    while let Ok(first) = stream.read(&mut message).await
                        && first > 0
                    {
                        let at_us = now_us();
                        if first < MESSAGE && stream.read_exact(&mut message[first..]).await.is_err() {
                            return;
                        }
                        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
                        let arrival = Arrival { at_us, nonce: number(&message[8..]) };
                        lock(&seen).arrivals.entry(number(&message[..8])).or_default().push(arrival);
                    }
                });
            }
            // No file descriptor left, in a case that uses them up: the caller waits in the backlog.
            Err(_) => tokio::time::sleep(BEAT).await,
        }
    }
}

async fn heartbeat(seen: Arc<Mutex<Seen>>) {
    loop {
        let due_us = now_us() + BEAT.as_micros() as u64;
        tokio::time::sleep(BEAT).await;
        let to_us = now_us();
        if to_us > due_us + JITTER_US {
            lock(&seen).stalls.push(Span { from_us: due_us, to_us });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
