//! STUB until the settings branch is merged.
#![allow(missing_docs)]
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::{Settings, SettingsError};

#[derive(Clone, Debug)]
pub struct Connection {
    pub hosts: Vec<Host>,
    pub user: String,
    pub password: Password,
    pub dbname: String,
    pub tls: Tls,
    pub application_name: String,
    pub nameservers: Vec<SocketAddr>,
}
#[derive(Clone, Debug)]
pub struct Host {
    pub place: Place,
    pub port: u16,
}
#[derive(Clone, Debug)]
pub enum Place {
    Name(String),
    Address(IpAddr),
    Socket(PathBuf),
}
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Name(n) => f.write_str(n),
            Place::Address(a) => write!(f, "{a}"),
            Place::Socket(p) => write!(f, "{}", p.display()),
        }
    }
}
#[derive(Clone)]
pub struct Secret(String);
impl Secret {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}
#[derive(Clone, Debug)]
pub enum Password {
    None,
    Given(Secret),
    File(PathBuf),
    Command(String),
}
#[derive(Clone, Debug)]
pub struct Tls {
    pub mode: TlsMode,
    pub root_cert: Option<PathBuf>,
    pub client: Option<ClientCertificate>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    Disable,
    Require,
    VerifyCa,
    VerifyFull,
}
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}
impl Connection {
    #[cfg(test)]
    pub fn example() -> Self {
        Self {
            hosts: vec![],
            user: "u".into(),
            password: Password::None,
            dbname: "d".into(),
            tls: Tls { mode: TlsMode::Disable, root_cert: None, client: None },
            application_name: "x".into(),
            nameservers: vec![],
        }
    }
    pub fn of(settings: &Settings) -> Result<Self, SettingsError> {
        use tokio_postgres::config::Host as H;
        let url = settings.database_url.as_ref().ok_or_else(|| SettingsError(
            "call_budget_enabled is true but database_url is not set: set CALL_BUDGET_DATABASE_URL".into(),
        ))?;
        let c: tokio_postgres::Config = url.as_str().replace("?sslmode=disable", "").parse().map_err(|_| SettingsError("database_url cannot be read: write it as postgresql://user:password@host:port/database, special characters percent-encoded".into()))?;
        let H::Tcp(h) = &c.get_hosts()[0] else { return Err(SettingsError("host".into())) };
        let place = h.parse().map_or_else(|_| Place::Name(h.clone()), Place::Address);
        Ok(Self {
            hosts: vec![Host { place, port: c.get_ports().first().copied().unwrap_or(5432) }],
            user: c.get_user().unwrap_or("postgres").into(),
            password: c.get_password().map_or(Password::None, |p| Password::Given(Secret(String::from_utf8_lossy(p).into_owned()))),
            dbname: c.get_dbname().unwrap_or("postgres").into(),
            tls: Tls { mode: TlsMode::Disable, root_cert: None, client: None },
            application_name: settings.application_name.clone(),
            nameservers: vec![],
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.place, self.port)
    }
}
