//! The toxics: what each is called, what it takes, and how it looks as JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// From the client to the server: requests.
    Upstream,
    /// From the server to the client: answers.
    Downstream,
}

impl Stream {
    pub fn name(self) -> &'static str {
        match self {
            Stream::Upstream => "upstream",
            Stream::Downstream => "downstream",
        }
    }
}

/// A fault on one stream of a proxy. Times are milliseconds where nothing else is said. An attribute left out in JSON
/// is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "attributes", rename_all = "snake_case", deny_unknown_fields)]
pub enum Toxic {
    /// Every byte comes `latency` +- `jitter` later, order kept.
    Latency {
        #[serde(default)]
        latency: u64,
        #[serde(default)]
        jitter: u64,
    },
    /// Data is dropped; the connection is closed once `timeout` has passed without any. With 0 it is never closed.
    Timeout {
        #[serde(default)]
        timeout: u64,
    },
    /// `rate` is in KB/s, 1 KB = 1,000 bytes. With 0 nothing passes, and senders feel it: it is not read either.
    Bandwidth {
        #[serde(default)]
        rate: u64,
    },
    /// The end of the stream comes `delay` later.
    SlowClose {
        #[serde(default)]
        delay: u64,
    },
    /// RST to both ends, `timeout` after the first byte, which does not pass.
    ResetPeer {
        #[serde(default)]
        timeout: u64,
    },
    /// Data passes in pieces of `average_size` +- `size_variation` bytes, with `delay` microseconds after each. Let the
    /// variation be at least 1: versions of the real one cannot draw from a range that is empty.
    Slicer {
        #[serde(default)]
        average_size: u64,
        #[serde(default)]
        size_variation: u64,
        #[serde(default)]
        delay: u64,
    },
    /// The connection is closed after `bytes` bytes.
    LimitData {
        #[serde(default)]
        bytes: u64,
    },
}

impl Toxic {
    const TYPES: [&str; 7] = ["latency", "timeout", "bandwidth", "slow_close", "reset_peer", "slicer", "limit_data"];

    /// # Errors
    /// One sentence for the sender of the JSON.
    pub fn from_parts(kind: &str, attributes: &Value) -> Result<Toxic, String> {
        if !Toxic::TYPES.contains(&kind) {
            return Err("invalid toxic type".to_owned());
        }
        serde_json::from_value(json!({ "type": kind, "attributes": attributes }))
            .map_err(|error| format!("bad request body: {error}"))
    }

    /// The toxic as the API shows it: `type`, `attributes`.
    pub fn to_json(self) -> Value {
        serde_json::to_value(self).expect("numbers and fixed names are always JSON")
    }

    /// The name that the API gives to a toxic without one: `<type>_<stream>`.
    pub fn default_name(self, stream: Stream) -> String {
        let json = self.to_json();
        format!("{}_{}", json["type"].as_str().expect("the tag is a string"), stream.name())
    }
}

/// A toxic with its place: what the API keeps of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    pub name: String,
    pub stream: Stream,
    /// The share of connections that it acts on, 0 to 1. Drawn once for a connection.
    pub toxicity: f64,
    pub toxic: Toxic,
}

impl Placed {
    pub fn to_json(&self) -> Value {
        let mut json = self.toxic.to_json();
        json["name"] = json!(self.name);
        json["stream"] = json!(self.stream);
        json["toxicity"] = json!(self.toxicity);
        json
    }

    /// Reads a toxic; with `old`, what is left out stays as it is, and name, type and stream cannot change.
    ///
    /// # Errors
    /// One sentence for the sender of the JSON.
    pub fn from_json(json: &Value, old: Option<&Placed>) -> Result<Placed, String> {
        let given = |key: &str| json.get(key).filter(|value| !value.is_null());
        let toxicity = match given("toxicity") {
            Some(value) => value
                .as_f64()
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or("bad request body: toxicity is a number from 0 to 1")?,
            None => old.map_or(1.0, |old| old.toxicity),
        };
        if let Some(old) = old {
            let mut whole = old.toxic.to_json();
            for (key, value) in given("attributes").and_then(Value::as_object).into_iter().flatten() {
                whole["attributes"][key] = value.clone();
            }
            let kind = whole["type"].as_str().unwrap_or_default();
            let toxic = Toxic::from_parts(kind, &whole["attributes"])?;
            return Ok(Placed { toxic, toxicity, ..old.clone() });
        }
        let stream = match given("stream").map(Value::as_str) {
            None | Some(Some("" | "downstream")) => Stream::Downstream,
            Some(Some("upstream")) => Stream::Upstream,
            _ => return Err("stream was invalid, can be either upstream or downstream".to_owned()),
        };
        let kind = given("type").and_then(Value::as_str).unwrap_or_default();
        let toxic = Toxic::from_parts(kind, given("attributes").unwrap_or(&json!({})))?;
        let name = match given("name").and_then(Value::as_str) {
            None | Some("") => toxic.default_name(stream),
            Some(name) => name.to_owned(),
        };
        Ok(Placed { name, stream, toxicity, toxic })
    }
}
