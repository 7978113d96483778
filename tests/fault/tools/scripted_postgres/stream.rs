//! The socket, plain or within TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_native_tls::{TlsAcceptor, TlsStream};

pub enum Stream {
    Plain(Rewound),
    Tls(Box<TlsStream<Rewound>>),
    /// A handshake that failed took the socket with it.
    Gone,
}

/// A socket with what was read from it too early put back.
pub struct Rewound {
    read_before: Vec<u8>,
    socket: TcpStream,
}

impl Stream {
    pub fn plain(socket: TcpStream) -> Self {
        Self::Plain(Rewound { read_before: Vec::new(), socket })
    }

    /// Takes part in the handshake, the first bytes of which may have been read already.
    pub async fn secure(&mut self, acceptor: &TlsAcceptor, read_before: Vec<u8>) -> Result<(), native_tls::Error> {
        if let Self::Plain(mut rewound) = std::mem::replace(self, Self::Gone) {
            rewound.read_before = read_before;
            *self = Self::Tls(Box::new(acceptor.accept(rewound).await?));
        }
        Ok(())
    }

    /// Appends what has come; 0 bytes are the end. Nothing is lost where the future is dropped.
    pub async fn read_more(&mut self, inbound: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(rewound) => rewound.read_buf(inbound).await,
            Self::Tls(tls) => tls.read_buf(inbound).await,
            Self::Gone => Ok(0),
        }
    }

    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(rewound) => rewound.write_all(bytes).await,
            Self::Tls(tls) => tls.write_all(bytes).await,
            Self::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(rewound) => rewound.flush().await,
            Self::Tls(tls) => tls.flush().await,
            Self::Gone => Ok(()),
        }
    }

    pub async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(rewound) => rewound.shutdown().await,
            Self::Tls(tls) => tls.shutdown().await,
            Self::Gone => Ok(()),
        }
    }

    /// Reads what has come away, so that closing sends FIN and no RST.
    pub fn discard_unread(&self) {
        let mut away = [0; 4096];
        while self.socket().is_some_and(|socket| socket.try_read(&mut away).is_ok_and(|read| read > 0)) {}
    }

    /// The close sends RST, and nothing that is still on its way out.
    pub fn reset_on_close(&self) {
        if let Some(socket) = self.socket() {
            socket.set_zero_linger().expect("SO_LINGER");
        }
    }

    fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(rewound) => Some(&rewound.socket),
            Self::Tls(tls) => Some(&tls.get_ref().get_ref().get_ref().socket),
            Self::Gone => None,
        }
    }
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read_before.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, into);
        }
        let length = self.read_before.len().min(into.remaining());
        into.put_slice(&self.read_before[..length]);
        self.read_before.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
