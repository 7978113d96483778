use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::verdict::{Broken, Finding};

/// A whole answer, whatever HTTP client it came from.
pub trait Answer {
    fn status(&self) -> u16;
    /// The header of this name (any case), where it is text.
    fn header(&self, name: &str) -> Option<&str>;
    /// The whole body.
    fn body(&self) -> &[u8];
}

/// Whose key a call uses: an opaque label, never the secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credential {
    pub(crate) label: Arc<str>,
    pub(crate) revision: u64,
}

impl Credential {
    /// The key of this label, such as `desk-1` or a user's id.
    pub fn new(label: &str) -> Self {
        Self { label: label.into(), revision: 0 }
    }

    /// Say another number when what stands behind the label has changed: a hold "until it changes" ends.
    #[must_use]
    pub fn revision(self, revision: u64) -> Self {
        Self { revision, ..self }
    }
}

/// A request brought no whole answer.
#[derive(Debug)]
pub enum Failed {
    /// The vendor, or the way there.
    Broken { how: Broken, source: Box<dyn Error + Send + Sync> },
    /// Ourselves: it could not even be written. Says nothing of the vendor.
    NotSent(Box<dyn Error + Send + Sync>),
}

/// The vendor's answer, and what it means.
#[derive(Clone, Debug)]
pub struct Answered<A> {
    pub answer: A,
    pub finding: Finding,
    /// Attempts made, this one included.
    pub attempts: u32,
    /// Of the last attempt, from its start to the last byte.
    pub elapsed: Duration,
}
