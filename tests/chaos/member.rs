//! A process of the fleet: this program again, with `--member`. It reads its orders as one line of JSON, makes the calls of its
//! tasks under the budget, and says every tenth of a second what it has done so far, until its stdin ends. Lines in between that are
//! no JSON are the library's log and its refusals.

use std::io::{BufRead, Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use call_budget::cli::demo::plan::{Demand, Task};
use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;
use call_budget::{CallBudget, Counters, Settings};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::tools::slots::dropped;

/// What a process is told.
#[derive(Clone, Serialize, Deserialize)]
pub struct Orders {
    pub settings: Settings,
    /// Settings are written without it: it holds the password.
    pub url: String,
    pub budget: String,
    pub vendor: SocketAddr,
    pub task: Task,
}

/// What a process has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub permits: u64,
    pub dropped: u64,
    pub lost: u64,
    pub lapsed: u64,
    pub store_calls: u64,
    pub store_failures: u64,
}

const TELL: Duration = Duration::from_millis(100);
/// A call without a slot is not tried again at once: with the store away it would spin.
const AFTER_A_REFUSAL: Duration = Duration::from_millis(200);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than a store call that is under way takes when nothing is wrong.
const SETTLE: Duration = Duration::from_millis(400);

/// The process's own main.
pub fn main() -> ExitCode {
    end_with_the_run();
    tracing_subscriber::fmt().with_env_filter("call_budget=info").without_time().with_ansi(false).init();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("orders");
    let orders: Orders = serde_json::from_str(&line).expect("orders");
    let (end, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let _ = end.send(());
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work(orders, ended));
    ExitCode::SUCCESS
}

/// A stopped process does not see its stdin end: where the system can, it is killed with the run.
fn end_with_the_run() {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("a known signal");
}

struct Process {
    budget: CallBudget,
    name: String,
    task: Task,
    vendor: SocketAddr,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

async fn work(orders: Orders, mut ended: oneshot::Receiver<()>) {
    let Orders { mut settings, url, budget, vendor, task } = orders;
    settings.database_url = Some(url.into());
    let process = Arc::new(Process {
        budget: CallBudget::new(&settings).expect("settings that the library takes"),
        name: budget,
        task,
        vendor,
        idle: Mutex::default(),
    });
    let mut calls = JoinSet::new();
    tokio::select! {
        () = bring_up(&process, &mut calls) => {}
        () = tell_again_and_again(&process) => {}
        _ = &mut ended => {}
    }
    calls.shutdown().await;
    // The last store call may still bring a slot, which nobody waits for.
    sleep(SETTLE).await;
    process.tell();
}

/// Lets calls come up as the demo's classes do.
async fn bring_up(process: &Arc<Process>, calls: &mut JoinSet<()>) {
    let per_s = match process.task.demand {
        Demand::Endless(callers) => {
            for _ in 0..callers {
                let process = Arc::clone(process);
                calls.spawn(async move {
                    loop {
                        process.call().await;
                    }
                });
            }
            return std::future::pending().await;
        }
        Demand::Poisson(per_s) | Demand::Even(per_s) => per_s,
    };
    let gap = || {
        Duration::from_secs_f64(match process.task.demand {
            Demand::Poisson(_) => -(1.0 - fastrand::f64()).ln() / per_s,
            Demand::Even(_) | Demand::Endless(_) => 1.0 / per_s,
        })
    };
    let mut next = SystemClock.now() + gap();
    loop {
        SystemClock.sleep_until(next).await;
        let of_one = Arc::clone(process);
        calls.spawn(async move { of_one.call().await });
        while calls.try_join_next().is_some() {}
        next = next + gap();
    }
}

async fn tell_again_and_again(process: &Process) {
    loop {
        sleep(TELL).await;
        process.tell();
    }
}

impl Process {
    async fn call(&self) {
        match self.budget.acquire(&self.name, &self.task.class).await {
            Ok(permit) => {
                let marks = permit.nonce().zip(permit.closes_at()).expect("the switch is on");
                // A window that has closed is counted by the library.
                let _ = permit.call(|| timeout(ATTEMPT_TIMEOUT, self.send(marks))).await;
            }
            Err(error) => {
                let stage = error.stage().map_or("no stage", |stage| stage.as_str());
                say(&format!("{} refused, {stage}: {error}", self.task.class));
                sleep(AFTER_A_REFUSAL).await;
            }
        }
    }

    /// One request and its answer. What became of it is the vendor's to tell.
    async fn send(&self, marks: (u64, Instant)) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut connection = self.connection().await?;
        let answer = connection.send_request(self.request(marks)?).await?;
        answer.into_body().collect().await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(())
    }

    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
        while let Some(kept) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            if kept.is_ready() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(self.vendor).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(&self, (nonce, closes_at): (u64, Instant)) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
        let closes_us = u64::try_from(closes_at.since_boot().as_micros()).unwrap_or(u64::MAX);
        hyper::Request::builder()
            .method(self.task.request.method.as_str())
            .uri(&self.task.request.path)
            .header("host", self.vendor.to_string())
            .header("appkey", "mock-app-key")
            .header("tr_id", &self.task.request.tr_id)
            .header("x-call-budget-class", &self.task.class)
            .header("x-call-budget-pid", std::process::id())
            .header("x-call-budget-nonce", nonce)
            .header("x-call-budget-closes-us", closes_us)
            .body(Full::new(Bytes::new()))
    }

    fn tell(&self) {
        say(&serde_json::to_string(&Told::of(self.budget.counters())).expect("plain data"));
    }
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // Whoever started it may be gone; then stdin has ended too.
    let _ = stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush());
}

impl Told {
    fn of(counters: Counters) -> Self {
        Self {
            permits: counters.permits,
            dropped: dropped(&counters),
            lost: counters.lost,
            lapsed: counters.lapsed,
            store_calls: counters.store_calls,
            store_failures: counters.store_failures,
        }
    }
}
