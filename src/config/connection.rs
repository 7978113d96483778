//! Where the store is and how to log in: many ways to say it, one checked value.
//!
//! What says it, the former over the latter, word by word: a setting of its own (`host`, `sslmode`, ...), `database_url`,
//! libpq's variable (`PGHOST`, `PGSSLMODE`, ...), the default. An empty text says nothing. What is not understood is refused
//! by name, never ignored; and no message holds a password, or a piece of a text that may be one.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

pub use place::{Host, Place};
pub use tls::{ClientCertificate, Tls, TlsMode};

use super::{Secret, Settings, SettingsError};
use sources::Sources;

pub(super) mod environment;
pub(super) mod keys;
mod place;
mod sources;
mod text;
mod tls;

#[cfg(test)]
mod tests;

/// Where the store is and how to log in, checked without any I/O.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Connection {
    /// 1 to 16, tried in this order.
    pub hosts: Vec<Host>,
    /// The role to log in as.
    pub user: String,
    /// Where the password comes from.
    pub password: Password,
    /// The database.
    pub dbname: String,
    /// How TCP connections are protected. Unix sockets have no TLS, whatever this says.
    pub tls: Tls,
    /// The name in `pg_stat_activity`.
    pub application_name: String,
    /// DNS servers to ask; none: the system's.
    pub nameservers: Vec<SocketAddr>,
}

/// Where the password comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    /// The server is to ask for none.
    None,
    /// This text.
    Given(Secret),
    /// The first line of this file, read again when the server has refused it: passwords rotate.
    File(PathBuf),
    /// The first line that this command prints, run by `sh -c`, and again when the server has refused it.
    Command(String),
}

impl Connection {
    /// What these settings say. Nothing is read: no file, no environment, no network.
    ///
    /// # Errors
    /// Nothing names a host or a user; something is unknown, unsupported or contradicts itself. The message names the
    /// setting and the way out, and holds no password.
    pub fn of(settings: &Settings) -> Result<Self, SettingsError> {
        let sources = Sources::of(settings)?;
        let hosts = hosts(&sources, settings)?;
        let Some(user) = sources.word("user") else {
            return Err(SettingsError(
                "nothing says which role to log in as: set user (CALL_BUDGET_USER), or name it in database_url".into(),
            ));
        };
        let dbname = sources.word("dbname").map_or_else(|| user.text.to_owned(), |word| word.text.to_owned());
        Ok(Self {
            password: password(&sources, settings)?,
            tls: tls::tls(&sources, &hosts)?,
            application_name: sources.word("application_name").map_or("call-budget", |word| word.text).to_owned(),
            nameservers: nameservers(&settings.nameservers)?,
            user: user.text.to_owned(),
            hosts,
            dbname,
        })
    }
}

/// What a refusal says where nothing names a host.
pub(super) const NO_STORE: &str = "says where the store is";

fn hosts(sources: &Sources, settings: &Settings) -> Result<Vec<Host>, SettingsError> {
    let Some(list) = sources.word("host") else {
        let switch = if settings.enabled { "call_budget_enabled is true, but nothing" } else { "nothing" };
        return Err(SettingsError(format!(
            "{switch} {NO_STORE}: set database_url (CALL_BUDGET_DATABASE_URL), such as \
             postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or host (CALL_BUDGET_HOST)"
        )));
    };
    let places = place::places(list.text).map_err(|fault| list.refused(&fault))?;
    let (ports, said_by) = match sources.word("port") {
        Some(word) => (place::ports(word.text).map_err(|fault| word.refused(&fault))?, word.said_by),
        None => (vec![place::DEFAULT_PORT], String::new()),
    };
    if ports.len() != 1 && ports.len() != places.len() {
        return Err(SettingsError(format!(
            "{said_by} names {} ports and {} names {} hosts: give one port for all, or one for each",
            ports.len(),
            list.said_by,
            places.len(),
        )));
    }
    let ports = ports.into_iter().cycle();
    Ok(places.into_iter().zip(ports).map(|(place, port)| Host { place, port }).collect())
}

fn password(sources: &Sources, settings: &Settings) -> Result<Password, SettingsError> {
    let filled = |text: &&str| !text.is_empty();
    let given = settings.password.as_ref().map(Secret::as_str).filter(filled);
    let file = settings.password_file.as_ref().filter(|path| !path.as_os_str().is_empty());
    let command = settings.password_command.as_deref().filter(filled);
    let named: Vec<&str> =
        [given.map(|_| "password"), file.map(|_| "password_file"), command.map(|_| "password_command")]
            .into_iter()
            .flatten()
            .collect();
    if named.len() > 1 {
        return Err(SettingsError(format!(
            "the settings {} are all set: keep one, so that it is clear which password counts",
            named.join(" and ")
        )));
    }
    Ok(match (file, command, sources.word("password")) {
        (Some(file), ..) => Password::File(file.clone()),
        (_, Some(command), _) => Password::Command(command.to_owned()),
        (_, _, Some(word)) => Password::Given(word.text.into()),
        _ => Password::None,
    })
}

fn nameservers(list: &[String]) -> Result<Vec<SocketAddr>, SettingsError> {
    const DNS_PORT: u16 = 53;
    const MOST: usize = 8;
    if list.len() > MOST {
        return Err(SettingsError(format!(
            "the setting nameservers has {} entries: at most {MOST} are asked",
            list.len()
        )));
    }
    list.iter()
        .map(|text| {
            let text = text.trim();
            let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
            let address = bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
            match address.or_else(|_| text.parse::<SocketAddr>()) {
                Ok(address) if address.port() != 0 => Ok(address),
                _ => Err(SettingsError(format!(
                    "the setting nameservers has {text:?}: write addresses, such as [\"10.0.0.2\", \"127.0.0.1:5353\", \"[::1]:53\"]"
                ))),
            }
        })
        .collect()
}
