//! A caller in a process of its own, to be stopped, killed, or one of many: this program again, started with
//! `--member`.
//!
//! It is told what to do in one line of JSON on stdin, says what it did in lines of JSON on stdout, and ends when stdin does.
//! It names a permit before it uses it, so that what a killed one sent is known. A held one then waits for a line more.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::{CallBudget, Settings};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::caller::{Caller, Ledger, Sent};
use super::judge::{Account, Leave};
use super::vendor::{Wire, now_us};

/// What a member is told.
#[derive(Clone, Serialize, Deserialize)]
pub struct Orders {
    pub settings: Settings,
    /// Settings are written without it: it holds the password.
    pub url: String,
    pub budget: String,
    pub class: String,
    pub vendor: SocketAddr,
    pub round: u64,
    /// Between the end of a call and the next.
    pub pause: Duration,
    /// It waits for [`Member::go`] between each permit and its use.
    pub held: bool,
}

/// What a member says.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Word {
    Leave { nonce: u64, given_us: u64, closes_us: u64 },
    Ended(Call),
    Account { class: String, permits: u64, dropped: u64, lost: u64 },
}

/// One call of a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// When `acquire` returned, on the machine's clock.
    pub ended_us: u64,
    pub took: Duration,
    /// Whether the request left.
    pub sent: bool,
    /// The error's code and message.
    pub code: Option<String>,
    pub error: Option<String>,
}

/// A running member. It is killed when dropped.
pub struct Member {
    child: Child,
    stdin: Option<ChildStdin>,
    heard: Arc<Mutex<Heard>>,
    changed: watch::Receiver<usize>,
    reader: JoinHandle<()>,
}

#[derive(Default)]
struct Heard {
    leaves: Vec<Leave>,
    calls: Vec<Call>,
    account: Option<Account>,
}

const PATIENCE: Duration = Duration::from_secs(10);

impl Member {
    /// Starts one through `command` (empty: directly), such as `unshare --net`.
    pub(super) async fn start(command: &[&str], orders: &Orders, ledger: Arc<Ledger>) -> Self {
        let own = std::env::current_exe().expect("this program finds itself");
        let mut words = command.iter().map(AsRef::as_ref).chain([own.as_os_str()]);
        let mut child = Command::new(words.next().expect("at least the program itself"))
            .args(words)
            .arg("--member")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process of its own");
        let mut stdin = child.stdin.take().expect("a pipe");
        let orders = serde_json::to_string(orders).expect("plain data") + "\n";
        stdin.write_all(orders.as_bytes()).await.expect("it listens");
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let (says, changed) = watch::channel(0);
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let reader = tokio::spawn({
            let heard = Arc::clone(&heard);
            async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    let Ok(word) = serde_json::from_str(&line) else { panic!("a member says {line:?}") };
                    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                    match word {
                        Word::Leave { nonce, given_us, closes_us } => {
                            let leave = Leave { nonce, given_us, closes_us };
                            ledger.leave(leave);
                            heard.leaves.push(leave);
                        }
                        Word::Ended(call) => heard.calls.push(call),
                        Word::Account { class, permits, dropped, lost } => {
                            heard.account = Some(Account { class, permits, dropped, lost });
                        }
                    }
                    says.send_modify(|words| *words += 1);
                }
            }
        });
        Self { child, stdin: Some(stdin), heard, changed, reader }
    }

    /// The process, for signals.
    ///
    /// # Panics
    /// Once it has ended.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// All its calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.heard().calls.clone()
    }

    /// Waits until one of its calls is as wanted, and returns it.
    ///
    /// # Panics
    /// After `patience`.
    pub async fn call(&mut self, patience: Duration, wanted: impl Fn(&Call) -> bool) -> Call {
        self.heard_of(patience, |heard| heard.calls.iter().find(|call| wanted(call)).cloned()).await
    }

    /// Waits for its permit of that number, the first being 1.
    ///
    /// # Panics
    /// After 10 s.
    pub async fn leave(&mut self, number: usize) -> Leave {
        self.heard_of(PATIENCE, |heard| heard.leaves.get(number - 1).copied()).await
    }

    /// Lets a held one use its permit.
    pub async fn go(&mut self) {
        let stdin = self.stdin.as_mut().expect("it runs until it is stopped");
        stdin.write_all(b"go\n").await.expect("it listens");
    }

    async fn heard_of<T>(&mut self, patience: Duration, wanted: impl Fn(&Heard) -> Option<T>) -> T {
        let look = async {
            loop {
                self.changed.mark_unchanged();
                let found = wanted(&self.heard());
                if let Some(found) = found {
                    return found;
                }
                if self.changed.changed().await.is_err() {
                    panic!("the member has ended; its calls: {:?}", self.calls());
                }
            }
        };
        let found = timeout(patience, look).await;
        found.unwrap_or_else(|_| panic!("the member did nothing of the kind within {patience:?}"))
    }

    /// Lets it end its last call and go. Returns its account, for `Round::account`.
    pub async fn stop(mut self) -> Account {
        drop(self.stdin.take());
        let end = async {
            let _ = (&mut self.reader).await;
            let _ = self.child.wait().await;
        };
        timeout(PATIENCE, end).await.expect("a member ends with its stdin");
        self.heard().account.clone().expect("a member that ends gives its account")
    }

    /// Kills it. What it may have taken along is for the case to say: an account with as much lost.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
        let _ = timeout(PATIENCE, &mut self.reader).await;
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The member's own main: calls, one after the other, until stdin ends.
pub fn main() -> ExitCode {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("orders");
    let orders: Orders = serde_json::from_str(&line).expect("orders");
    let (told, words) = watch::channel(Told::default());
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            told.send_modify(|told| told.goes += 1);
        }
        told.send_modify(|told| told.stop = true);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(call_until_told(orders, words));
    ExitCode::SUCCESS
}

