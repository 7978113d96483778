//! One connection through the proxy: two sockets, and a pump for each direction. One task owns all of it, so that nothing
//! is left when it is dropped.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::net::Shutdown;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::listener::Shape;
use super::pipe::{Ending, Item, Pipe};
use super::toxic::Stream;

/// Bytes that reached the other side.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub upstream: AtomicU64,
    pub downstream: AtomicU64,
}

/// Carries the connection until it ends, is dropped by order, or `shape` has no sender any more. A server that cannot be
/// reached ends it with FIN, as toxiproxy does.
pub(super) async fn carry(client: TcpStream, upstream: String, passed: Arc<Passed>, mut shape: watch::Receiver<Shape>) {
    let drops = shape.borrow().drops;
    let connected = tokio::select! {
        biased;
        ending = dropped(&mut shape, drops) => {
            if ending == Ending::Reset {
                let _ = client.set_zero_linger();
            }
            return;
        }
        connected = timeout(LONGEST_CONNECT, TcpStream::connect(&upstream)) => connected,
    };
    let Ok(Ok(server)) = connected else { return };
    // Slices have to leave as slices.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (up_over, down_over) = (Notify::new(), Notify::new());
    let up = Direction {
        pipe: Pipe::new(Stream::Upstream),
        source: &client,
        dest: &server,
        passed: &passed.upstream,
        shape: shape.clone(),
    };
    let down = Direction {
        pipe: Pipe::new(Stream::Downstream),
        source: &server,
        dest: &client,
        passed: &passed.downstream,
        shape: shape.clone(),
    };
    let both = async {
        // The first reset ends both.
        let (up, down) = (announce(up.pump(&down_over), &up_over), announce(down.pump(&up_over), &down_over));
        if tokio::try_join!(up, down).is_err() { Ending::Reset } else { Ending::Fin }
    };
    let ending = tokio::select! {
        biased;
        ending = dropped(&mut shape, drops) => ending,
        ending = both => ending,
    };
    if ending == Ending::Reset {
        // Closed with a linger of zero, a socket sends RST.
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
}

/// Returns when the connections of before are to end, and how.
async fn dropped(shape: &mut watch::Receiver<Shape>, drops: u64) -> Ending {
    shape.wait_for(|shape| shape.drops != drops).await.map_or(Ending::Fin, |shape| shape.drop_with)
}

async fn announce(pump: impl Future<Output = Result<(), WasReset>>, over: &Notify) -> Result<(), WasReset> {
    let ended = pump.await;
    over.notify_one();
    ended
}

struct WasReset;

struct Direction<'a> {
    pipe: Pipe,
    source: &'a TcpStream,
    dest: &'a TcpStream,
    passed: &'a AtomicU64,
    shape: watch::Receiver<Shape>,
}

impl Direction<'_> {
    /// Returns when this direction has ended. As in toxiproxy, its end closes the receiver's socket both ways: a half
    /// close of one side is a close for the other.
    async fn pump(mut self, other_over: &Notify) -> Result<(), WasReset> {
        let mut buffer = vec![0; 16 << 10];
        let mut other_is_over = false;
        let result = loop {
            // After every read: what came after a change of the toxics was answered must feel it.
            let now = Instant::now();
            self.pipe.adopt(&self.shape.borrow_and_update(), now);
            let wake = self.pipe.step(now);
            if self.write().is_err() {
                break Ok(());
            }
            match self.pipe.ending() {
                Some(Ending::Fin) => break Ok(()),
                Some(Ending::Reset) => break Err(WasReset),
                // Held for a receiver that has gone.
                None if other_is_over && self.pipe.stuck() => break Ok(()),
                None => {}
            }
            tokio::select! {
                biased;
                changed = self.shape.changed() => if changed.is_err() { break Ok(()) },
                () = other_over.notified(), if !other_is_over => other_is_over = true,
                // An error shows in the next write.
                _ = self.dest.writable(), if !self.pipe.out.is_empty() => {}
                _ = self.source.readable(), if self.pipe.wants_more() => self.read(&mut buffer),
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
            }
        };
        if result.is_ok() {
            // Of a reset nobody may see a FIN first.
            let _ = rustix::net::shutdown(self.dest, Shutdown::Both);
        }
        result
    }

    /// A reset of the sender counts as its end, as in toxiproxy.
    fn read(&mut self, buffer: &mut [u8]) {
        match self.source.try_read(buffer) {
            Ok(0) => self.pipe.push(Item::End),
            Ok(len) => self.pipe.push(Item::Data(Bytes::copy_from_slice(&buffer[..len]), Instant::now())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.pipe.push(Item::End),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while let Some(piece) = self.pipe.out.front_mut() {
            match self.dest.try_write(piece) {
                Ok(len) => {
                    self.passed.fetch_add(len as u64, Ordering::SeqCst);
                    piece.advance(len);
                    if piece.is_empty() {
                        self.pipe.out.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

const LONGEST_CONNECT: Duration = Duration::from_secs(10);
