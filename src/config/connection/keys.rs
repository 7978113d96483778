//! The names that libpq knows: the ten that are read here, and the others with the reason why not.

use super::super::nearest::nearest;

/// What a URL or a `key=value` text may say, and the variable that says the same.
pub(in crate::config) const KEYS: [(&str, &str); 10] = [
    ("host", "PGHOST"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("dbname", "PGDATABASE"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("application_name", "PGAPPNAME"),
];

/// Variables that would send libpq to another server, log in otherwise, or check more. To ignore one could mean to
/// trust the wrong server; the rest of libpq's variables is of no weight here and is left alone.
pub(in crate::config) const REFUSED_VARIABLES: [(&str, &str); 13] = [
    ("PGHOSTADDR", "hostaddr"),
    ("PGSERVICE", "service"),
    ("PGPASSFILE", "passfile"),
    ("PGOPTIONS", "options"),
    ("PGREQUIREAUTH", "require_auth"),
    ("PGREQUIREPEER", "requirepeer"),
    ("PGREQUIRESSL", "requiressl"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGSSLNEGOTIATION", "sslnegotiation"),
    ("PGSSLCRL", "sslcrl"),
    ("PGSSLCRLDIR", "sslcrldir"),
    ("PGSSLMINPROTOCOLVERSION", "ssl_min_protocol_version"),
    ("PGSSLMAXPROTOCOLVERSION", "ssl_max_protocol_version"),
];

/// The key as it is written here.
///
/// # Errors
/// Why it is not read, as the end of a sentence that names it.
pub(super) fn known(key: &str) -> Result<&'static str, String> {
    if let Some((known, _)) = KEYS.iter().find(|(known, _)| *known == key) {
        return Ok(known);
    }
    Err(match why_not(key) {
        Some(reason) => format!("is not supported: {reason}"),
        None => {
            let names = || KEYS.iter().map(|(known, _)| *known);
            match nearest(key, names()) {
                Some(known) => format!("is unknown: did you mean \"{known}\"?"),
                None => format!("is unknown: known are {}", names().collect::<Vec<_>>().join(", ")),
            }
        }
    })
}

/// Whether one can name it without giving anything away: nobody's password is near a key by chance.
pub(super) fn is_libpqs(key: &str) -> bool {
    why_not(key).is_some() || KEYS.iter().any(|(known, _)| *known == key)
}

/// Why a key that libpq knows is not read here, and what to do.
pub(super) fn why_not(key: &str) -> Option<&'static str> {
    Some(match key {
        "hostaddr" => "write the address as host; the certificate is then checked against the address",
        "options" => "start-up options are lost behind a pooler: set them on the role (ALTER ROLE ... SET)",
        "connect_timeout" | "tcp_user_timeout" => {
            "every store call has one deadline over all its stages, see statement_timeout"
        }
        "keepalives" | "keepalives_idle" | "keepalives_interval" | "keepalives_count" | "keepalives_retries" => {
            "every connection has keepalives of its own, remove it"
        }
        "target_session_attrs" => "name all hosts: a read-only one is left for the next",
        "load_balance_hosts" => "hosts are tried in the order in which they are named",
        "passfile" => "use the setting password_file (its first line is the password) or password_command",
        "password_file" | "password_command" | "nameservers" => "it is a setting of its own, beside database_url",
        "service" | "servicefile" => "name host, user and dbname themselves",
        "channel_binding" | "require_auth" => {
            "use sslmode=verify-full: the certificate says which server it is; channel binding is used where the server offers it"
        }
        "sslnegotiation" => "TLS is asked for as every PostgreSQL understands it, remove it",
        "requiressl" => "use sslmode=verify-full",
        "requirepeer" => "protect the socket's directory, or use TCP with sslmode=verify-full",
        "sslcrl" | "sslcrldir" => {
            "revocation lists are not read: use short-lived certificates, or a root certificate of the server's own"
        }
        "sslpassword" => "the key in sslkey must not be encrypted: protect the file",
        "sslcertmode" => "a certificate is sent where sslcert and sslkey are set",
        "sslcompression" | "sslsni" | "sslkeylogfile" => "TLS is set up in one way only, remove it",
        "ssl_min_protocol_version" | "ssl_max_protocol_version" | "min_protocol_version" | "max_protocol_version" => {
            "the newest version that both sides speak is used, remove it"
        }
        "gssencmode" | "krbsrvname" | "gsslib" | "gssdelegation" => {
            "GSSAPI is not spoken: use a password or a client certificate"
        }
        "client_encoding" => "the wire is UTF-8, remove it",
        "fallback_application_name" => "use application_name",
        "replication" => "a replication session cannot take slots, remove it",
        _ => return None,
    })
}
