use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::tools::certificates::{Identity, Shown};
use crate::tools::kept::told;
use crate::tools::tls_server::{Clients, TlsServer};

#[test]
fn plain_connections_are_refused_and_verified_ones_served_under_every_name() {
    let server = TlsServer::start(&["db.test"], Shown::Good, Clients::ByPassword, &[("work_mem", "5MB")]);
    let plain = connect(&server, "localhost", "disable", None, None).unwrap_err();
    assert!(plain.contains("no encryption"), "{plain}");
    for host in ["localhost", "127.0.0.1"] {
        for root in [server.certificates().authority(), server.certificates().bundle()] {
            assert_eq!(connect(&server, host, "verify-full", Some(&root), None).unwrap(), "true 5MB");
        }
    }
    assert_eq!(server.ask("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").unwrap(), "t");
}

#[test]
fn another_certificate_is_shown_without_a_restart_and_old_connections_live_on() {
    let server = TlsServer::start(&[], Shown::Good, Clients::ByPassword, &[]);
    let root = server.certificates().authority();
    let mut session = server
        .program("psql")
        .args(["-XAtq", "postgres"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = session.stdin.take().unwrap();
    let mut answers = BufReader::new(session.stdout.take().unwrap()).lines();
    let mut alive = || {
        writeln!(orders, "SELECT 'alive';").unwrap();
        answers.next().unwrap().unwrap()
    };
    assert_eq!(alive(), "alive");
    for (shown, complaint) in [
        (Shown::WrongHost, "does not match host name"),
        (Shown::Expired, "certificate verify failed"),
        (Shown::UnknownAuthority, "certificate verify failed"),
    ] {
        server.show(shown);
        let error = connect(&server, "localhost", "verify-full", Some(&root), None).unwrap_err();
        assert!(error.contains(complaint), "{shown:?}: {error}");
        assert_eq!(alive(), "alive");
    }
    server.show(Shown::Renewed);
    connect(&server, "localhost", "verify-full", Some(&root), None).unwrap();
    assert_eq!(alive(), "alive");
    drop(orders);
    assert!(session.wait().unwrap().success());
}

#[test]
fn where_clients_need_a_certificate_only_one_of_the_authority_will_do() {
    let server = TlsServer::start(&[], Shown::Good, Clients::ByCertificateToo, &[]);
    let root = server.certificates().authority();
    let attempt = |client: Option<Identity>| connect(&server, "localhost", "verify-full", Some(&root), client);
    let without = attempt(None).unwrap_err();
    assert!(without.contains("valid client certificate"), "{without}");
    let stranger = attempt(Some(server.certificates().stranger_client())).unwrap_err();
    assert!(stranger.contains("unknown ca"), "{stranger}");
    assert_eq!(attempt(Some(server.certificates().client())).unwrap(), "true 4MB");
    server.show(Shown::Renewed);
    assert_eq!(attempt(Some(server.certificates().client())).unwrap(), "true 4MB");
}

/// Whether the session has TLS, and the server's work_mem, by libpq.
fn connect(
    server: &TlsServer,
    host: &str,
    mode: &str,
    root: Option<&Path>,
    client: Option<Identity>,
) -> Result<String, String> {
    let nowhere = Path::new("/nonexistent");
    let client = client.unwrap_or_else(|| Identity { certificate: nowhere.to_owned(), key: nowhere.to_owned() });
    let mut command = server.program("psql");
    command.env("PGSSLMODE", mode).env("PGSSLROOTCERT", root.unwrap_or(nowhere));
    command.env("PGSSLCERT", client.certificate).env("PGSSLKEY", client.key);
    let sql = "SELECT ssl || ' ' || current_setting('work_mem') FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    command.args(["-XAtq", "-c", sql, &server.url(host, "postgres")]);
    told(&mut command, Duration::from_secs(30))
}
