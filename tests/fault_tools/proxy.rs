//! The fault proxy: that each fault really happens, and happens as it is called. All of it is about our own proxy, never
//! the real toxiproxy.

mod api;
mod lifetime;
mod toxics;
mod triggers;

use std::future::Future;
use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::tools::proxy::{FaultProxy, OwnProxy, RemoteProxy, Stream, Toxiproxy};

const BOTH: [Stream; 2] = [Stream::Upstream, Stream::Downstream];

/// A proxy in front of a listener: the test holds both ends of each connection.
struct Rig {
    server: FaultProxy,
    toxiproxy: Toxiproxy,
    proxy: RemoteProxy,
    upstream: TcpListener,
}

impl Rig {
    async fn new() -> Rig {
        let server = FaultProxy::start().await;
        let toxiproxy = Toxiproxy::at(&server.url());
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = upstream.local_addr().unwrap().to_string();
        let proxy = toxiproxy.create("rig", "127.0.0.1:0", &address).await.unwrap();
        Rig { server, toxiproxy, proxy, upstream }
    }

    fn own(&self) -> OwnProxy {
        self.server.own("rig").unwrap()
    }

    /// The client's end and the server's end of a new connection.
    async fn connection(&self) -> (TcpStream, TcpStream) {
        let client = soon(TcpStream::connect(self.proxy.address())).await.unwrap();
        let (server, _) = soon(self.upstream.accept()).await.unwrap();
        (client, server)
    }

    /// The sending end and the receiving end for `stream`.
    async fn ends(&self, stream: Stream) -> (TcpStream, TcpStream) {
        let (client, server) = self.connection().await;
        match stream {
            Stream::Upstream => (client, server),
            Stream::Downstream => (server, client),
        }
    }

    /// Closes both ends and waits until the proxy has, too: the next trigger is not for this connection.
    async fn closed(&self, ends: (TcpStream, TcpStream)) {
        drop(ends);
        self.own().open_connections(0, Duration::from_secs(20)).await.unwrap();
    }
}

/// Whatever should happen happens within 20 s, else the test fails.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("nothing happened within 20 s")
}

async fn send(end: &mut TcpStream, bytes: &[u8]) {
    soon(end.write_all(bytes)).await.unwrap();
}

async fn receive(end: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    soon(end.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// All that comes, and how it ends: None for the end of the stream, else the error.
async fn drain(end: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let ending = soon(end.read_to_end(&mut bytes)).await.err().map(|error| error.kind());
    (bytes, ending)
}

/// Nothing comes for 200 ms: no byte, no end, no error.
async fn silent(end: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(200), end.read_u8()).await.is_err()
}
