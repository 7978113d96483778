//! What a run stands on: a throw-away PostgreSQL, budgets made by the real program, and services that are the real program too.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use call_budget::service::scratch_postgres::ScratchPostgres;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command as Starting};

use crate::callers::Orders;
use crate::judge::Rule;
use crate::kept::{Kept, bounded, holds_within};
use crate::notes::Notes;

pub const CLASS: &str = "calls";
/// With the default send window and jitter a slot each 999 us.
const LIMIT: &str = "1103";
/// A slot a microsecond: there is always one.
const FREE_LIMIT: &str = "1000000";
const PROGRAM: &str = env!("CARGO_BIN_EXE_call-budget");
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Ground {
    // Before the folder: it is stopped before its settings go.
    _server: ScratchPostgres,
    folder: TempDir,
}

/// A `call-budget serve`. Dropped, it is killed.
pub struct Service {
    kept: Kept,
    pub address: SocketAddr,
}

impl Ground {
    /// Blocks for some seconds.
    pub fn start() -> Result<Self, String> {
        let server = ScratchPostgres::start(&[]).map_err(|error| error.to_string())?;
        let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let settings = format!("call_budget_enabled = true\ndatabase_url = {:?}\n", server.url("postgres"));
        let ground = Self { _server: server, folder };
        fs::write(ground.settings(), settings).map_err(|error| format!("no settings file: {error}"))?;
        ground.run(&["migrate"])?;
        Ok(ground)
    }

    /// A budget of 1,000 slots a second, with its one class.
    pub fn budget(&self, name: &str) -> Result<Rule, String> {
        self.set(name, LIMIT)
    }

    /// A budget that nobody waits for.
    pub fn free_budget(&self, name: &str) -> Result<(), String> {
        self.set(name, FREE_LIMIT).map(drop)
    }

    fn set(&self, name: &str, limit: &str) -> Result<Rule, String> {
        #[derive(Deserialize)]
        struct View {
            limit: u64,
            window_us: u64,
            send_window_us: u64,
            interval_us: u64,
            lookahead_us: u64,
        }
        self.run(&["budget", "set", name, "--limit", limit, "--window", "1s"])?;
        self.run(&["class", "set", name, CLASS, "--priority", "0", "--floor", "0"])?;
        let told = self.run(&["budget", "show", name, "--json"])?;
        let view: View = serde_json::from_str(&told).map_err(|error| format!("{error} in {told}"))?;
        let View { limit, window_us, send_window_us, interval_us, lookahead_us } = view;
        Ok(Rule { limit, window_us, send_window_us, interval_us, lookahead_us })
    }

    /// What the program says.
    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env_remove("DATABASE_URL").env("CALL_BUDGET_CONFIG", self.settings());
        let output = bounded(&mut command, PATIENCE)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!("call-budget {}: {}", arguments.join(" "), text(&output.stderr)))
        }
    }

    /// Blocks until it listens. The name tells its log from others'.
    pub fn serve(&self, name: &str) -> Result<Service, String> {
        let log = self.folder.path().join(format!("{name}.log"));
        let settings = format!("CALL_BUDGET_CONFIG={}", self.settings().display());
        let arguments =
            ["-u", "DATABASE_URL", "-u", "RUST_LOG", &settings, PROGRAM, "serve", "--listen", "127.0.0.1:0"];
        let ourselves = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let kept = Kept::start(Path::new("env"), &arguments, ourselves, &log);
        let mut address = None;
        let listens = holds_within(PATIENCE, || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let told = said.lines().find_map(|line| line.strip_prefix("listening on http://"));
            address = told.and_then(|told| told.trim().parse().ok());
            address.is_some()
        });
        match address {
            Some(address) if listens => Ok(Service { kept, address }),
            _ => Err(format!("the service does not listen: {}", fs::read_to_string(&log).unwrap_or_default())),
        }
    }

    /// What a service has said so far, its address aside: by default it says what is wrong.
    pub fn said(&self, name: &str) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
        log.lines().filter(|line| !line.starts_with("listening on")).map(str::to_owned).collect()
    }

    /// A process of callers; what it has seen comes when the moment in its orders is over.
    pub async fn callers(&self, orders: &Orders) -> Result<Callers, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
        let mut child = Starting::new(program)
            .arg("--callers")
            .env("CALL_BUDGET_CONFIG", self.settings())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("callers could not be started: {error}"))?;
        let mut line = serde_json::to_vec(orders).expect("plain data");
        line.push(b'\n');
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin.write_all(&line).await.map_err(|error| format!("callers did not take their orders: {error}"))?;
        Ok(Callers(child))
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("settings.toml")
    }
}

pub struct Callers(Child);

impl Callers {
    /// Waits for their end.
    pub async fn notes(mut self) -> Result<Notes, String> {
        let mut told = Vec::new();
        let mut stdout = self.0.stdout.take().expect("stdout is piped");
        stdout.read_to_end(&mut told).await.map_err(|error| format!("callers did not tell: {error}"))?;
        serde_json::from_slice(&told).map_err(|error| format!("what callers told cannot be read: {error}"))
    }
}

impl Service {
    pub fn pid(&self) -> u32 {
        self.kept.pid()
    }

    /// `kill -9`.
    pub fn kill(&self) {
        self.kept.signal("KILL");
    }
}
