//! The listening socket, which can be shut while the vendor lives on.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that wait until they are taken.
const BACKLOG: u32 = 1024;

#[derive(Debug)]
pub struct Door {
    addr: SocketAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    Open(TcpListener),
    /// Connections are refused. The socket keeps the address for us, where it could be had.
    Shut(Option<TcpSocket>),
}

impl Door {
    pub async fn open_at(addr: SocketAddr) -> io::Result<Door> {
        let listener = TcpListener::bind(addr).await?;
        Ok(Door { addr: listener.local_addr()?, state: State::Open(listener) })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The next connection; never one while it is shut.
    pub async fn accept(&self) -> TcpStream {
        match &self.state {
            State::Open(listener) => loop {
                match listener.accept().await {
                    Ok((stream, _)) => return stream,
                    // Out of sockets, most likely: others have to be closed first.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            },
            State::Shut(_) => std::future::pending().await,
        }
    }

    /// Shuts it or opens it. Where the address cannot be had at once it stays shut: ask again.
    pub fn turn(&mut self, shut: bool) {
        match (&mut self.state, shut) {
            (State::Open(_), true) => {
                // First gone, then kept: one address has one socket.
                self.state = State::Shut(None);
                self.state = State::Shut(bound(self.addr).ok());
            }
            (State::Shut(kept), false) => {
                let socket = kept.take().map_or_else(|| bound(self.addr), Ok);
                if let Ok(listener) = socket.and_then(|socket| socket.listen(BACKLOG)) {
                    self.state = State::Open(listener);
                }
            }
            (State::Open(_), false) | (State::Shut(_), true) => {}
        }
    }
}

fn bound(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections that have just ended do not keep the address.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}
