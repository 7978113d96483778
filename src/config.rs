//! Settings, read once and checked: what is refused here is refused at start, by name.
//!
//! Layers, the later over the earlier: defaults, a TOML file, the environment (`CALL_BUDGET_*`), and what the program sets
//! itself. Durations are written with their unit: `"50ms"`, `"1s"`, `"1h 30m"`. Where the store is can be said in several
//! ways: see [`connection`].

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use connection::environment::Environment;

pub mod connection;
mod duration;
mod layers;
pub(crate) mod nearest;
mod secret;
pub mod surfaces;

pub use connection::Connection;
pub use duration::parse_duration;
pub use secret::Secret;

/// What the client adds to the server's own `statement_timeout`: the way there and back, and connecting first.
const STORE_CALL_MARGIN: Duration = Duration::from_millis(500);

/// What a process is told about the store and about its own patience.
///
/// Serialized, everything is written but `password` and `database_url`, which may hold a password: they are left empty.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Settings {
    /// The switch. Off (the default): no store is touched, the process keeps its own polite pace. Key
    /// `call_budget_enabled`, variable `CALL_BUDGET_ENABLED`.
    #[serde(rename = "call_budget_enabled")]
    pub enabled: bool,
    /// Where the store is, in one text: `postgresql://user:password@host:port/database?sslmode=...`, or libpq's
    /// `host=... user=...`. This or `host` is needed when the switch is on. Each of the settings up to `sslkey`, where
    /// given, counts instead of what stands here; libpq's variables (`PGHOST`, ...) count where neither says anything.
    #[serde(serialize_with = "secret::left_out")]
    pub database_url: Option<Secret>,
    /// Hosts to try in this order, 1 to 16, with commas between: names, addresses, directories of Unix sockets.
    pub host: Option<String>,
    /// 1 to 65535: one for all hosts, or one for each with commas between. Where nothing says it, 5432.
    #[serde(deserialize_with = "layers::number_or_text")]
    pub port: Option<String>,
    /// The role to log in as. Where nothing says it, the name of who runs this process.
    pub user: Option<String>,
    /// Its password. Only one of `password`, `password_file` and `password_command`; each counts instead of a password in
    /// `database_url`.
    #[serde(serialize_with = "secret::left_out")]
    pub password: Option<Secret>,
    /// A file whose first line is the password; read again when the server has refused it, since passwords rotate.
    pub password_file: Option<PathBuf>,
    /// A command whose first line of output is the password; run by `sh -c`, and again when the server has refused it. It
    /// has to be done within one store call (`statement_timeout` + 0.5 s); one that is not is ended.
    pub password_command: Option<String>,
    /// The database. Where nothing says it, as `user`.
    pub dbname: Option<String>,
    /// `disable`, `require`, `verify-ca` or `verify-full`. Where nothing says it, `verify-full`; no TLS on a Unix socket,
    /// whatever stands here. `require` checks nobody, except that with `sslrootcert` it means `verify-ca`, as for libpq.
    pub sslmode: Option<String>,
    /// A PEM file of the certificates to trust. `system`, or where nothing says it: those of the system.
    pub sslrootcert: Option<PathBuf>,
    /// A PEM file with the certificate to show to the server; together with `sslkey`.
    pub sslcert: Option<PathBuf>,
    /// A PEM file with its key, not encrypted; together with `sslcert`.
    pub sslkey: Option<PathBuf>,
    /// DNS servers to ask for hosts, at most 8: addresses such as `10.0.0.2` or `127.0.0.1:5353`. Empty (the default): the
    /// system's. In the environment a list such as `["127.0.0.1:5353"]`.
    pub nameservers: Vec<String>,
    /// How the sessions call themselves in `pg_stat_activity`. Empty (the default): what `database_url` or `PGAPPNAME`
    /// says, else `call-budget`.
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
    /// Tables of the settings file, by name: [`surfaces::Surfaces::of`] reads them.
    pub(crate) surface: Map<String, Value>,
    pub(crate) breaker: Map<String, Value>,
    pub(crate) calendar: Map<String, Value>,
    pub(crate) retry: Map<String, Value>,
    pub(crate) class: Map<String, Value>,
    pub(crate) vendor: Map<String, Value>,
    /// The table of the service, and its variables `CALL_BUDGET_SERVE_*`: the service reads it.
    pub(crate) serve: Map<String, Value>,
    /// How `call-budget` writes its log: `text` (where nothing says it) or `json`.
    pub log_format: LogFormat,
    /// Where the settings file lies: the files that it names are looked for from there.
    #[serde(skip)]
    pub(crate) directory: PathBuf,
    /// What libpq's variables said when these settings were read.
    #[serde(skip)]
    pub(crate) environment: Environment,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: false,
            database_url: None,
            host: None,
            port: None,
            user: None,
            password: None,
            password_file: None,
            password_command: None,
            dbname: None,
            sslmode: None,
            sslrootcert: None,
            sslcert: None,
            sslkey: None,
            nameservers: Vec::new(),
            application_name: String::new(),
            pool_size: 2,
            statement_timeout: Duration::from_millis(500),
            store_outage_max: Duration::from_secs(10),
            rtt_max: Duration::from_millis(25),
            max_wait: Duration::from_secs(30),
            polite_interval: Duration::from_secs(1),
            polite_concurrency: 1,
            surface: Map::new(),
            breaker: Map::new(),
            calendar: Map::new(),
            retry: Map::new(),
            class: Map::new(),
            vendor: Map::new(),
            serve: Map::new(),
            log_format: LogFormat::Text,
            directory: PathBuf::new(),
            environment: Environment::default(),
        }
    }
}

