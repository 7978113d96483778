//! What the service alone is told: the table `[serve]` of the settings file, or `CALL_BUDGET_SERVE_*`, or flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::access::{Token, Tokens};
use super::fields::Fields;
use crate::config::{Settings as Shared, SettingsError};

/// Where it listens, who may ask, and how many at once.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Loopback where nothing says it. Another address needs `caller_token_file`.
    pub listen: SocketAddr,
    /// A file whose first line is the token of admin calls. None: there are no admin calls.
    pub admin_token_file: Option<PathBuf>,
    /// A file whose first line is the token of everybody else. None: on loopback, everybody may ask.
    pub caller_token_file: Option<PathBuf>,
    /// Names by which it is called, beside `localhost` and addresses: a page of somebody else's name is not answered.
    #[serde(deserialize_with = "list")]
    pub allowed_hosts: Vec<String>,
    /// Connections at once: 1 to 100000. More wait until one is free.
    #[serde(deserialize_with = "number")]
    pub max_connections: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8181)),
            admin_token_file: None,
            caller_token_file: None,
            allowed_hosts: Vec::new(),
            max_connections: 2000,
        }
    }
}

impl Settings {
    /// As the settings file and the environment say.
    ///
    /// # Errors
    /// A key that is not known, or a value that cannot be.
    pub fn of(shared: &Shared) -> Result<Self, SettingsError> {
        let read = Fields::from(shared.serve.clone()).read();
        read.map_err(|why: String| SettingsError(format!("[serve] (CALL_BUDGET_SERVE_*): {why}")))
    }

    /// Reads the tokens.
    ///
    /// # Errors
    /// A file that cannot be read or is empty; an address beyond this machine without a token for callers.
    pub(super) fn tokens(&self) -> Result<Tokens, SettingsError> {
        if self.max_connections == 0 || self.max_connections > 100_000 {
            return Err(SettingsError(format!(
                "max_connections is {}: it must lie between 1 and 100000",
                self.max_connections
            )));
        }
        if let Some(name) = self.allowed_hosts.iter().find(|name| name.contains([':', '/', ' '])) {
            return Err(SettingsError(format!(
                "allowed_hosts (--allow-host) has {name:?}: it is a name alone, without port or path; addresses are allowed as they are"
            )));
        }
        let read = |name: &str, file: &Option<PathBuf>| file.as_deref().map(|file| token(name, file)).transpose();
        let caller = read("caller_token_file", &self.caller_token_file)?;
        let admin = read("admin_token_file", &self.admin_token_file)?;
        if caller.is_none() && !self.listen.ip().is_loopback() {
            return Err(SettingsError(format!(
                "{} can be reached from other machines: set caller_token_file (--caller-token-file), or listen on 127.0.0.1",
                self.listen
            )));
        }
        if caller.is_some() && caller == admin {
            return Err(SettingsError(
                "caller_token_file and admin_token_file hold the same token: every caller could give orders; make another".to_owned(),
            ));
        }
        Ok(Tokens { caller, admin })
    }
}

fn token(name: &str, file: &Path) -> Result<Token, SettingsError> {
    const SHORTEST: usize = 16;
    let refused = |why: String| SettingsError(format!("{name} {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| refused(format!("it cannot be read: {error}")))?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.len() < SHORTEST || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused(format!(
            "its first line must be a token of {SHORTEST} or more letters, digits and signs, such as `openssl rand -hex 32` makes"
        )));
    }
    Ok(Token::new(line))
}

/// Names with commas between, as they are compared.
pub(crate) fn names(text: &str) -> Vec<String> {
    text.split(',').map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty()).collect()
}

/// A list, or in a variable names with commas between.
fn list<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "allowed_hosts is a list of names")]
    enum Names {
        List(Vec<String>),
        Text(String),
    }
    Ok(match Names::deserialize(deserializer)? {
        Names::List(list) => list.iter().flat_map(|text| names(text)).collect(),
        Names::Text(text) => names(&text),
    })
}

/// A number, or in a variable its digits.
fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "max_connections is a number")]
    enum Number {
        Number(usize),
        Text(String),
    }
    match Number::deserialize(deserializer)? {
        Number::Number(number) => Ok(number),
        Number::Text(text) => text.parse().map_err(|_| serde::de::Error::custom("max_connections is a number")),
    }
}
