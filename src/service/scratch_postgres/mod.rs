//! A throw-away PostgreSQL for the demo, the bench and the tests.
//!
//! It listens on loopback only, wants a password that nobody else knows, and lives in a temporary folder. It is stopped
//! and its folder removed when the value is dropped, and also when this process is killed. Several at once, of this or of
//! another process, do not disturb each other. Its durability settings are PostgreSQL's own (on) unless asked otherwise.

mod installation;
mod keeper;
mod options;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use self::installation::{IMAGE, Installation};
use self::keeper::{Keeper, unusable};
pub use self::options::ScratchOptions;

/// A running PostgreSQL that ends with this value. Its functions block: at most a few seconds, a minute where an image is
/// fetched; every wait is bounded.
pub struct ScratchPostgres {
    keeper: Keeper,
    // After the keeper, which removes it: fields are dropped in order.
    folder: TempDir,
    installation: Installation,
    address: Ipv4Addr,
    port: u16,
    password: String,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Connections are ended, everything is written.
    Fast,
    /// Like a crash, without losing what the operating system holds: the next start recovers.
    Immediate,
    /// `kill -9` of the server's first process.
    Kill,
}

/// Why there is no throw-away PostgreSQL: one sentence with the way out.
#[derive(Debug)]
pub struct ScratchError(String);

impl ScratchPostgres {
    /// Starts one from what this machine has: `PG_BIN`, PATH, Debian's or Homebrew's places, or Docker.
    ///
    /// `settings` are passed on as `-c name=value`.
    pub fn start(settings: &[(&str, &str)]) -> Result<Self, ScratchError> {
        Self::start_with(&ScratchOptions { settings, ..ScratchOptions::default() })
    }

    /// Starts one that differs from others in more than its settings.
    pub fn start_with(options: &ScratchOptions<'_>) -> Result<Self, ScratchError> {
        let installation = Installation::find()?;
        options.check(&installation)?;
        let mut naming = tempfile::Builder::new();
        naming.prefix("call-budget-postgres-");
        let folder = match options.within {
            Some(place) => naming.tempdir_in(place),
            None => naming.tempdir(),
        };
        let folder = folder.map_err(|error| ScratchError(format!("no temporary folder for PostgreSQL: {error}")))?;
        let password = match options.standby_of {
            Some(primary) => primary.password.clone(),
            None => std::iter::repeat_with(fastrand::alphanumeric).take(24).collect(),
        };
        for (file, content) in [("password", &password), ("environment", &options.environment_script())] {
            fs::write(folder.path().join(file), content).map_err(|error| unusable(folder.path(), &error))?;
        }
        let settings: Vec<_> = [("max_connections", ENOUGH_CONNECTIONS)]
            .iter()
            .chain(options.settings)
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let keeper = Keeper::spawn(&installation, folder.path(), options.address, &settings)?;
        let mut server = Self { keeper, folder, installation, address: options.address, port: 0, password };
        server.prepare(options.standby_of)?;
        match options.port {
            Some(port) => server.start_on(port)?,
            None => server.start_on_a_free_port()?,
        }
        Ok(server)
    }

