//! The body of an answer, whole or cut off.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::ConnectionOver;

#[derive(Debug, Default)]
pub struct Body {
    bytes: Bytes,
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// As it should be.
    #[default]
    Whole,
    /// The connection ends after these bytes, once they are on their way.
    CutWhenSent,
    Cut,
}

impl Body {
    /// The connection ends after these bytes. The head must announce more.
    pub fn cut(bytes: Bytes) -> Body {
        Body { bytes, end: End::CutWhenSent }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body { bytes: text.into(), end: End::Whole }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = ConnectionOver;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionOver>>> {
        if !self.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.bytes)))));
        }
        match self.end {
            End::Whole => Poll::Ready(None),
            End::CutWhenSent => {
                // hyper sends what it has while a body has no more, and drops it when a body fails.
                self.end = End::Cut;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            End::Cut => Poll::Ready(Some(Err(ConnectionOver))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.end == End::Whole && self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.end {
            End::Whole => SizeHint::with_exact(self.bytes.len() as u64),
            End::CutWhenSent | End::Cut => SizeHint::default(),
        }
    }
}
