//! Text that nobody but the server may see.

use std::fmt;

use figment::value::Value;
use serde::{Deserialize, Deserializer, Serializer};

/// A password, or a text that may hold one. Nothing prints it: not `Debug`, not a message, and it cannot be serialized.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that needs it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The derived code would quote what it found: `password = 1234` must not end in a log.
        match <Value as Deserialize>::deserialize(deserializer)? {
            Value::String(_, text) => Ok(Self(text)),
            _ => Err(serde::de::Error::custom("it must be text: write it in quotes")),
        }
    }
}

/// Leaves a secret field empty where settings are serialized.
pub(super) fn left_out<S: Serializer>(_: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_none()
}
