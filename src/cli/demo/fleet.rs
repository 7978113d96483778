//! The processes of the demo: the mock vendor and the members of the fleet. Each ends when its stdin does, so none
//! outlives the demo, however that ends.

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::plan::{BUDGET, LIMIT, Task};
use super::worker::{Orders, Pacing, Start, Told};
use crate::cli::command_error::CommandError;
use crate::policy::Instant;
use crate::service::mock_vendor::Report;

/// Longer than any of these steps takes on a machine that is busy but alive.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// A child that is told things on stdin and answers in lines.
struct Process {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn spawn(name: &'static str, arguments: &[String]) -> Result<Process, CommandError> {
        let failed = |error: std::io::Error| CommandError::failed(format!("the {name} cannot be started: {error}"));
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(CommandError::failed(format!("the {name} has no pipes")));
        };
        Ok(Process { name, child, stdin, lines: BufReader::new(stdout).lines() })
    }

    async fn tell(&mut self, what: &impl Serialize) -> Result<(), CommandError> {
        let line = serde_json::to_string(what).expect("names and numbers are always JSON") + "\n";
        let written = self.stdin.write_all(line.as_bytes()).await;
        written.map_err(|error| CommandError::failed(format!("the {} does not listen: {error}", self.name)))
    }

    async fn line(&mut self) -> Result<String, CommandError> {
        match timeout(STEP_TIMEOUT, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(_) => Err(CommandError::failed(format!("the {} ended before it was ready", self.name))),
            Err(_) => Err(CommandError::failed(format!("the {} was not ready within {STEP_TIMEOUT:?}", self.name))),
        }
    }
}

/// Waits for a child whose stdin is closed; ends it if it stays.
async fn wait(name: &str, child: &mut Child) -> Result<(), CommandError> {
    match timeout(STEP_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(CommandError::failed(format!("the {name} ended with {status}"))),
        Ok(Err(error)) => Err(CommandError::failed(format!("the {name} cannot be waited for: {error}"))),
        Err(_) => {
            let _ = child.kill().await;
            Err(CommandError::failed(format!("the {name} did not end and was killed")))
        }
    }
}

/// The mock vendor in a process of its own.
pub struct Vendor {
    process: Process,
    address: String,
}

impl Vendor {
    pub async fn start() -> Result<Vendor, CommandError> {
        let arguments = [
            "mock-vendor".into(),
            "--json".into(),
            "--until-stdin-closes".into(),
            "--limit".into(),
            LIMIT.units.to_string(),
            "--window".into(),
            format!("{}us", LIMIT.window.as_micros()),
            "--arrival-jitter".into(),
            format!("{}us", LIMIT.arrival_jitter.as_micros()),
        ];
        let mut process = Process::spawn("mock vendor", &arguments)?;
        let line = process.line().await?;
        let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let address = told["listening"].as_str().and_then(|url| url.strip_prefix("http://"));
        let address = address.ok_or_else(|| CommandError::failed("the mock vendor told no address"))?.to_owned();
        Ok(Vendor { process, address })
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub async fn report(&self) -> Result<Report, CommandError> {
        let fetched = timeout(STEP_TIMEOUT, self.fetch()).await;
        let failed = |why: String| CommandError::failed(format!("the mock vendor does not report: {why}"));
        fetched.map_err(|_| failed("no answer".into()))?.map_err(|error| failed(error.to_string()))
    }

    async fn fetch(&self) -> Result<Report, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = hyper::Request::get("/mock/report").header("host", &self.address).body(Empty::<Bytes>::new())?;
        let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
        drop(sender);
        connection.await??;
        Ok(serde_json::from_slice(&body)?)
    }

    pub async fn stop(self) -> Result<(), CommandError> {
        let Process { name, mut child, stdin, .. } = self.process;
        drop(stdin);
        wait(name, &mut child).await
    }
}

/// One process of the fleet, before its start.
pub struct Member(Process);

impl Member {
    pub async fn start(vendor: &Vendor, pacing: Pacing, tasks: Vec<Task>) -> Result<Member, CommandError> {
        let mut process = Process::spawn("fleet process", &["demo-worker".into()])?;
        let orders = Orders { vendor: vendor.address.clone(), budget: BUDGET.into(), pacing, tasks };
        process.tell(&orders).await?;
        Ok(Member(process))
    }

    pub async fn until_ready(&mut self) -> Result<(), CommandError> {
        match self.0.line().await?.as_str() {
            "ready" => Ok(()),
            other => Err(CommandError::failed(format!("a fleet process said {other:?} instead of ready"))),
        }
    }

    /// Starts it at `begin`; what it tells goes to `told`.
    pub async fn begin(
        mut self,
        begin: Instant,
        told: UnboundedSender<(u32, Told)>,
        reading: &mut JoinSet<()>,
    ) -> Result<Running, CommandError> {
        let at_us = u64::try_from(begin.since_boot().as_micros()).unwrap_or(u64::MAX);
        self.0.tell(&Start { at_us }).await?;
        let Process { name, child, stdin, mut lines } = self.0;
        let pid = child.id().unwrap_or_default();
        reading.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(line) = serde_json::from_str(&line) {
                    let _ = told.send((pid, line));
                }
            }
        });
        Ok(Running { name, child, stdin: Some(stdin) })
    }
}

/// One process of the fleet at work.
pub struct Running {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Running {
    /// What to say if it has ended by itself.
    pub fn died(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("a {} ended with {status} while the demo ran", self.name))
    }

    pub async fn stop(mut self) -> Result<(), CommandError> {
        self.stdin = None;
        wait(self.name, &mut self.child).await
    }
}
