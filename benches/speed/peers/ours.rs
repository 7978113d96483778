//! Our own acquire, as a program calls it: one [`CallBudget`] a process, each with one connection and a lane a budget.

use std::time::Duration;

use call_budget::CallBudget;
use call_budget::policy::spacing::Limit;

use super::load::Caller;
use crate::Outcome;
use crate::ground::{CLASS, Ground};

/// So much that nobody is paced, and a send window so long that no grant is dropped because this machine was busy when its
/// answer came: what is measured is the store.
const LIMIT: Limit = Limit {
    units: 1_000_000,
    window: Duration::from_millis(1),
    send_window: Duration::from_secs(1),
    arrival_jitter: Duration::ZERO,
    max_cost: 1,
};

pub struct Ours {
    processes: Vec<CallBudget>,
    budgets: Vec<String>,
}

impl Ours {
    /// So many processes on the budgets of these names, all of them connected.
    pub async fn start(ground: &Ground, url: &str, processes: usize, budgets: &[String]) -> Outcome<Self> {
        let start = |_| ground.caller_at(url, 1);
        let ours = Self { processes: (0..processes).map(start).collect::<Outcome<_>>()?, budgets: budgets.to_vec() };
        for process in 0..processes {
            ours.grant(process, 0).await?;
        }
        Ok(ours)
    }
}

impl Caller for Ours {
    async fn grant(&self, task: usize, key: usize) -> Outcome<()> {
        let process = &self.processes[task % self.processes.len()];
        drop(process.acquire(&self.budgets[key], CLASS).await?);
        Ok(())
    }
}

/// Makes the budgets, and lets the quiet moment pass that begins each of them. Returns the interval.
pub async fn make_budgets(ground: &Ground, names: &[String]) -> Outcome<Duration> {
    let mut interval = Duration::ZERO;
    for name in names {
        interval = ground.set_limit(name, &LIMIT).await?;
    }
    let process = ground.caller(1)?;
    // Not all at once: each waits for the one connection, and for no longer than a store call may take.
    for some in names.chunks(50) {
        futures_util::future::try_join_all(some.iter().map(|name| process.acquire(name, CLASS))).await?;
    }
    Ok(interval)
}
