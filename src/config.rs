//! Settings, read once and checked: what is refused here is refused at start, by name.
//!
//! Layers, the later over the earlier: defaults, a TOML file, the environment (`CALL_BUDGET_*`), and what the program sets
//! itself. Durations are written with their unit: `"50ms"`, `"1s"`, `"1h 30m"`.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use figment::value::{Dict, Map};
use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod connection;
pub use connection::*;

const PREFIX: &str = "CALL_BUDGET_";
const FILE_VARIABLE: &str = "CALL_BUDGET_CONFIG";

/// What a process is told about the store and about its own patience.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Settings {
    /// The switch. Off (the default): no store is touched, the process keeps its own polite pace. Key
    /// `call_budget_enabled`, variable `CALL_BUDGET_ENABLED`.
    #[serde(rename = "call_budget_enabled")]
    pub enabled: bool,
    /// Where the store is: `postgresql://user:password@host:port/database`. Needed when the switch is on.
    pub database_url: Option<DatabaseUrl>,
    /// How the sessions call themselves in `pg_stat_activity`.
    pub application_name: String,
    /// Connections this process may hold at once, however many tasks wait: 1 to 100.
    pub pool_size: usize,
    /// How long the store may work on one call: 10 ms to 60 s. One store call ends within this and 0.5 s more.
    #[serde(with = "duration")]
    pub statement_timeout: Duration,
    /// How long a failing store is tried, counted from the first failure: 0 to 1 h.
    #[serde(with = "duration")]
    pub store_outage_max: Duration,
    /// The longest round trip whose slots are used: 1 ms to 60 s. Keep it under the budget's send window.
    #[serde(with = "duration")]
    pub rtt_max: Duration,
    /// How long `acquire` waits where its caller does not say: 0 to 1 day.
    #[serde(with = "duration")]
    pub max_wait: Duration,
    /// Switch off: the least time between two starts of one class, 0 to 1 day.
    #[serde(with = "duration")]
    pub polite_interval: Duration,
    /// Switch off: calls of one class in flight at once, 1 to 1000.
    pub polite_concurrency: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: false,
            database_url: None,
            application_name: "call-budget".into(),
            pool_size: 2,
            statement_timeout: Duration::from_millis(500),
            store_outage_max: Duration::from_secs(10),
            rtt_max: Duration::from_millis(25),
            max_wait: Duration::from_secs(30),
            polite_interval: Duration::from_secs(1),
            polite_concurrency: 1,
        }
    }
}

impl Settings {
    /// The settings of this process: defaults, then the TOML file that `CALL_BUDGET_CONFIG` names, then the environment.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key (with the nearest known one), a value out of its range.
    pub fn load() -> Result<Self, SettingsError> {
        let file = std::env::var_os(FILE_VARIABLE);
        Self::layered(file.as_deref().map(Path::new))
    }

