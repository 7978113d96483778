//! One process of the fleet: makes the calls of its tasks and tells what became of them, until its stdin ends.
//!
//! Hidden command `demo-worker`. It reads one JSON line with its orders and one that starts it, and writes JSON lines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::plan::{Demand, Request, Task};
use crate::cli::command_error::CommandError;
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;
use crate::{CallBudget, Options, Settings};

/// How often a process tells what it did.
const REPORT: Duration = Duration::from_millis(250);
/// The demo waits as long as it lasts: what the classes wait is what it shows.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// A vendor that does not answer is not waited for longer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a process is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// `host:port` of the vendor.
    pub vendor: String,
    pub budget: String,
    pub pacing: Pacing,
    pub tasks: Vec<Task>,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Pacing {
    /// A permit before each call, from the database at this URL.
    Budget { database_url: String },
    /// On its own, as sites do today: one call every so often, whoever else is calling.
    Alone { interval_us: u64 },
}

/// The line that starts a fleet at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    pub at_us: u64,
}

/// What a process tells.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Told {
    pub classes: BTreeMap<String, ClassTold>,
    /// In all since the start.
    pub store_calls: u64,
}

/// What one class of a process did since it told last.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClassTold {
    /// Calls that came up.
    pub wanted: u64,
    pub sent: u64,
    /// From a call's coming up until it could leave.
    pub waits_us: Vec<u64>,
    /// Calls that were not made, by their code.
    pub refusals: BTreeMap<String, u64>,
}

/// The hidden command.
pub async fn run() -> Result<(), CommandError> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut line = async || -> Result<String, CommandError> {
        let end = || CommandError::usage("demo-worker is started by the demo");
        lines.next_line().await.ok().flatten().ok_or_else(end)
    };
    let wrong = |error: serde_json::Error| CommandError::usage(format!("these are no orders: {error}"));
    let orders: Orders = serde_json::from_str(&line().await?).map_err(wrong)?;
    let process = Arc::new(Process::new(orders)?);
    process.tell("ready").await;
    let start: Start = serde_json::from_str(&line().await?).map_err(wrong)?;
    SystemClock.sleep_until(Instant::from_boot(Duration::from_micros(start.at_us))).await;
    tokio::select! {
        () = process.work() => {}
        () = process.report() => {}
        // The demo is over, or has died.
        _ = line() => {}
    }
    process.tell_all().await;
    Ok(())
}

struct Process {
    vendor: Vendor,
    budget: String,
    tasks: Vec<Task>,
    pacing: Pace,
    told: Mutex<Told>,
    stdout: AsyncMutex<tokio::io::Stdout>,
}

enum Pace {
    Budget(CallBudget),
    Alone(Duration),
}

impl Process {
    fn new(orders: Orders) -> Result<Self, CommandError> {
        let Orders { vendor, budget, pacing, tasks } = orders;
        let pacing = match pacing {
            Pacing::Budget { database_url } => {
                let settings = Settings {
                    enabled: true,
                    database_url: Some(database_url.into()),
                    application_name: format!("demo {}", std::process::id()),
                    ..Settings::default()
                };
                let budget = CallBudget::new(&settings)?;
                Pace::Budget(budget)
            }
            Pacing::Alone { interval_us } => Pace::Alone(Duration::from_micros(interval_us)),
        };
        Ok(Self {
            vendor: Vendor { address: vendor, idle: Mutex::default() },
            budget,
            tasks,
            pacing,
            told: Mutex::default(),
            stdout: AsyncMutex::new(tokio::io::stdout()),
        })
    }

    async fn work(self: &Arc<Self>) {
        // Calls that wait for this process's own pace.
        let (due, mut pending) = mpsc::unbounded_channel();
        for (index, task) in self.tasks.iter().enumerate() {
            let process = Arc::clone(self);
            let due = due.clone();
            let demand = task.demand;
            tokio::spawn(async move { process.bring_up(index, demand, due).await });
        }
        if let Pace::Alone(interval) = self.pacing {
            let mut next = SystemClock.now();
            while let Some((index, came_up)) = pending.recv().await {
                SystemClock.sleep_until(next).await;
                next = SystemClock.now().max(next) + interval;
                let process = Arc::clone(self);
                tokio::spawn(async move { process.send_alone(index, came_up).await });
            }
        }
        std::future::pending().await
    }

