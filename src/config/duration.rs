//! Durations as people write them: `50ms`, `1s`, `1h 30m`.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serializer};

/// A duration with its unit, such as `50ms`: never negative, never a bare number.
///
/// # Errors
/// One sentence that shows how to write it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("\"{text}\" is not a duration of 0 or more: write it with its unit, such as 50ms, 1s or 1h 30m");
    let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| wrong())
}

pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let signed = SignedDuration::try_from(*duration).map_err(serde::ser::Error::custom)?;
    serializer.collect_str(&format_args!("{signed:#}"))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    // A bare number is read only to be refused in the same words.
    let value = serde_json::Value::deserialize(deserializer)?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    parse_duration(&text).map_err(serde::de::Error::custom)
}