    /// As [`Settings::load`], with the TOML file named by the caller.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn layered(file: Option<&Path>) -> Result<Self, SettingsError> {
        let mut figment = Figment::new();
        if let Some(path) = file {
            if !path.is_file() {
                return Err(SettingsError(format!(
                    "the settings file {} cannot be read: check the path in {FILE_VARIABLE} or --config",
                    path.display()
                )));
            }
            figment = figment.merge(Toml::file_exact(path));
        }
        figment = figment.merge(
            Env::prefixed(PREFIX)
                .ignore(&["CONFIG"])
                .map(|key| if key == "enabled" { "call_budget_enabled".into() } else { key.into() }),
        );
        Self::checked(&figment)
    }

    fn checked(layers: &Figment) -> Result<Self, SettingsError> {
        let figment = Figment::from(Serialized::defaults(Settings::default())).merge(layers);
        let unreadable = |error: figment::Error| SettingsError(format!("the settings cannot be read: {error}"));
        let known: Dict = Figment::from(Serialized::defaults(Settings::default())).extract().map_err(unreadable)?;
        let given: Map<String, figment::value::Value> = layers.extract().map_err(unreadable)?;
        for key in given.keys() {
            if !known.contains_key(key) {
                let nearest = known
                    .keys()
                    .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)))
                    .map_or("", String::as_str);
                return Err(SettingsError(format!("unknown setting \"{key}\": did you mean \"{nearest}\"?")));
            }
        }
        let settings: Settings = figment.extract().map_err(unreadable)?;
        settings.validate()?;
        Ok(settings)
    }

    /// Refuses a value out of its range.
    pub(crate) fn validate(&self) -> Result<(), SettingsError> {
        let ms = Duration::from_millis;
        let day = Duration::from_secs(86_400);
        for (name, value, least, most) in [
            ("statement_timeout", self.statement_timeout, ms(10), ms(60_000)),
            ("store_outage_max", self.store_outage_max, Duration::ZERO, ms(3_600_000)),
            ("rtt_max", self.rtt_max, ms(1), ms(60_000)),
            ("max_wait", self.max_wait, Duration::ZERO, day),
            ("polite_interval", self.polite_interval, Duration::ZERO, day),
        ] {
            if value < least || value > most {
                return Err(SettingsError(format!(
                    "the setting {name} is {value:?}: it must lie between {least:?} and {most:?}"
                )));
            }
        }
        for (name, value, most) in
            [("pool_size", self.pool_size, 100), ("polite_concurrency", self.polite_concurrency, 1000)]
        {
            if !(1..=most).contains(&value) {
                return Err(SettingsError(format!("the setting {name} is {value}: it must lie between 1 and {most}")));
            }
        }
        Ok(())
    }
}

/// A database URL. It holds a password, so nothing prints it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for DatabaseUrl {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl From<&str> for DatabaseUrl {
    fn from(url: &str) -> Self {
        Self(url.into())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(hidden)")
    }
}

/// The settings are refused; the message names the key and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub(crate) String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for SettingsError {}

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

mod duration {
    use super::*;

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let signed = SignedDuration::try_from(*duration).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{signed:#}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        // A bare number is read only to be refused in the same words.
        let value = serde_json::Value::deserialize(deserializer)?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        parse_duration(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_toml(text: &str) -> Result<Settings, SettingsError> {
        Settings::checked(&Figment::from(Toml::string(text)))
    }

    #[test]
    fn off_is_the_default_and_durations_have_units() {
        let settings = from_toml("").unwrap();
        assert!(!settings.enabled);
        assert_eq!(settings.rtt_max, Duration::from_millis(25));
        let settings = from_toml("call_budget_enabled = true\nrtt_max = \"40ms\"\nmax_wait = \"1m 30s\"").unwrap();
        assert!(settings.enabled);
        assert_eq!(settings.rtt_max, Duration::from_millis(40));
        assert_eq!(settings.max_wait, Duration::from_secs(90));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let error = from_toml("rtt_mx = \"40ms\"").unwrap_err().to_string();
        assert_eq!(error, "unknown setting \"rtt_mx\": did you mean \"rtt_max\"?");
    }

    #[test]
    fn a_value_out_of_its_range_or_without_a_unit_is_refused_by_name() {
        for (text, named) in [
            ("rtt_max = \"0ms\"", "rtt_max"),
            ("rtt_max = 25", "rtt_max"),
            ("max_wait = \"-1s\"", "max_wait"),
            ("max_wait = \"9999h\"", "max_wait"),
            ("pool_size = 0", "pool_size"),
            ("polite_concurrency = 0", "polite_concurrency"),
        ] {
            let error = from_toml(text).unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_database_url_is_never_printed() {
        let settings = from_toml("database_url = \"postgresql://u:not-a-real-password@h/d\"").unwrap();
        assert!(!format!("{settings:?}").contains("not-a-real-password"));
    }
}
