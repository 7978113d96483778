//! A process of callers: this program again, with `--callers`. It reads its orders as one line of JSON, calls until the moment
//! that they name, and prints what it has seen.

mod http;
mod library;

use std::io::BufRead;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::notes::{Mark, Notes, Refusal, Send, now_us};

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    pub door: Door,
    pub budget: String,
    pub class: String,
    pub send_window_us: u64,
    /// Who take what comes.
    pub callers: u32,
    /// Who will not wait as long as the others do.
    pub impatient: u32,
    /// The budget where there is always a slot.
    pub free_budget: Option<String>,
    pub end_us: u64,
}

/// How it gets its slots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Door {
    /// From these services. Each caller begins with one of them, in turns, and turns to the next when its connection breaks.
    Http(Vec<SocketAddr>),
    /// By the library, with the settings that the environment names.
    Library,
}

/// What an acquire came to.
enum Asked {
    /// It may send until then.
    Leave {
        until_us: u64,
    },
    Refused {
        code: String,
        retry_after_us: Option<u64>,
    },
    /// No answer came: the slot may be spent.
    Broken,
}

/// The default of the setting.
const PATIENCE_US: u64 = 30_000_000;
/// A fifth of what the others wait.
const IMPATIENCE_US: u64 = 100_000;
/// As a caller would that was told to come back in a moment.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(1);
const FREE_EVERY: Duration = Duration::from_millis(40);
const TIMER: Duration = Duration::from_millis(10);

/// The process's own main.
pub fn main() -> ExitCode {
    end_with_the_run();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("orders");
    let orders: Orders = serde_json::from_str(&line).expect("orders");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let notes = runtime.block_on(work(orders));
    println!("{}", serde_json::to_string(&notes).expect("plain data"));
    ExitCode::SUCCESS
}

fn end_with_the_run() {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("a known signal");
}

async fn work(orders: Orders) -> Notes {
    let end = Instant::from_boot(Duration::from_micros(orders.end_us));
    let budgets = matches!(orders.door, Door::Library).then(library::budgets);
    let caller = |number: u32, budget: &str, max_wait_us: u64| match (&orders.door, &budgets) {
        (Door::Http(doors), _) => {
            Caller::Http(http::Caller::new(doors.clone(), number as usize, budget, &orders.class, max_wait_us))
        }
        (Door::Library, budgets) => {
            let budgets = budgets.clone().expect("made above");
            Caller::Library(library::Caller::new(budgets, budget, &orders.class, max_wait_us))
        }
    };
    let mut running = JoinSet::new();
    for number in 0..orders.callers + orders.impatient {
        let max_wait_us = if number < orders.callers { PATIENCE_US } else { IMPATIENCE_US };
        let caller = caller(number, &orders.budget, max_wait_us);
        running.spawn(call_again_and_again(caller, number, max_wait_us, orders.send_window_us, end));
    }
    if let Some(free) = &orders.free_budget {
        running.spawn(ask_where_it_is_free(caller(orders.callers + orders.impatient, free, PATIENCE_US), end));
        running.spawn(watch_a_timer(end));
    }
    let mut notes = Notes::default();
    while let Some(its) = running.join_next().await {
        notes.add(its.expect("callers do not panic"));
    }
    notes
}

/// One of either kind.
enum Caller {
    Http(http::Caller),
    Library(library::Caller),
}

impl Caller {
    async fn ask(&mut self) -> Asked {
        match self {
            Self::Http(caller) => caller.ask().await,
            Self::Library(caller) => caller.ask().await,
        }
    }
}

async fn call_again_and_again(
    mut caller: Caller,
    number: u32,
    max_wait_us: u64,
    send_window_us: u64,
    end: Instant,
) -> Notes {
    let mut notes = Notes::default();
    loop {
        let asked_us = now_us();
        let Some(asked) = SystemClock.until(end, caller.ask()).await else { return notes };
        let at_us = now_us();
        let waited_us = at_us - asked_us;
        match asked {
            Asked::Leave { until_us } => {
                let gone_us = send_window_us as i64 + at_us as i64 - until_us as i64;
                let had = Send { caller: number, at_us, gone_us, waited_us };
                if at_us <= until_us { notes.sends.push(had) } else { notes.late.push(had) }
            }
            Asked::Refused { code, retry_after_us } => {
                notes.refusals.push(Refusal { caller: number, at_us, code, max_wait_us, waited_us, retry_after_us });
                let rest = Duration::from_micros(retry_after_us.unwrap_or(0)).clamp(SOONEST, LATEST);
                SystemClock.sleep_until((SystemClock.now() + rest).min(end)).await;
            }
            Asked::Broken => notes.broken.push(Mark { caller: number, at_us }),
        }
    }
}

async fn ask_where_it_is_free(mut caller: Caller, end: Instant) -> Notes {
    let mut notes = Notes::default();
    loop {
        let asked_us = now_us();
        match SystemClock.until(end, caller.ask()).await {
            None => return notes,
            Some(Asked::Leave { .. }) => notes.free_us.push(now_us() - asked_us),
            // Of no use as a figure; the others tell of refusals.
            Some(_) => {}
        }
        SystemClock.sleep_until(SystemClock.now() + FREE_EVERY).await;
    }
}

async fn watch_a_timer(end: Instant) -> Notes {
    let mut notes = Notes::default();
    while SystemClock.now() < end {
        let due = SystemClock.now() + TIMER;
        SystemClock.sleep_until(due).await;
        let late = SystemClock.now().saturating_since(due);
        notes.timer_late_us.push(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
    }
    notes
}
