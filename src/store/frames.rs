//! What the driver reads past: whether the session is idle after an answer.
//!
//! A grant counts only when its transaction is over. The server says so in the last message of an answer (ReadyForQuery, with
//! one byte of status), which the driver takes for an end whatever the byte is. So the bytes are looked at on their way in.

use std::sync::atomic::{AtomicU8, Ordering};

/// Type of the message that ends an answer.
const READY_FOR_QUERY: u8 = b'Z';
const IDLE: u8 = b'I';

/// The status of a session, as of the last answer that came in whole.
#[derive(Debug, Default)]
pub(super) struct Status(AtomicU8);

impl Status {
    /// No transaction is open.
    pub fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == IDLE
    }
}

/// Follows the server's messages: a type, a length that counts itself, and a body.
#[derive(Debug, Default)]
pub(super) struct Frames {
    kind: u8,
    header: usize,
    length: u32,
    body: u32,
}

const HEADER: usize = 5;
const LENGTH: u32 = 4;

impl Frames {
    /// Looks at bytes as they come, in pieces of any size.
    pub fn see(&mut self, mut bytes: &[u8], status: &Status) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.header < HEADER {
                match self.header {
                    0 => (self.kind, self.length) = (byte, 0),
                    _ => self.length = self.length << 8 | u32::from(byte),
                }
                self.header += 1;
                bytes = rest;
                if self.header == HEADER {
                    self.body = self.length.saturating_sub(LENGTH);
                }
            } else {
                if self.kind == READY_FOR_QUERY && self.body == 1 {
                    status.0.store(byte, Ordering::Release);
                }
                let seen = bytes.len().min(usize::try_from(self.body).unwrap_or(usize::MAX));
                self.body -= u32::try_from(seen).unwrap_or(self.body);
                bytes = &bytes[seen..];
            }
            if self.header == HEADER && self.body == 0 {
                self.header = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap() + LENGTH;
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    #[test]
    fn the_last_ready_for_query_tells_whether_the_session_is_idle_however_the_bytes_are_cut() {
        let before = [message(b'D', b"Z\0\0\0\x05I"), message(b'C', b"SELECT 1\0"), message(b'n', b"")].concat();
        for (end, idle) in [(b"I", true), (b"T", false), (b"E", false)] {
            let bytes = [before.clone(), message(b'Z', end)].concat();
            for cut in 1..=bytes.len() {
                let (mut frames, status) = (Frames::default(), Status::default());
                frames.see(&message(b'Z', b"I"), &status);
                status.0.store(0, Ordering::Release);
                bytes.chunks(cut).for_each(|piece| frames.see(piece, &status));
                assert_eq!(status.is_idle(), idle, "{end:?} in pieces of {cut}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_messages_do_no_harm() {
        let (mut frames, status) = (Frames::default(), Status::default());
        for _ in 0..10_000 {
            let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(fastrand::usize(..64)).collect();
            frames.see(&bytes, &status);
        }
    }
}