    /// The URL of a database of this server, for its superuser `postgres`. The first database is `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres:{}@{}:{}/{database}?sslmode=disable", self.password, self.address, self.port)
    }

    /// Where it listens.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The port at that address. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's data directory; `None` where it lives in a container.
    pub fn data_dir(&self) -> Option<PathBuf> {
        self.bin_dir().map(|_| self.folder.path().join("data"))
    }

    /// Where the server's programs are; `None` where it lives in a container.
    pub fn bin_dir(&self) -> Option<&Path> {
        match &self.installation {
            Installation::Local(bin) => Some(bin),
            Installation::Docker => None,
        }
    }

    /// A client program of this server's own version (psql, pg_dump), set up to connect to it as `postgres`. It reads
    /// stdin and writes stdout; files of this machine are not within its reach where the server lives in a container.
    pub fn program(&self, name: &str) -> Command {
        let target = |host_port: u16| {
            [
                ("PGHOST", self.address.to_string()),
                ("PGPORT", host_port.to_string()),
                ("PGUSER", "postgres".to_owned()),
                ("PGPASSWORD", self.password.clone()),
            ]
        };
        match self.bin_dir() {
            Some(bin) => {
                let mut command = Command::new(bin.join(name));
                command.envs(target(self.port));
                command
            }
            None => {
                let mut command = Command::new("docker");
                command.args(["exec", "--interactive"]);
                for (key, value) in target(5432) {
                    command.arg("--env").arg(format!("{key}={value}"));
                }
                command.arg(self.folder.path().file_name().expect("a temporary folder has a name")).arg(name);
                command
            }
        }
    }

    /// Stops the server; [`resume`](Self::resume) starts it again.
    pub fn halt(&mut self, how: Halt) -> Result<(), ScratchError> {
        let signal = match how {
            Halt::Fast => "INT",
            Halt::Immediate => "QUIT",
            Halt::Kill => "KILL",
        };
        if self.keeper.order(&format!("halt {signal}"), STOP_PATIENCE) {
            Ok(())
        } else {
            Err(self.failure("could not be stopped"))
        }
    }

    /// Starts the halted server again, with its data and on its port.
    pub fn resume(&mut self) -> Result<(), ScratchError> {
        // Processes of a killed server take a moment to notice, and somebody may sit on the port for another.
        for _ in 0..TRIES {
            if self.keeper.order(&format!("start {}", self.port), START_PATIENCE) {
                return Ok(());
            }
        }
        Err(self.failure("did not start again"))
    }

    /// Stops the server and starts it again.
    pub fn restart(&mut self, how: Halt) -> Result<(), ScratchError> {
        self.halt(how)?;
        self.resume()
    }

    /// Stops the server and removes its folder. Dropping does the same and says nothing.
    pub fn stop(mut self) -> Result<(), ScratchError> {
        if self.keeper.end(STOP_PATIENCE) { Ok(()) } else { Err(self.failure("could not be stopped")) }
    }

    fn prepare(&mut self, standby_of: Option<&ScratchPostgres>) -> Result<(), ScratchError> {
        let local = match standby_of {
            Some(primary) => format!("copy {} {}", primary.address, primary.port),
            None => "prepare".to_owned(),
        };
        match self.installation {
            Installation::Local(_) if self.keeper.order(&local, START_PATIENCE) => Ok(()),
            Installation::Local(_) => Err(self.failure("could not be set up")),
            Installation::Docker if self.keeper.order("prepare", FETCH_PATIENCE) => Ok(()),
            Installation::Docker => {
                let what = format!("no PostgreSQL found here, and Docker has no image {IMAGE} ({})", self.last_words());
                Err(installation::missing(&what))
            }
        }
    }

    fn start_on(&mut self, port: u16) -> Result<(), ScratchError> {
        self.port = port;
        if self.keeper.order(&format!("start {port}"), START_PATIENCE) {
            Ok(())
        } else {
            Err(self.failure("did not start"))
        }
    }

    fn start_on_a_free_port(&mut self) -> Result<(), ScratchError> {
        for _ in 0..TRIES {
            self.port = free_port(self.address)?;
            if self.keeper.order(&format!("start {}", self.port), START_PATIENCE) {
                return Ok(());
            }
            // Somebody else may have taken the port in between; anything else will not get better.
            let words = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            if !["could not bind", "port is already allocated", "address already in use"]
                .iter()
                .any(|s| words.contains(s))
            {
                break;
            }
        }
        Err(self.failure("did not start"))
    }

    fn failure(&self, what: &str) -> ScratchError {
        let origin = match &self.installation {
            Installation::Local(bin) => bin.display().to_string(),
            Installation::Docker => format!("Docker image {IMAGE}"),
        };
        ScratchError(format!("the throw-away PostgreSQL ({origin}) {what}: {}", self.last_words()))
    }

    /// The end of the server's log on one line.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() { "it left no log".into() } else { lines[lines.len().saturating_sub(3)..].join("; ") }
    }
}

impl Drop for ScratchPostgres {
    fn drop(&mut self) {
        self.keeper.end(STOP_PATIENCE);
    }
}

impl fmt::Display for ScratchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ScratchError {}

/// A port that is free now, below those that systems give to outgoing connections: one of these could take it while the
/// server restarts.
fn free_port(address: Ipv4Addr) -> Result<u16, ScratchError> {
    (0..1000)
        .map(|_| fastrand::u16(15_000..32_000))
        .find(|port| TcpListener::bind((address, *port)).is_ok())
        .ok_or_else(|| ScratchError(format!("no free port on {address} for PostgreSQL")))
}

/// Tests and fleets open many at once.
const ENOUGH_CONNECTIONS: &str = "300";
const TRIES: usize = 5;
const START_PATIENCE: Duration = Duration::from_secs(90);
const STOP_PATIENCE: Duration = Duration::from_secs(60);
const FETCH_PATIENCE: Duration = Duration::from_secs(600);
