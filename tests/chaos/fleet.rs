//! The processes that call, and the vendor that they call.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use call_budget::Settings;
use call_budget::cli::demo::plan::{self, Task};
use call_budget::clock::{Clock, SystemClock};
use call_budget::service::mock_vendor::{self, MockVendor};
use fastrand::Rng;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::judge::{Account, Arrival, Span, Stop, Word};
use super::member::{Orders, Told};
use crate::tools::kept::signal;

/// At least as many as two of each class.
pub const PROCESSES: usize = 8;
const PATIENCE: Duration = Duration::from_secs(20);

/// All processes, those that are gone included.
pub struct Fleet {
    orders: Orders,
    running: Vec<Member>,
    accounts: Vec<Account>,
    stops: Vec<Stop>,
    started: usize,
    told: Words,
}

type Words = Arc<Mutex<Vec<Word>>>;

/// What is left of a fleet.
pub struct Past {
    /// What each process has told.
    pub accounts: Vec<Account>,
    pub stops: Vec<Stop>,
    pub told: Vec<Word>,
    /// Of processes that did not end as they should.
    pub broken: Vec<String>,
}

/// One process. It is killed when dropped.
struct Member {
    task: Task,
    pid: u32,
    child: Child,
    stdin: Option<ChildStdin>,
    heard: Arc<Mutex<Heard>>,
    reader: JoinHandle<()>,
}

#[derive(Default)]
struct Heard {
    told: Told,
    at_us: u64,
}

impl Fleet {
    /// Starts it. `orders` are those of every process, but for its task.
    pub async fn start(settings: Settings, url: String, vendor: SocketAddr) -> Result<Self, String> {
        let tasks: Vec<Task> = plan::spread(PROCESSES).into_iter().flatten().collect();
        let task = tasks.first().expect("a fleet has tasks").clone();
        let orders = Orders { settings, url, budget: plan::BUDGET.into(), vendor, task };
        let mut fleet = Self {
            orders,
            running: Vec::new(),
            accounts: Vec::new(),
            stops: Vec::new(),
            started: 0,
            told: Words::default(),
        };
        for task in tasks {
            fleet.add(task).await?;
        }
        Ok(fleet)
    }

    async fn add(&mut self, task: Task) -> Result<u32, String> {
        let member = Member::start(&Orders { task, ..self.orders.clone() }, Arc::clone(&self.told)).await?;
        let pid = member.pid;
        self.running.push(member);
        self.started += 1;
        Ok(pid)
    }

    /// Processes so far, those that are gone included.
    pub fn started(&self) -> usize {
        self.started
    }

    /// One by chance, of a class that calls so often that its next call shows how it is.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let often: Vec<u32> = self
            .running
            .iter()
            .filter(|one| ["minute", "index"].contains(&&*one.task.class))
            .map(|one| one.pid)
            .collect();
        often[rng.usize(..often.len())]
    }

    /// One by chance, whatever it does.
    pub fn draw_any(&self, rng: &mut Rng) -> u32 {
        self.running[rng.usize(..self.running.len())].pid
    }

    /// `kill -9`, and another in its place. Returns the new one's process id.
    pub async fn replace(&mut self, pid: u32) -> Result<u32, String> {
        let place = self.running.iter().position(|one| one.pid == pid).ok_or("there is no such process")?;
        let member = self.running.swap_remove(place);
        let task = member.task.clone();
        self.accounts.push(member.kill().await);
        self.add(task).await
    }

    /// SIGSTOP until the value says go on.
    pub fn stop(&mut self, pid: u32) -> Stopped {
        let from_us = now_us();
        signal(pid, "STOP");
        Stopped { pid, from_us }
    }

    /// SIGCONT. Returns when.
    pub fn go_on(&mut self, stopped: Stopped) -> u64 {
        let Stopped { pid, from_us } = stopped;
        signal(pid, "CONT");
        let to_us = now_us();
        self.stops.push(Stop { pid, span: Span { from_us, to_us } });
        to_us
    }

    /// What to say if a process has ended by itself.
    pub fn died(&mut self) -> Option<String> {
        let (pid, status) =
            self.running.iter_mut().find_map(|one| Some((one.pid, one.child.try_wait().ok().flatten()?)))?;
        Some(format!("process {pid} of the fleet ended by itself: {status}"))
    }

    /// Ends every process in order.
    pub async fn end(mut self) -> Past {
        let mut running = std::mem::take(&mut self.running);
        for member in &mut running {
            member.stdin = None;
        }
        let mut broken = Vec::new();
        for member in running {
            let (account, wrong) = member.end().await;
            self.accounts.push(account);
            broken.extend(wrong);
        }
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        Past { accounts: self.accounts, stops: self.stops, told, broken }
    }
}

