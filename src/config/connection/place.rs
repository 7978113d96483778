//! Where a server listens.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// One server to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name, address or socket directory.
    pub place: Place,
    /// 1 to 65535. On a Unix socket a part of the file's name.
    pub port: u16,
}

/// A name to look up, an address, or the directory of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Looked up in `/etc/hosts` and DNS; `localhost` too.
    Name(String),
    /// Nothing to look up.
    Address(IpAddr),
    /// The directory that holds `.s.PGSQL.PORT`. No TLS there.
    Socket(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Name(name) => f.write_str(name),
            Place::Address(address) => address.fmt(f),
            Place::Socket(directory) => directory.display().fmt(f),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { place, port } = self;
        match place {
            Place::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{port}"),
            Place::Socket(directory) => directory.join(format!(".s.PGSQL.{port}")).display().fmt(f),
            _ => write!(f, "{place}:{port}"),
        }
    }
}

pub(super) const DEFAULT_PORT: u16 = 5432;
/// All are tried within one deadline of about a second: more would only look like safety.
const MOST_HOSTS: usize = 16;
/// The longest name that DNS can hold.
const LONGEST_NAME: usize = 253;

/// The places in a list such as `db-1.example, 10.0.0.7, [::1], /run/postgresql`.
///
/// # Errors
/// The end of a sentence that begins with who said it.
pub(super) fn places(list: &str) -> Result<Vec<Place>, String> {
    let places = list.split(',').map(|text| place(text.trim())).collect::<Result<Vec<_>, _>>()?;
    if places.len() > MOST_HOSTS {
        return Err(format!("names {} hosts: at most {MOST_HOSTS} are tried", places.len()));
    }
    Ok(places)
}

fn place(text: &str) -> Result<Place, String> {
    if text.is_empty() {
        return Err("has an empty host in its list: write h1,h2".into());
    }
    if text.starts_with('/') {
        return Ok(Place::Socket(text.into()));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Ok(Place::Address(address));
    }
    if text.starts_with('@') {
        return Err("names an abstract socket: use a directory that begins with /".into());
    }
    if text.contains(':') {
        return Err(
            "has a host with a : that is no IPv6 address: the port goes into port, a zone such as %eth0 is not supported"
                .into(),
        );
    }
    // Not quoted: what stands here may be a piece of a password that was not encoded.
    if text.len() > LONGEST_NAME || !text.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c)) {
        return Err(format!(
            "has a host that is no name, no address and no directory that begins with /: a name has letters, digits, \
             '-', '_' and '.', at most {LONGEST_NAME} bytes"
        ));
    }
    Ok(Place::Name(text.into()))
}

/// The ports of a list such as `5432` or `5432,,6432`; an empty one is 5432.
///
/// # Errors
/// As [`places`].
pub(super) fn ports(list: &str) -> Result<Vec<u16>, String> {
    list.split(',')
        .map(str::trim)
        .map(|text| match text.parse() {
            _ if text.is_empty() => Ok(DEFAULT_PORT),
            Ok(port) if port > 0 && !text.starts_with('+') => Ok(port),
            _ => Err("has a port that is not a number from 1 to 65535".into()),
        })
        .collect()
}
