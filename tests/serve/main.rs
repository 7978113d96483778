//! `call-budget serve` as callers and operators meet it: the real binary, a real PostgreSQL, real sockets, and a mock vendor
//! where something is sent.

#[path = "../support/mod.rs"]
mod support;

mod acquire;
mod admin;
mod doors;
mod events;
mod fuzz;
mod guarded;
mod looking;
mod openapi;
mod python;
mod secrets;
mod side_by_side;
mod starting;
mod stopping;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::TestDatabase;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use wire::{Answer, Ask, Wire, get, post, within};

pub const ADMIN: &str = "not-a-real-admin-token";
pub const CALLER: &str = "not-a-real-caller-token";

/// Budget and classes, a breaker that opens at the second bad one and waits little, and one that escalates.
pub const SURFACES: &str = r#"
[breaker.quick]
streak = 2
schedule = ["200ms", "1s"]
jitter = 0.0

[surface."mine/real/prices"]
budget = "mine"
class = "batch"
vendor = "http-shared-key"
breaker = "quick"
idempotent = true

[surface."kis/real/quote"]
budget = "kis-real"
class = "minute"
vendor = "kis"
breaker = "escalating"
idempotent = true

[surface."kis/real/balance"]
budget = "kis-real"
class = "minute"
vendor = "kis"
breaker = "none"
idempotent = true
"#;

/// How it is started.
#[derive(Clone, Default)]
pub struct How {
    settings: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    files: Vec<(&'static str, String)>,
    /// The soft and the hard limit of descriptors, where they are not those of the tests.
    descriptors: Option<(u32, u32)>,
}

impl How {
    /// With the switch on, and patient on a busy machine.
    pub fn on() -> How {
        How::default().settings("call_budget_enabled = true\nrtt_max = \"45ms\"\n")
    }

    /// The same with both tokens.
    pub fn with_tokens() -> How {
        How::on().admin().file("caller", CALLER).argument("--caller-token-file", "caller")
    }

    pub fn admin(self) -> How {
        self.file("admin", ADMIN).argument("--admin-token-file", "admin")
    }

    pub fn settings(mut self, toml: &str) -> How {
        self.settings += toml;
        self
    }

    /// The service runs in the folder of its files.
    pub fn file(mut self, name: &'static str, text: &str) -> How {
        self.files.push((name, text.to_owned()));
        self
    }

    pub fn argument(mut self, name: &str, value: &str) -> How {
        self.arguments.extend([name.to_owned(), value.to_owned()]);
        self
    }

    pub fn variable(mut self, name: &str, value: &str) -> How {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn descriptors(mut self, soft: u32, hard: u32) -> How {
        self.descriptors = Some((soft, hard));
        self
    }

    pub fn command(&self, url: &str) -> (Command, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in &self.files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let settings = folder.path().join("settings.toml");
        std::fs::write(&settings, &self.settings).unwrap();
        let program = env!("CARGO_BIN_EXE_call-budget");
        let mut command = match self.descriptors {
            None => Command::new(program),
            Some((soft, hard)) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
                shell.args(["-c", &script, program]);
                shell
            }
        };
        command
            .arg("serve")
            .current_dir(folder.path())
            .env("CALL_BUDGET_CONFIG", settings)
            .env_remove("DATABASE_URL")
            .env_remove("RUST_LOG")
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if !url.is_empty() {
            command.env("DATABASE_URL", url);
        }
        if !self.arguments.iter().any(|argument| argument == "--listen") && !self.settings.contains("listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        (command, folder)
    }

    /// A start that has to fail: exit code and all that was said.
    pub async fn fails(&self, url: &str) -> (i32, String) {
        let (mut command, _folder) = self.command(url);
        let output = within(command.output()).await.unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code().expect("it dies of no signal"), said)
    }
}

/// A service that runs; killed when this is dropped.
pub struct Serve {
    pub address: SocketAddr,
    child: Child,
    /// Everything it has printed.
    said: Arc<Mutex<String>>,
    pub folder: TempDir,
}

impl Serve {
    pub async fn start(url: &str, how: How) -> Serve {
        let (mut command, folder) = how.command(url);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::default();
        gather(child.stdout.take().unwrap(), &said);
        gather(child.stderr.take().unwrap(), &said);
        let address = within(async {
            loop {
                let text = said.lock().unwrap().clone();
                let line = text.lines().find_map(|line| line.strip_prefix("listening on http://"));
                if let Some(address) = line.filter(|_| text.ends_with('\n')) {
                    break address.parse().unwrap();
                }
                assert!(child.try_wait().unwrap().is_none(), "it did not start: {text}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        Serve { address: address.await, child, said, folder }
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        within(self.child.wait()).await.unwrap()
    }

    pub async fn wire(&self) -> Wire {
        Wire::to(self.address).await
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, ask: Ask) -> Answer {
        self.wire().await.ask(&ask.header("Connection", "close")).await
    }

    pub async fn acquire(&self, body: Value) -> Answer {
        self.ask(post("/v1/acquire", &body)).await
    }

    /// Leave for a call of this surface, which has to be given.
    pub async fn begin(&self, surface: &str) -> Value {
        self.ask(post("/v1/calls", &json!({"surface": surface, "max_wait_ms": 20_000}))).await.done()
    }

    pub async fn settle(&self, call: &Value, seen: Value) -> Answer {
        let id = call["id"].as_str().unwrap_or_else(|| panic!("no id in {call}"));
        self.ask(post(&format!("/v1/calls/{id}/settle"), &seen)).await
    }

    pub async fn status(&self) -> Value {
        self.ask(get("/v1/status")).await.done()
    }
}

fn gather(stream: impl AsyncRead + Unpin + Send + 'static, said: &Arc<Mutex<String>>) {
    let said = Arc::clone(said);
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            *said.lock().unwrap() += &(line + "\n");
        }
    });
}

/// A database with the budgets of [`SURFACES`].
pub async fn database() -> TestDatabase {
    let database = support::database().await;
    prepare(&database.url).await;
    database
}

/// Budgets and classes for the database at `url`, migrated already.
pub async fn prepare(url: &str) {
    for command in [
        "budget set kis-real --limit 40 --window 1s",
        "class set kis-real order --priority 0 --floor 0.1",
        "class set kis-real minute --priority 1",
        "budget set mine --limit 40 --window 1s --max-cost 2",
        "class set mine batch --priority 1",
    ] {
        call_budget(url, &command.split(' ').collect::<Vec<_>>()).await;
    }
}

/// Runs another command, which has to succeed.
pub async fn call_budget(url: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_call-budget"));
    command.args(arguments).env("DATABASE_URL", url).stdin(Stdio::null()).kill_on_drop(true);
    let output = within(command.output()).await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What the store has granted, over all classes.
pub async fn granted(database: &TestDatabase) -> i64 {
    let sql = "SELECT coalesce(sum(granted), 0)::bigint FROM call_budget.call_budget_class";
    database.client.query_one(sql, &[]).await.unwrap().get(0)
}

/// A store that accepts connections and says nothing, and its URL.
pub async fn dead_store() -> (tokio::task::JoinHandle<()>, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://nobody:not-a-real-password@{}/none?sslmode=disable", listener.local_addr().unwrap());
    let silent = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(connection) = listener.accept().await {
            kept.push(connection);
        }
    });
    (silent, url)
}

/// Where the sources of the service are.
pub fn source(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), path].iter().collect()
}