    /// Lets the calls of one task come up.
    async fn bring_up(self: Arc<Self>, index: usize, demand: Demand, due: mpsc::UnboundedSender<(usize, Instant)>) {
        let per_s = match (&self.pacing, demand) {
            (Pace::Budget(_), Demand::Endless(callers)) => {
                for _ in 0..callers {
                    let process = Arc::clone(&self);
                    tokio::spawn(async move {
                        loop {
                            process.call(index).await;
                        }
                    });
                }
                return;
            }
            // Always more than the process's own pace lets through.
            (Pace::Alone(interval), Demand::Endless(_)) => 2.0 / interval.as_secs_f64(),
            (_, Demand::Poisson(per_s) | Demand::Even(per_s)) => per_s,
        };
        let gap = || {
            Duration::from_secs_f64(match demand {
                Demand::Poisson(_) => -(1.0 - fastrand::f64()).ln() / per_s,
                Demand::Even(_) | Demand::Endless(_) => 1.0 / per_s,
            })
        };
        // Evenly means from the very start: who has a floor waits for it from then on.
        let mut next = SystemClock.now() + if matches!(demand, Demand::Poisson(_)) { gap() } else { Duration::ZERO };
        loop {
            SystemClock.sleep_until(next).await;
            match self.pacing {
                Pace::Budget(_) => {
                    let process = Arc::clone(&self);
                    tokio::spawn(async move { process.call(index).await });
                }
                Pace::Alone(_) => {
                    self.note(index, |class| class.wanted += 1);
                    let _ = due.send((index, next));
                }
            }
            next = next + gap();
        }
    }

    /// One call under the budget.
    async fn call(&self, index: usize) {
        let Pace::Budget(budget) = &self.pacing else { return };
        let task = &self.tasks[index];
        self.note(index, |class| class.wanted += 1);
        let came_up = SystemClock.now();
        let options = Options { max_wait: Some(MAX_WAIT), ..Options::default() };
        match budget.acquire_with(&self.budget, &task.class, options).await {
            Ok(permit) => {
                let waited = SystemClock.now().saturating_since(came_up);
                let marks = permit.nonce().zip(permit.closes_at());
                match permit.call(|| self.vendor.send(task, marks)).await {
                    Ok(()) => self.note(index, |class| class.sent(waited)),
                    Err(_) => self.note(index, |class| class.refused("send window closed")),
                }
            }
            Err(error) => {
                self.note(index, |class| class.refused(error.code().as_str()));
                // A caller without end must not spin while the store is out.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }

    async fn send_alone(&self, index: usize, came_up: Instant) {
        let waited = SystemClock.now().saturating_since(came_up);
        self.note(index, |class| class.sent(waited));
        self.vendor.send(&self.tasks[index], None).await;
    }

    fn note(&self, index: usize, what: impl FnOnce(&mut ClassTold)) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        what(told.classes.entry(self.tasks[index].class.clone()).or_default());
    }

    async fn report(&self) {
        loop {
            tokio::time::sleep(REPORT).await;
            self.tell_all().await;
        }
    }

    async fn tell_all(&self) {
        let mut told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        if let Pace::Budget(budget) = &self.pacing {
            told.store_calls = budget.counters().store_calls;
        }
        self.tell(&serde_json::to_string(&told).expect("names and numbers are always JSON")).await;
    }

    /// A demo that has gone reads nothing: that is no error.
    async fn tell(&self, line: &str) {
        let mut stdout = self.stdout.lock().await;
        let _ = stdout.write_all(format!("{line}\n").as_bytes()).await;
        let _ = stdout.flush().await;
    }
}

impl ClassTold {
    fn sent(&mut self, waited: Duration) {
        self.sent += 1;
        self.waits_us.push(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
    }

    fn refused(&mut self, why: &str) {
        *self.refusals.entry(why.into()).or_default() += 1;
    }
}

/// The vendor over HTTP, with connections that are kept.
struct Vendor {
    address: String,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Vendor {
    /// Sends one request and reads its answer. What it says is the vendor's report to tell.
    async fn send(&self, task: &Task, marks: Option<(u64, Instant)>) {
        let attempt = async {
            let mut connection = self.connection().await?;
            let answer = connection.send_request(self.request(task, marks)?).await?;
            answer.into_body().collect().await?;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(ATTEMPT_TIMEOUT, attempt).await {
            tracing::warn!(%error, "the vendor did not answer");
        }
    }

    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
        while let Some(kept) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            if kept.is_ready() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(
        &self,
        task: &Task,
        marks: Option<(u64, Instant)>,
    ) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
        let Request { method, path, tr_id } = &task.request;
        let body = if method == "POST" {
            Bytes::from_static(b"{\"PDNO\":\"005930\",\"ORD_QTY\":\"1\"}")
        } else {
            Bytes::new()
        };
        let mut request = hyper::Request::builder()
            .method(method.as_str())
            .uri(path)
            .header("host", &self.address)
            .header("appkey", "mock-app-key")
            .header("tr_id", tr_id)
            .header("x-call-budget-class", &task.class)
            .header("x-call-budget-pid", std::process::id());
        if let Some((nonce, closes_at)) = marks {
            let closes_us = u64::try_from(closes_at.since_boot().as_micros()).unwrap_or(u64::MAX);
            request = request.header("x-call-budget-nonce", nonce).header("x-call-budget-closes-us", closes_us);
        }
        request.body(Full::new(body))
    }
}
