//! PgBouncer in transaction mode in front of a scratch server, with its admin console.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use call_budget::service::scratch_postgres::ScratchPostgres;
use tempfile::TempDir;

use super::certificates::write;
use super::kept::{Kept, holds_within};
use super::psql::try_ask_at;

/// A running PgBouncer on 127.0.0.1. It ends with the value.
pub struct PgBouncer {
    /// `None` while killed.
    process: Option<Kept>,
    program: PathBuf,
    folder: TempDir,
    owner: (u32, u32),
    port: u16,
}

impl PgBouncer {
    /// Starts one with at most `pool` connections to the server for each pair of database and role. `roles` are names and
    /// passwords of those that may log in besides `postgres`: asking the server for them would take connections of its
    /// own. `settings` go into its configuration after our own (the last of a name counts). Our own differ from the
    /// defaults in `server_login_retry`, 1 s: with the default, 15 s pass after an outage before it tries again.
    ///
    /// An error says what to install.
    pub fn start(
        server: &ScratchPostgres,
        pool: usize,
        roles: &[(&str, &str)],
        settings: &[(&str, &str)],
    ) -> Result<Self, String> {
        let program = find().ok_or("no PgBouncer found here: install it (sudo apt install pgbouncer)")?;
        let data_dir = server.data_dir().ok_or("PgBouncer needs a PostgreSQL on this machine")?;
        // It refuses root as PostgreSQL does, so it runs as whom the server runs as.
        let owner = fs::metadata(data_dir).map(|meta| (meta.uid(), meta.gid())).map_err(|error| error.to_string())?;
        let folder = tempfile::Builder::new().prefix("call-budget-pgbouncer-").tempdir();
        let folder = folder.map_err(|error| format!("no temporary folder for PgBouncer: {error}"))?;
        let mut bouncer = Self { process: None, program, folder, owner, port: free_port()? };
        bouncer.configure(server, pool, roles, settings);
        bouncer.restart();
        Ok(bouncer)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same database through PgBouncer: `url` is one of the server's own, of any role.
    pub fn url(&self, server: &ScratchPostgres, url: &str) -> String {
        url.replacen(&format!(":{}/", server.port()), &format!(":{}/", self.port), 1)
    }

    /// Finishes transactions, then lets everybody wait: [`Self::resume`] ends it. 30 s at most.
    pub fn pause(&self, server: &ScratchPostgres) {
        self.order(server, "PAUSE");
    }

    /// Ends a pause.
    pub fn resume(&self, server: &ScratchPostgres) {
        self.order(server, "RESUME");
    }

    /// Drops all connections of a database, of clients and to the server, and lets newcomers wait until
    /// [`Self::resume_database`].
    pub fn kill_database(&self, server: &ScratchPostgres, database: &str) {
        self.order(server, &format!("KILL {database}"));
    }

    /// Lets newcomers in again after [`Self::kill_database`].
    pub fn resume_database(&self, server: &ScratchPostgres, database: &str) {
        self.order(server, &format!("RESUME {database}"));
    }

    /// How many connections it holds to the server for that database, by its own count.
    pub fn server_connections(&self, server: &ScratchPostgres, database: &str) -> usize {
        let rows = self.order(server, "SHOW SERVERS");
        rows.lines().filter(|row| row.split('|').nth(2) == Some(database)).count()
    }

    /// What the admin console answers: rows by line, columns by `|`.
    pub fn order(&self, server: &ScratchPostgres, order: &str) -> String {
        try_ask_at(server, self.port, "pgbouncer", order).unwrap_or_else(|error| panic!("PgBouncer, {order}: {error}"))
    }

    /// `kill -9`; [`Self::restart`] brings it back on its port.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it after [`Self::kill`]. Returns when it takes connections.
    pub fn restart(&mut self) {
        let configuration = self.folder.path().join("pgbouncer.ini");
        self.process = Some(Kept::start(&self.program, &[configuration], self.owner, &self.log()));
        let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        assert!(holds_within(Duration::from_secs(10), listens), "PgBouncer does not listen: {}", self.last_words());
    }

    /// The running process, for signals such as STOP and CONT.
    pub fn process(&self) -> &Kept {
        self.process.as_ref().expect("PgBouncer was killed and not restarted")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn last_words(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default().lines().rev().take(3).collect::<Vec<_>>().join("; ")
    }

    fn configure(&self, server: &ScratchPostgres, pool: usize, roles: &[(&str, &str)], settings: &[(&str, &str)]) {
        let url = server.url("postgres");
        let password = url.split([':', '@']).nth(2).expect("a scratch server's URL has a password");
        let users = self.folder.path().join("users");
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let lines = [("postgres", password)]
            .iter()
            .chain(roles)
            .fold(String::new(), |lines, (name, password)| format!("{lines}{} {}\n", quoted(name), quoted(password)));
        write(&users, lines.as_bytes(), 0o600);
        let mut text = format!(
            "[databases]\n* = host={host} port={port}\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {own}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {users}\n\
             admin_users = postgres\npool_mode = transaction\ndefault_pool_size = {pool}\nmax_client_conn = 1000\n\
             server_login_retry = 1\n",
            host = server.address(),
            port = server.port(),
            own = self.port,
            users = users.display(),
        );
        for (name, value) in settings {
            text += &format!("{name} = {value}\n");
        }
        let configuration = self.folder.path().join("pgbouncer.ini");
        write(&configuration, text.as_bytes(), 0o600);
        for path in [self.folder.path(), &users, &configuration] {
            chown(path, Some(self.owner.0), Some(self.owner.1)).expect("we may give away what we made");
        }
        fs::set_permissions(self.folder.path(), Permissions::from_mode(0o700)).expect("we may close what we made");
    }
}

/// Whether there is one here, or why not.
pub fn available() -> Result<(), String> {
    find().map(|_| ()).ok_or_else(|| "no PgBouncer found here (sudo apt install pgbouncer)".to_owned())
}

/// Debian keeps it outside the PATH of plain users.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    places.map(|place| place.join("pgbouncer")).find(|program| Path::is_file(program))
}

/// Below those that systems give to outgoing connections: one of these could take it while PgBouncer is down.
fn free_port() -> Result<u16, String> {
    (0..1000)
        .map(|_| fastrand::u16(15_000..32_000))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| "no free port on 127.0.0.1 for PgBouncer".to_owned())
}
