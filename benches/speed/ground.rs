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
    /// Of all its processes, those that have ended too.
    pub cpu: Duration,
    pub wal_bytes: u64,
}

impl Ground {
    /// A server with its own settings, but for these.
    pub async fn start(settings: &[(String, String)]) -> Outcome<Self> {
        let settings = settings.to_vec();
        let start = move || {
            let settings: Vec<_> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
            ScratchPostgres::start(&settings)
        };
        let server = tokio::task::spawn_blocking(start).await?.map_err(|error| error.to_string())?;
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

    /// The same as another role.
    pub async fn connect_at(&self, url: &str) -> Outcome<Client> {
        connect(url).await
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
        self.set_limit(name, &limit).await
    }

    /// The same with any limit. Returns the interval.
    pub async fn set_limit(&self, name: &str, limit: &Limit) -> Outcome<Duration> {
        let interval = limit.interval().map_err(|error| format!("no interval: {error:?}"))?;
        let us = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let set = "SELECT call_budget.call_budget_set($1, $2, $3, $4, $5, $6, $7, 60000)";
        let (units, cost) = (i32::try_from(limit.units)?, i32::try_from(limit.max_cost)?);
        let (window, send, jitter) = (us(limit.window), us(limit.send_window), us(limit.arrival_jitter));
        self.aside.query(set, &[&name, &units, &window, &send, &jitter, &cost, &us(interval)]).await?;
        self.aside.query("SELECT call_budget.call_budget_class_set($1, $2, 0, 0)", &[&name, &CLASS]).await?;
        Ok(interval)
    }

    /// A process's worth of callers: lanes and connections of their own.
    pub fn caller(&self, connections: usize) -> Outcome<CallBudget> {
        self.caller_at(&self.url(), connections)
    }

    /// The same as another role.
    pub fn caller_at(&self, url: &str, connections: usize) -> Outcome<CallBudget> {
        Ok(CallBudget::new(&self.settings(url, connections))?)
    }

    /// What such callers are made with.
    pub fn settings(&self, url: &str, connections: usize) -> Settings {
        let mut settings = Settings::default();
        settings.enabled = true;
        settings.database_url = Some(url.to_owned().into());
        settings.application_name = "call-budget speed".into();
        settings.pool_size = connections;
        // On a slow disk a commit alone may take longer than a caller would accept.
        settings.rtt_max = Duration::from_secs(1);
        // A call's time begins with its wait for a connection, which a hundred lanes may share.
        settings.statement_timeout = Duration::from_secs(5);
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

/// Of one process, and of its children that have ended.
pub fn cpu_of(pid: i32) -> Duration {
    on_a_core(pid) + of_ended_children(pid)
}

/// To the nanosecond.
fn on_a_core(pid: i32) -> Duration {
    // Of the first thread alone: neither PostgreSQL's processes nor Redis work in others.
    let schedule = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    Duration::from_nanos(schedule.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default())
}

/// In steps of 10 ms.
fn of_ended_children(pid: i32) -> Duration {
    let stat = stat(pid).unwrap_or_default();
    // cutime and cstime.
    let ticks: u32 = stat.get(13..15).into_iter().flatten().filter_map(|field| field.parse::<u32>().ok()).sum();
    Duration::from_millis(10) * ticks
}

/// Of the process, the children that it has seen end, and those that run.
fn cpu_of_tree(postmaster: i32) -> Duration {
    let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap_or_default();
    let running = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    cpu_of(postmaster) + running.map(on_a_core).sum::<Duration>()
}