/// What has come on stdin after the orders.
#[derive(Default)]
struct Told {
    goes: usize,
    stop: bool,
}

async fn call_until_told(orders: Orders, mut words: watch::Receiver<Told>) {
    let Orders { mut settings, url, budget, class, vendor, round, pause, held } = orders;
    settings.database_url = Some(url.into());
    let say_leave = |Leave { nonce, given_us, closes_us }| say(&Word::Leave { nonce, given_us, closes_us });
    let caller = Caller {
        budget: CallBudget::new(&settings).expect("settings that the library takes"),
        name: budget.into(),
        class: class.into(),
        max_wait: settings.max_wait,
        ledger: Arc::new(Ledger::telling(say_leave)),
        wire: Arc::new(Wire::open(vendor, round).expect("the vendor takes callers")),
    };
    let mut permits = 0;
    while !words.borrow().stop {
        let go = async {
            permits += 1;
            if held {
                let _ = words.wait_for(|told| told.goes >= permits || told.stop).await;
            }
        };
        let ended = caller.attempt_after(caller.max_wait, go).await;
        let ended_us = now_us();
        let sent = matches!(ended.result, Ok(Sent::Left));
        let error = ended.result.err();
        say(&Word::Ended(Call {
            ended_us,
            took: ended.took,
            sent,
            code: error.as_ref().map(|error| error.code().to_string()),
            error: error.as_ref().map(ToString::to_string),
        }));
        let _ = timeout(pause, words.wait_for(|told| told.stop)).await;
    }
    let Account { class, permits, dropped, lost } = settled(&caller).await;
    say(&Word::Account { class, permits, dropped, lost });
}

/// The account once no call of the library is under way: its last may still bring a slot.
async fn settled(caller: &Caller) -> Account {
    let own = tokio::runtime::Handle::current();
    for _ in 0..200 {
        // The pool's sessions keep a task each.
        if own.metrics().num_alive_tasks() <= 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    caller.account()
}

fn say(word: &Word) {
    let mut stdout = std::io::stdout().lock();
    let line = serde_json::to_string(word).expect("plain data") + "\n";
    // Whoever started it may be gone; then stdin has ended too.
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
}
