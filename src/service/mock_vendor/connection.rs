//! The socket, which knows when a request began to arrive.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;

/// A connection that notes the time of the first byte read since the last answer was written.
#[derive(Debug)]
pub struct Stamped {
    stream: TcpStream,
    stamps: Arc<Stamps>,
}

/// What the two sides of a connection, the socket and the service, tell each other.
#[derive(Debug, Default)]
pub struct Stamps {
    reads: Mutex<Reads>,
    reset: AtomicBool,
}

#[derive(Debug, Default)]
struct Reads {
    first: Option<Instant>,
    last: Instant,
}

impl Stamped {
    pub fn new(stream: TcpStream) -> (Stamped, Arc<Stamps>) {
        let stamps = Arc::new(Stamps::default());
        (Stamped { stream, stamps: Arc::clone(&stamps) }, stamps)
    }
}

impl Stamps {
    /// When the request whose head has just been read began to arrive. One that was sent before the answer to the one
    /// before it arrived no later than the last read.
    pub fn arrival(&self) -> Instant {
        self.with_reads(|reads| reads.first.take().unwrap_or(reads.last))
    }

    /// Makes the connection end with a reset when it is dropped, instead of an orderly close.
    pub fn reset_on_drop(&self) {
        self.reset.store(true, Ordering::Relaxed);
    }

    fn read_at(&self, now: Instant) {
        self.with_reads(|reads| {
            reads.first.get_or_insert(now);
            reads.last = now;
        });
    }

    /// What has been read until now belongs to the request that is being answered.
    fn answered(&self) {
        self.with_reads(|reads| reads.first = None);
    }

    fn with_reads<T>(&self, work: impl FnOnce(&mut Reads) -> T) -> T {
        work(&mut self.reads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Stamped {
    fn drop(&mut self) {
        if self.stamps.reset.load(Ordering::Relaxed) {
            // Where this fails the socket is already gone, which is what was wanted.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Stamped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.stamps.read_at(SystemClock.now());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stamps.answered();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