/// A process that stands still.
pub struct Stopped {
    pid: u32,
    from_us: u64,
}

impl Member {
    async fn start(orders: &Orders, words: Words) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a process of the fleet cannot be started: {error}");
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("--member")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in a terminal is for the run.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let pid = child.id().ok_or("a process of the fleet ended at once")?;
        let mut stdin = child.stdin.take().expect("a pipe");
        let line = serde_json::to_string(orders).expect("plain data") + "\n";
        stdin.write_all(line.as_bytes()).await.map_err(failed)?;
        let heard = Arc::new(Mutex::new(Heard { told: Told::default(), at_us: now_us() }));
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let reader = tokio::spawn({
            let heard = Arc::clone(&heard);
            async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    let at_us = now_us();
                    let what = match serde_json::from_str::<Told>(&line) {
                        Ok(told) => {
                            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                            let failures = told.store_failures - heard.told.store_failures;
                            *heard = Heard { told, at_us };
                            (failures > 0).then(|| format!("{failures} more store calls failed"))
                        }
                        Err(_) => Some(line),
                    };
                    let word = what.map(|what| Word { at_us, pid, what });
                    words.lock().unwrap_or_else(PoisonError::into_inner).extend(word);
                }
            }
        });
        Ok(Self { task: orders.task.clone(), pid, child, stdin: Some(stdin), heard, reader })
    }

    async fn kill(mut self) -> Account {
        let _ = self.child.kill().await;
        let gone_us = now_us();
        let _ = timeout(PATIENCE, &mut self.reader).await;
        let heard_us = self.heard.lock().unwrap_or_else(PoisonError::into_inner).at_us;
        self.account(Some(gone_us.saturating_sub(heard_us)))
    }

    /// Its account, and what was wrong with how it ended.
    async fn end(mut self) -> (Account, Option<String>) {
        self.stdin = None;
        let pid = self.pid;
        let wrong = match timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => None,
            Ok(Ok(status)) => Some(format!("process {pid} ended with {status}")),
            Ok(Err(error)) => Some(format!("process {pid}: {error}")),
            Err(_) => {
                let _ = self.child.kill().await;
                Some(format!("process {pid} did not end within {PATIENCE:?}"))
            }
        };
        let _ = timeout(PATIENCE, &mut self.reader).await;
        (self.account(None), wrong)
    }

    fn account(&self, unheard_us: Option<u64>) -> Account {
        let Told { permits, dropped, lost, lapsed, .. } =
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).told;
        Account { class: self.task.class.clone(), permits, dropped, lost, lapsed, unheard_us }
    }
}

/// The product's own vendor, on a thread of its own: nothing of the run keeps it from reading.
pub struct Vendor {
    vendor: MockVendor,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Vendor {
    pub fn start() -> Result<Self, String> {
        let (end, ended) = oneshot::channel();
        let (started, starts) = mpsc::channel();
        let limit = plan::LIMIT;
        let settings = mock_vendor::Settings {
            limit: limit.units,
            window: limit.window,
            arrival_jitter: limit.arrival_jitter,
            ..mock_vendor::Settings::default()
        };
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let _ = started.send(MockVendor::start(settings).await);
                let _ = ended.await;
            });
        };
        let thread = thread::Builder::new().name("vendor".into()).spawn(serve).map_err(|error| error.to_string())?;
        let vendor = starts.recv().map_err(|_| "the vendor did not start")?.map_err(|error| error.to_string())?;
        Ok(Self { vendor, end: Some(end), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.vendor.addr()
    }

    /// When the last request came, 0 before the first.
    pub fn last_us(&self) -> u64 {
        self.vendor.report().last_arrival_us.unwrap_or(0)
    }

    /// What came from each process so far.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let arrivals = self.vendor.arrivals();
        let one = |arrival: &mock_vendor::Arrival| Arrival {
            at_us: arrival.at_us,
            pid: arrival.note.pid.unwrap_or_default(),
            nonce: arrival.note.nonce.unwrap_or_default(),
            closes_us: arrival.note.closes_us.unwrap_or_default(),
        };
        arrivals.iter().map(one).collect()
    }

    pub fn stalls(&self) -> Vec<Span> {
        let stalls = self.vendor.report().stalls;
        stalls.iter().map(|stall| Span { from_us: stall.at_us, to_us: stall.at_us + stall.for_us }).collect()
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The machine's clock, as the library and the vendor read it.
pub fn now_us() -> u64 {
    u64::try_from(SystemClock.now().since_boot().as_micros()).unwrap_or(u64::MAX)
}
