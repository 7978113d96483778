//! Whether the other side has ended a stream. The TLS library tells that in words alone, and words decide nothing: a
//! handshake that was cut off is an outage, one that failed is not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connect::Duplex;

/// A stream that notes its end.
pub(super) struct Ending {
    stream: Box<dyn Duplex>,
    ended: Arc<AtomicBool>,
}

/// Asks after the end of a stream that somebody else has in hands, or has dropped.
pub(super) struct Ended(Arc<AtomicBool>);

impl Ending {
    pub fn of(stream: Box<dyn Duplex>) -> (Self, Ended) {
        let ended = Arc::<AtomicBool>::default();
        (Self { stream, ended: Arc::clone(&ended) }, Ended(ended))
    }
}

impl Ended {
    /// Everything that came was read, and nothing follows.
    pub fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl AsyncRead for Ending {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (room, before) = (buf.remaining(), buf.filled().len());
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if room > 0 && buf.filled().len() == before {
            self.ended.store(true, Ordering::Release);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ending {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn the_end_is_noted_when_it_is_read_and_not_before() {
        let (near, mut far) = tokio::io::duplex(16);
        let (mut stream, ended) = Ending::of(Box::new(near));
        far.write_all(b"S").await.unwrap();
        drop(far);
        assert_eq!(stream.read_u8().await.unwrap(), b'S');
        assert!(!ended.is_so());
        assert_eq!(stream.read(&mut [0; 4]).await.unwrap(), 0);
        assert!(ended.is_so());
    }
}
