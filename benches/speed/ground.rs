//! The one server that everything is measured on, and what can be read off it.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use call_budget::policy::spacing::Limit;
use call_budget::service::scratch_postgres::ScratchPostgres;
use call_budget::store::migrate;
use call_budget::{CallBudget, Settings};
use tokio_postgres::{Client, NoTls};

use crate::Outcome;

/// The class of every measured caller.
pub const CLASS: &str = "bench";

pub struct Ground {
    server: ScratchPostgres,
    /// Beside what is measured: looks and sets, and is not timed.
    pub aside: Client,
}

/// What the server has used up so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Of all its processes, those that have ended too. In steps of 10 ms.
    pub cpu: Duration,
    pub wal_bytes: u64,
}

impl Ground {
    pub async fn start() -> Outcome<Self> {
        let server = tokio::task::spawn_blocking(|| ScratchPostgres::start(&[])).await?.map_err(|e| e.to_string())?;
        let aside = connect(&server.url("postgres")).await?;
        let mut owner = connect(&server.url("postgres")).await?;
        migrate::migrate(&mut owner).await?;
        Ok(Self { server, aside })
    }

    pub fn url(&self) -> String {
        self.server.url("postgres")
    }

    /// A connection of its own, as a peer's caller has one.
    pub async fn connect(&self) -> Outcome<Client> {
        connect(&self.url()).await
    }

    /// What a crash would cost here: a figure from a server that forgets commits says nothing about one that does not.
    pub async fn durability(&self) -> Outcome<BTreeMap<String, String>> {
        let names = ["server_version", "fsync", "synchronous_commit", "full_page_writes"];
        let sql = "SELECT name, setting FROM pg_settings WHERE name = ANY ($1)";
        let rows = self.aside.query(sql, &[&names.as_slice()]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Makes the budget, or changes it: `units` a second, with a window of `w + j` = 100 ms.
    pub async fn set_budget(&self, name: &str, units: u32) -> Outcome<Duration> {
        let (window, tenth) = (Duration::from_secs(1), Duration::from_millis(50));
        let limit = Limit { units, window, send_window: tenth, arrival_jitter: tenth, max_cost: 1 };
        let interval = limit.interval().map_err(|error| format!("no interval: {error:?}"))?;
        let us = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let set = "SELECT call_budget.call_budget_set($1, $2, $3, $4, $5, 1, $6, 60000)";
        let units = i32::try_from(units)?;
        self.aside.query(set, &[&name, &units, &us(window), &us(tenth), &us(tenth), &us(interval)]).await?;
        self.aside.query("SELECT call_budget.call_budget_class_set($1, $2, 0, 0)", &[&name, &CLASS]).await?;
        Ok(interval)
    }

    /// A process's worth of callers: lanes and connections of their own.
    pub fn caller(&self, connections: usize) -> Outcome<CallBudget> {
        Ok(CallBudget::new(&self.settings(connections))?)
    }

    pub fn settings(&self, connections: usize) -> Settings {
        let mut settings = Settings::default();
        settings.enabled = true;
        settings.database_url = Some(self.url().into());
        settings.application_name = "call-budget speed".into();
        settings.pool_size = connections;
        // On a slow disk a commit alone may take longer than a caller would accept.
        settings.rtt_max = Duration::from_secs(1);
        settings
    }

    pub async fn spent(&self) -> Outcome<Spent> {
        let wal = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_postmaster_pid FROM
                   (SELECT pid AS pg_postmaster_pid FROM pg_stat_activity WHERE backend_type = 'checkpointer') AS p";
        let row = self.aside.query_one(wal, &[]).await?;
        let wal_bytes = u64::try_from(row.get::<_, i64>(0))?;
        let postmaster = parent(row.get(1)).ok_or("the server's processes cannot be seen from here")?;
        Ok(Spent { cpu: cpu_of_tree(postmaster), wal_bytes })
    }
}

async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The fields of /proc/PID/stat from the state (the third of them) on.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn parent(pid: i32) -> Option<i32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Of the process, the children that it has seen end, and those that run.
fn cpu_of_tree(postmaster: i32) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let ticks = |pid: i32, fields: std::ops::Range<usize>| -> u32 {
        let stat = stat(pid).unwrap_or_default();
        stat.get(fields).into_iter().flatten().filter_map(|field| field.parse::<u32>().ok()).sum()
    };
    let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap_or_default();
    // utime, stime, and of ended children cutime, cstime.
    let own = ticks(postmaster, 11..15);
    let running: u32 =
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).map(|pid| ticks(pid, 11..13)).sum();
    TICK * (own + running)
}