impl Settings {
    /// The settings of this process: defaults, then the TOML file that `CALL_BUDGET_CONFIG` names, then the environment.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key (with the nearest known one), a value out of its range.
    pub fn load() -> Result<Self, SettingsError> {
        let file = std::env::var_os(layers::FILE_VARIABLE);
        Self::layered(file.as_deref().map(Path::new))
    }

    /// As [`Settings::load`], with the TOML file named by the caller.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn layered(file: Option<&Path>) -> Result<Self, SettingsError> {
        layers::read(file, std::env::vars_os())
    }

    /// The settings that a TOML text says, over the defaults; no environment. Files that it names are looked for from
    /// `directory`.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn of_toml(text: &str, directory: &Path) -> Result<Self, SettingsError> {
        layers::of_toml(text, directory)
    }

    /// The longest that one store call lasts, whatever it has to do first: `statement_timeout` and 0.5 s more.
    pub fn store_call(&self) -> Duration {
        self.statement_timeout + STORE_CALL_MARGIN
    }

    /// The same settings for the database that this URL (or `key=value` text) names. All that other settings say of the
    /// connection, passwords too, is left out: it was meant for another server. libpq's variables still count.
    #[must_use]
    pub fn at(self, database_url: impl Into<Secret>) -> Self {
        let Self {
            enabled,
            application_name,
            nameservers,
            pool_size,
            statement_timeout,
            store_outage_max,
            rtt_max,
            max_wait,
            polite_interval,
            polite_concurrency,
            surface,
            breaker,
            calendar,
            retry,
            class,
            vendor,
            serve,
            log_format,
            directory,
            environment,
            ..
        } = self;
        Self {
            enabled,
            database_url: Some(database_url.into()),
            application_name,
            nameservers,
            pool_size,
            statement_timeout,
            store_outage_max,
            rtt_max,
            max_wait,
            polite_interval,
            polite_concurrency,
            surface,
            breaker,
            calendar,
            retry,
            class,
            vendor,
            serve,
            log_format,
            directory,
            environment,
            ..Self::default()
        }
    }

    /// Refuses a value out of its range, and surfaces that cannot be: files that they name are read.
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
        surfaces::Surfaces::of(self).map(drop)
    }
}

/// How events are written to standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// An object a line, for programs.
    Json,
}

/// The settings are refused; the message names the key and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub(crate) String);

impl SettingsError {
    /// Nothing names a store: a command has further ways to do so.
    #[cfg(feature = "cli")]
    pub(crate) fn names_no_store(&self) -> bool {
        self.0.contains(connection::NO_STORE)
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_toml(text: &str) -> Result<Settings, SettingsError> {
        Settings::of_toml(text, Path::new(""))
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
