//! What TLS must prove before a password is sent.

use std::path::PathBuf;

use super::place::{Host, Place};
use super::sources::Sources;
use crate::config::SettingsError;
use crate::config::nearest::nearest;

/// How TCP connections are protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// What the server must prove.
    pub mode: TlsMode,
    /// A file of certificates to trust instead of the system's; none: the system's.
    pub root_cert: Option<PathBuf>,
    /// What this process shows of itself.
    pub client: Option<ClientCertificate>,
}

/// What the server must prove. Never less than what is said here: no mode falls back to plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Plain text: on this machine, a private network or a tunnel.
    Disable,
    /// Encrypted, and nobody is checked: it helps against listeners only.
    Require,
    /// A certificate that a trusted one signed, whatever name is in it.
    VerifyCa,
    /// As `VerifyCa`, and the name or address of the host is in it. The default over TCP.
    VerifyFull,
}

/// A certificate and its key, both PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, and those that signed it.
    pub cert: PathBuf,
    /// Its key, not encrypted.
    pub key: PathBuf,
}

const MODES: [(&str, TlsMode); 4] = [
    ("disable", TlsMode::Disable),
    ("require", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
    ("verify-full", TlsMode::VerifyFull),
];

pub(super) fn tls(sources: &Sources, hosts: &[Host]) -> Result<Tls, SettingsError> {
    let only_sockets = hosts.iter().all(|host| matches!(host.place, Place::Socket(_)));
    let root = sources.word("sslrootcert");
    let root_cert = root.as_ref().map(|word| word.text).filter(|text| *text != "system").map(PathBuf::from);
    let client = client_certificate(sources)?;
    let Some(word) = sources.word("sslmode") else {
        let mode = if only_sockets { TlsMode::Disable } else { TlsMode::VerifyFull };
        return Ok(Tls { mode, root_cert, client });
    };
    let mode = mode(word.text).map_err(|fault| word.refused(&fault))?;
    let mode = match mode {
        // libpq's rule, kept so that the same words check no less here.
        TlsMode::Require if root_cert.is_some() => TlsMode::VerifyCa,
        TlsMode::Require if root.is_some() => {
            return Err(word.refused("is require, which checks no certificate, but sslrootcert=system asks for a check: use sslmode=verify-full"));
        }
        // Everybody can get a certificate that the system trusts: without the name it proves nothing.
        TlsMode::VerifyCa if root_cert.is_none() && !only_sockets => {
            return Err(word.refused("is verify-ca without a file in sslrootcert: anybody's certificate would do; use verify-full or name the file"));
        }
        mode => mode,
    };
    Ok(Tls { mode, root_cert, client })
}

fn mode(text: &str) -> Result<TlsMode, String> {
    if let Some((_, mode)) = MODES.iter().find(|(name, _)| *name == text) {
        return Ok(*mode);
    }
    let names = || MODES.iter().map(|(name, _)| *name);
    if ["allow", "prefer"].contains(&text) {
        return Err(format!(
            "is {text}, which may fall back to plain text: use verify-full, or disable on a network that you trust"
        ));
    }
    let listed = names().collect::<Vec<_>>().join(", ");
    Err(match nearest(text, names()) {
        Some(near) => format!("is none of {listed}: did you mean \"{near}\"?"),
        None => format!("is none of {listed}"),
    })
}

fn client_certificate(sources: &Sources) -> Result<Option<ClientCertificate>, SettingsError> {
    match (sources.word("sslcert"), sources.word("sslkey")) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some(ClientCertificate { cert: cert.text.into(), key: key.text.into() })),
        (Some(cert), None) => Err(cert.refused("is set without sslkey: name the certificate's key too")),
        (None, Some(key)) => Err(key.refused("is set without sslcert: name the key's certificate too")),
    }
}
