//! A vendor on a real socket, which answers as a test says and remembers what came.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What one request is answered with. The connection ends with the answer.
#[derive(Clone, Copy)]
pub enum Reply {
    /// Status and body.
    Whole(u16, &'static str),
    /// A body that ends early.
    Truncated,
    /// The connection ends without an answer.
    Reset,
    /// Nothing, ever.
    Silent,
    /// A head, and never a body.
    HeadOnly,
}

/// A request as it came.
#[derive(Clone)]
pub struct Arrival {
    pub at: Instant,
    /// Request line and headers.
    pub head: String,
    pub body: Vec<u8>,
}

pub struct Vendor {
    pub addr: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    serving: JoinHandle<()>,
}

impl Vendor {
    /// `reply` is told how many requests came before.
    pub async fn start(reply: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, arrivals) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Arrival>>>::default());
        let (kept, reply) = (Arc::clone(&arrivals), Arc::new(reply));
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (kept, reply) = (Arc::clone(&kept), Arc::clone(&reply));
                tokio::spawn(async move { serve(stream, &kept, &*reply).await });
            }
        });
        Self { addr, arrivals, serving }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        locked(&self.arrivals).clone()
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// An address at which nobody listens.
pub async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn serve(mut stream: TcpStream, kept: &Mutex<Vec<Arrival>>, reply: &(dyn Fn(usize) -> Reply + Send + Sync)) {
    let Some(arrival) = read(&mut stream).await else { return };
    let before = {
        let mut kept = locked(kept);
        kept.push(arrival);
        kept.len() - 1
    };
    let head = |status: u16, length: usize| {
        format!(
            "HTTP/1.1 {status} Some Reason\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n"
        )
    };
    let answer = match reply(before) {
        Reply::Whole(status, body) => head(status, body.len()) + body,
        Reply::Truncated => head(200, 100) + "{\"price\":",
        Reply::Reset => return,
        Reply::Silent => std::future::pending().await,
        Reply::HeadOnly => head(200, 100),
    };
    // The client may have gone.
    let _ = stream.write_all(answer.as_bytes()).await;
    if matches!(reply(before), Reply::HeadOnly) {
        std::future::pending().await
    }
}

/// One request, or `None` where the client has gone.
async fn read(stream: &mut TcpStream) -> Option<Arrival> {
    let mut text = Vec::new();
    let head = loop {
        if let Some(at) = text.windows(4).position(|end| end == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut text).await.ok()? == 0 {
            return None;
        }
    };
    let at = Instant::now();
    let body = text.split_off(head);
    let head = String::from_utf8(text).unwrap().to_lowercase();
    let mut arrival = Arrival { at, head, body };
    let length = arrival.header("content-length").map_or(0, |length| length.parse().unwrap());
    while arrival.body.len() < length {
        if stream.read_buf(&mut arrival.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(arrival)
}

impl Arrival {
    /// In lower case, as the whole head.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn locked<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap()
}
