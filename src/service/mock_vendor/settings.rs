//! What a mock vendor does, and what of it can be changed while it runs: all but the address.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::black_hole::{BlackHole, Span};
use super::limit::{Kind, Limit};
use super::script::Scripted;

/// The settings of a mock vendor. In JSON the durations are microseconds and their names end in `_us`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where to listen; port 0 means any free one. Fixed once the server runs.
    #[serde(skip)]
    pub listen: SocketAddr,

    /// Units per window: 1 or more.
    pub limit: u32,
    #[serde(rename = "window_us", with = "as_micros")]
    pub window: Duration,
    pub kind: Kind,
    /// Counts each app key by itself instead of all of them as one account.
    pub per_key: bool,
    /// How long after the end of its send window a call may arrive without being late, and how late the mock's own
    /// heartbeat may be without being a stall.
    #[serde(rename = "arrival_jitter_us", with = "as_micros")]
    pub arrival_jitter: Duration,

    /// The probability that a call within the limit is refused as if it were over it.
    pub refuse_below_limit: f64,
    /// The HTTP status of EGW00201: 500, or 200 as in older notes.
    pub refusal_status: u16,
    /// Balance calls per closed sliding window before EGW00215; none means no cap, 0 refuses all.
    pub ledger_cap: Option<u32>,

    /// Plays the paper-trading server instead of the real one: other TR ids.
    pub paper: bool,
    /// How many pages a balance has: 1 or more.
    pub pages: u32,

    /// Requires the token of tokenP on the other calls. Off, they need no key at all.
    pub check_tokens: bool,
    /// App key to app secret: who may have a token.
    pub keys: BTreeMap<String, String>,
    /// Between two attempts at a token, counted per app key.
    #[serde(rename = "token_interval_us", with = "as_micros")]
    pub token_interval: Duration,
    /// For how long after its issue the same token comes back.
    #[serde(rename = "token_repeats_us", with = "as_micros")]
    pub token_repeats: Duration,
    #[serde(rename = "token_life_us", with = "as_micros")]
    pub token_life: Duration,

    /// The probability that a request is read and never answered.
    pub hang: f64,
    /// The probability that a request is read and its connection then reset.
    pub reset: f64,
    /// The probability that an answer is held back for `late_by`.
    pub late_answer: f64,
    #[serde(rename = "late_by_us", with = "as_micros")]
    pub late_by: Duration,

    /// What becomes of the next requests, each entry as often as it says: the first that fits. What has been played is no
    /// longer here.
    pub script: Vec<Scripted>,
    /// A black hole until this is changed.
    pub black_hole: Option<BlackHole>,
    /// Black holes to come, while `black_hole` says nothing.
    pub black_hole_spans: Vec<Span>,
}

impl Default for Settings {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            limit: 18,
            window: Duration::from_secs(1),
            kind: Kind::Sliding,
            per_key: false,
            arrival_jitter: Duration::from_millis(50),
            refuse_below_limit: 0.0,
            refusal_status: 500,
            ledger_cap: None,
            paper: false,
            pages: 1,
            check_tokens: false,
            keys: [("mock-app-key".into(), "mock-app-secret".into())].into(),
            token_interval: Duration::from_secs(60),
            token_repeats: 6 * HOUR,
            token_life: 24 * HOUR,
            hang: 0.0,
            reset: 0.0,
            late_answer: 0.0,
            late_by: Duration::from_secs(1),
            script: Vec::new(),
            black_hole: None,
            black_hole_spans: Vec::new(),
        }
    }
}

impl Settings {
    /// These settings with the fields of a JSON object in their place; or one sentence on why not.
    pub fn with(&self, change: &[u8]) -> Result<Settings, String> {
        let change: Value = serde_json::from_slice(change).map_err(|error| format!("not JSON: {error}"))?;
        let Value::Object(change) = change else {
            return Err("settings must be a JSON object, such as {\"limit\": 3}".into());
        };
        let mut merged = serde_json::to_value(self).map_err(|error| error.to_string())?;
        for (name, value) in change {
            merged[name] = value;
        }
        let merged: Settings = serde_json::from_value(merged).map_err(|error| error.to_string())?;
        let merged = Settings { listen: self.listen, ..merged };
        merged.check()?;
        Ok(merged)
    }

    /// One sentence on the first value that makes no sense.
    pub fn check(&self) -> Result<(), String> {
        let chances = [
            ("refuse_below_limit", self.refuse_below_limit),
            ("hang", self.hang),
            ("reset", self.reset),
            ("late_answer", self.late_answer),
        ];
        if let Some((name, value)) = chances.into_iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            return Err(format!("{name} is {value}; a probability lies between 0 and 1"));
        }
        if self.limit == 0 {
            return Err("limit is 0; it must be 1 or more".into());
        }
        if self.window < Duration::from_micros(1) {
            return Err(
                "window is shorter than a microsecond; give the length of the vendor's window, such as 1s".into()
            );
        }
        if !matches!(self.refusal_status, 200 | 500) {
            return Err(format!("refusal_status is {}; it must be 500 or 200", self.refusal_status));
        }
        if self.pages == 0 {
            return Err("pages is 0; a balance has 1 page or more".into());
        }
        self.script.iter().try_for_each(Scripted::check)?;
        self.black_hole_spans.iter().try_for_each(Span::check)
    }

    pub fn limit(&self) -> Limit {
        Limit { units: self.limit, window: self.window, kind: self.kind }
    }

    /// The black hole at this time since the start.
    pub fn black_hole_at(&self, since_start: Duration) -> Option<BlackHole> {
        let span = || self.black_hole_spans.iter().find(|span| span.holds(since_start));
        self.black_hole.or_else(|| span().map(|span| span.how))
    }
}

pub mod as_micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::service::mock_vendor::heartbeat::micros;

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(micros(*duration))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_touches_only_what_it_names() {
        let settings = Settings { paper: true, ..Settings::default() };
        let changed = settings.with(br#"{"limit": 3, "window_us": 250000, "kind": "first-call"}"#).unwrap();
        let expected = Settings { limit: 3, window: Duration::from_millis(250), kind: Kind::FirstCall, ..settings };
        assert_eq!(changed, expected);
    }

    #[test]
    fn a_change_that_makes_no_sense_is_refused_by_name() {
        for (change, named) in [
            ("{\"limitt\": 3}", "unknown field `limitt`"),
            ("{\"listen\": \"127.0.0.1:1\"}", "unknown field `listen`"),
            ("{\"limit\": 0}", "limit is 0"),
            ("{\"limit\": -1}", "-1"),
            ("{\"window_us\": 0}", "window is shorter"),
            ("{\"hang\": 1.5}", "hang is 1.5"),
            ("{\"refusal_status\": 404}", "refusal_status is 404"),
            ("{\"pages\": 0}", "pages is 0"),
            ("{\"script\": [{\"code\": \"EGW00201\", \"times\": 0}]}", "times is 0"),
            ("{\"script\": [{\"codes\": \"EGW00201\"}]}", "unknown field `codes`"),
            ("{\"black_hole\": \"deep\"}", "unknown variant `deep`"),
            ("{\"black_hole_spans\": [{\"from_us\": 5, \"to_us\": 5, \"how\": \"silent\"}]}", "never happens"),
            ("{\"kind\": \"odd\"}", "unknown variant `odd`"),
            ("[1]", "must be a JSON object"),
            ("limit=3", "not JSON"),
        ] {
            let sentence = Settings::default().with(change.as_bytes()).unwrap_err();
            assert!(sentence.contains(named), "{change}: {sentence}");
        }
    }
}
