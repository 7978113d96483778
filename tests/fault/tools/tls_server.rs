//! A PostgreSQL that speaks TLS only: plain connections are refused, and what certificate it shows can be changed while
//! it runs.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use call_budget::service::scratch_postgres::ScratchPostgres;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::X509;

use super::certificates::{Certificates, Shown, read, write};
use super::kept::{signal, told, within};

/// A TLS-only server with its certificates; both end with the value.
pub struct TlsServer {
    postgres: ScratchPostgres,
    certificates: Certificates,
}

/// What the server wants of its clients besides the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    ByPassword,
    /// And a certificate signed by the authority.
    ByCertificateToo,
}

impl TlsServer {
    /// Starts one that shows the certificate `shown`. The good certificates hold for localhost, 127.0.0.1 and `names`;
    /// `settings` are the server's.
    pub fn start(names: &[&str], shown: Shown, clients: Clients, settings: &[(&str, &str)]) -> Self {
        let postgres = ScratchPostgres::start(settings).unwrap_or_else(|error| panic!("{error}"));
        let server = Self { postgres, certificates: Certificates::make(names) };
        let authority = fs::read(server.certificates.authority()).expect("the authority's certificate was just made");
        server.place("root.crt", &authority);
        server.place("pg_hba.conf", only_tls(clients).as_bytes());
        let configuration = server.data_dir().join("postgresql.conf");
        let before = fs::read_to_string(&configuration).expect("a server has a configuration");
        server.place("postgresql.conf", format!("{before}\nssl = on\nssl_ca_file = 'root.crt'\n").as_bytes());
        server.show(shown);
        server
    }

    /// Shows another certificate from now on. Returns when new connections see it; old ones live on.
    pub fn show(&self, shown: Shown) {
        let identity = self.certificates.server(shown);
        for (file, source) in [("server.crt", &identity.certificate), ("server.key", &identity.key)] {
            self.place(file, &fs::read(source).expect("certificates live as long as the server"));
        }
        self.reload();
        let wanted = read(&identity.certificate).to_der().unwrap();
        within(Duration::from_secs(10), "the new certificate is shown", || {
            self.presented().is_some_and(|certificate| certificate.to_der().unwrap() == wanted)
        });
    }

    /// Lets this role in without TLS, from 127.0.0.1: for whoever looks at the server past all faults.
    pub fn let_in_plainly(&self, role: &str) {
        let before = fs::read_to_string(self.data_dir().join("pg_hba.conf")).expect("it was placed at the start");
        self.place("pg_hba.conf", format!("hostnossl all {role} 127.0.0.1/32 scram-sha-256\n{before}").as_bytes());
        self.reload();
    }

    /// The URL of a database for the superuser `postgres`, with that host name or address in it. What TLS it wants (and a
    /// client's certificate) is for the caller to add.
    pub fn url(&self, host: &str, database: &str) -> String {
        let url = self.postgres.url(database);
        let (before, after) = url.split_once("@127.0.0.1:").expect("a scratch server listens on 127.0.0.1");
        let (after, _) = after.split_once('?').expect("it says that there is no TLS, and here there is");
        format!("{before}@{host}:{after}")
    }

    pub fn port(&self) -> u16 {
        self.postgres.port()
    }

    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// To be halted and resumed.
    pub fn postgres(&mut self) -> &mut ScratchPostgres {
        &mut self.postgres
    }

    /// What psql answers, over TLS and with a client's certificate. Bounded by 30 s.
    pub fn ask(&self, sql: &str) -> Result<String, String> {
        told(self.program("psql").args(["-XAtq", "-c", sql, "postgres"]), Duration::from_secs(30))
    }

    /// A client program of the server's own version, set up to connect over TLS with a client's certificate whatever the
    /// server shows. See [`ScratchPostgres::program`].
    pub fn program(&self, name: &str) -> Command {
        let client = self.certificates.client();
        let mut command = self.postgres.program(name);
        // Nothing from the user's own folder: a root.crt there would be used.
        command.env("PGSSLMODE", "require").env("PGSSLROOTCERT", "/nonexistent");
        command.env("PGSSLCERT", client.certificate).env("PGSSLKEY", client.key);
        command
    }

    fn data_dir(&self) -> PathBuf {
        self.postgres.data_dir().expect("only a PostgreSQL on this machine can be given certificates")
    }

    /// Puts a file where the server reads it, for the server's user alone.
    fn place(&self, name: &str, content: &[u8]) {
        let folder = self.data_dir();
        let owner = fs::metadata(&folder).expect("the server has a data directory");
        let path = folder.join(name);
        write(&path, content, 0o600);
        chown(&path, Some(owner.uid()), Some(owner.gid())).expect("we may give away what we made");
    }

    fn reload(&self) {
        let pid_file = fs::read_to_string(self.data_dir().join("postmaster.pid")).expect("the server runs");
        signal(pid_file.lines().next().and_then(|line| line.parse().ok()).expect("its process id"), "HUP");
    }

    /// The certificate that a new connection sees; `None` while there is no TLS.
    fn presented(&self) -> Option<X509> {
        const TLS_PLEASE: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
        const PATIENCE: Duration = Duration::from_secs(5);
        let address = SocketAddr::from((self.postgres.address(), self.port()));
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(&TLS_PLEASE).ok()?;
        let mut answer = [0];
        stream.read_exact(&mut answer).ok()?;
        if answer != *b"S" {
            return None;
        }
        let mut connector = SslConnector::builder(SslMethod::tls()).unwrap();
        connector.set_verify(SslVerifyMode::NONE);
        connector.build().connect("localhost", stream).ok()?.ssl().peer_certificate()
    }
}

fn only_tls(clients: Clients) -> String {
    let certificate = match clients {
        Clients::ByPassword => "",
        Clients::ByCertificateToo => " clientcert=verify-ca",
    };
    format!(
        "hostssl all all 127.0.0.0/8 scram-sha-256{certificate}\nhostssl all all ::1/128 scram-sha-256{certificate}\n"
    )
}
