//! Times in which the vendor takes connections and gives nothing, or takes none.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::settings::as_micros;

/// What becomes of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlackHole {
    /// Requests are read and never answered, not even when the black hole is over.
    Silent,
    /// Connections are reset at once: new ones unread, open ones when a request has been read. With new ones the
    /// endpoints under `/mock/` are gone too.
    Reset,
    /// Nobody listens: new connections are refused, and open ones are reset when a request has been read.
    Refused,
}

/// A black hole from one moment, inclusive, to another, exclusive; both since the mock started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    #[serde(rename = "from_us", with = "as_micros")]
    pub from: Duration,
    #[serde(rename = "to_us", with = "as_micros")]
    pub to: Duration,
    pub how: BlackHole,
}

impl Span {
    /// One sentence on what makes no sense.
    pub fn check(&self) -> Result<(), String> {
        if self.from < self.to {
            return Ok(());
        }
        Err(format!("a black hole from {:?} to {:?} never happens; to is later than from", self.from, self.to))
    }

    pub fn holds(&self, since_start: Duration) -> bool {
        (self.from..self.to).contains(&since_start)
    }
}
