//! What there is to see: budgets, classes, and the server they live on. Ages and remaining times, never dates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::admin::Settings;
use super::operation::{Operation, OperationError};

/// A budget as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct Budget {
    pub name: String,
    #[serde(flatten)]
    pub settings: Settings,
    /// Grows with every change of settings, pause and resume.
    pub version: i64,
    /// How often commits may have been forgotten, or an operator asked for a quiet moment.
    pub fences: i64,
    pub paused: bool,
    pub paused_reason: Option<String>,
    pub paused_by: Option<String>,
    /// What is left of a pushback; 0 when there is none.
    pub blocked_for_us: i64,
    pub blocked_reason: Option<String>,
    pub blocked_by: Option<String>,
    /// What is left of a fence; 0 when there is none.
    pub fenced_for_us: i64,
    /// Negative while the last slot is still ahead; none before the first.
    pub last_slot_age_us: Option<i64>,
}

/// A class as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    pub budget: String,
    pub name: String,
    pub priority: i32,
    /// The guaranteed share, in parts per million.
    pub floor_ppm: i32,
    /// Calls granted since the class was made.
    pub granted: i64,
    pub waiting_lanes: i64,
    pub waiting_units: i64,
    /// Negative while the last slot is still ahead; none before the first.
    pub last_slot_age_us: Option<i64>,
}

/// The server and database that hold the budgets.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    pub version: String,
    pub fsync: String,
    pub synchronous_commit: String,
    pub full_page_writes: String,
    /// Who is connected to this database, apart from the asking session.
    pub processes: Vec<Process>,
    pub oldest_snapshot: Option<Snapshot>,
}

impl Server {
    /// What figures of durability and speed are worth: the version, and the three settings that can make commits cheap.
    pub fn durability(&self) -> BTreeMap<&'static str, String> {
        [
            ("version", &self.version),
            ("fsync", &self.fsync),
            ("synchronous_commit", &self.synchronous_commit),
            ("full_page_writes", &self.full_page_writes),
        ]
        .map(|(name, value)| (name, value.clone()))
        .into()
    }
}

/// Sessions of one name.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Empty where a session gave none.
    pub application_name: String,
    pub sessions: i64,
}

/// A snapshot that keeps row versions from being cleaned up: each thousand transactions of age make an acquire slower.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    pub application_name: String,
    /// Transactions since it was taken.
    pub transactions: i64,
    /// How long its transaction has lasted; none where this role may not see it.
    pub age_us: Option<i64>,
}

/// What processes show of their breakers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breakers {
    /// By name; those that have something to tell while they are not closed, and for an hour after.
    Shown(Vec<Breaker>),
    /// The schema is older.
    NotInSchema,
    /// This role may not see them.
    NotPermitted,
}

impl Breakers {
    /// Why there is nothing to see, and the way out.
    pub fn why_unseen(&self) -> Option<&'static str> {
        match self {
            Self::Shown(_) => None,
            Self::NotInSchema => Some("the schema is older than this call-budget: run \"call-budget migrate\""),
            Self::NotPermitted => Some("this role may not see them: run \"call-budget access ROLE --as client\" again"),
        }
    }
}

/// A breaker of one process, as it was `age_us` ago. What is left of something is reckoned to now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Breaker {
    pub breaker: String,
    /// Behind it, the first 20.
    pub surfaces: Vec<String>,
    /// 63 random bits of the process, in hexadecimal.
    pub process: String,
    /// Empty where its sessions give none.
    pub application_name: String,
    pub state: String,
    pub why: String,
    /// Until something can change.
    pub retry_us: Option<i64>,
    pub rung: i32,
    /// Parts per million of the last outcomes; none where no rule asks, or too few to say.
    pub failure_rate_ppm: Option<i32>,
    pub slow_rate_ppm: Option<i32>,
    pub calls: i64,
    pub successes: i64,
    pub failures: i64,
    pub rejected: i64,
    pub episode: Option<Episode>,
    pub holds: Vec<Hold>,
    pub age_us: i64,
    /// Older than 60 s: it says what was.
    pub stale: bool,
}

/// From the first trip to proven recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Episode {
    pub age_us: i64,
    /// As of when it was told.
    pub total_open_us: i64,
    pub reopen_count: i32,
    pub probe_count: i32,
    pub cause: String,
}

/// What is refused although the breaker lets it pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub scope: String,
    pub why: String,
    pub left_us: i64,
}

/// All budgets by name, or the one of that name.
pub async fn budgets(operation: &Operation<'_>, name: Option<&str>) -> Result<Vec<Budget>, OperationError> {
    let rows = operation
        .rows(
            "SELECT name::text, limit_units::integer AS limit_units, window_us::bigint AS window_us,
                    send_window_us::bigint AS send_window_us, arrival_jitter_us::bigint AS arrival_jitter_us,
                    max_cost::integer AS max_cost, interval_us::bigint AS interval_us, lookahead_us::bigint AS lookahead_us,
                    version, fences, paused, paused_reason, paused_by, blocked_for_us, blocked_reason, blocked_by,
                    fenced_for_us, last_slot_age_us
               FROM call_budget.call_budget_status WHERE $1::text IS NULL OR name = $1 ORDER BY name",
            &[(&name, Type::TEXT)],
        )
        .await?;
    Ok(rows.iter().map(budget).collect())
}

/// The classes of all budgets, or of one: most important first.
pub async fn classes(operation: &Operation<'_>, budget: Option<&str>) -> Result<Vec<Class>, OperationError> {
    let rows = operation
        .rows(
            "SELECT budget::text, name::text, priority::integer AS priority, floor_ppm::integer AS floor_ppm,
                    granted, waiting_lanes, waiting_units, last_slot_age_us
               FROM call_budget.call_budget_class_status AS c
              WHERE $1::text IS NULL OR budget = $1 ORDER BY c.budget, c.priority, c.name",
            &[(&budget, Type::TEXT)],
        )
        .await?;
    Ok(rows.iter().map(class).collect())
}

/// What processes show of their breakers, where the schema knows of it and this role may see it.
pub async fn breakers(operation: &Operation<'_>) -> Result<Breakers, OperationError> {
    let view = operation
        .rows(
            "SELECT has_table_privilege(oid, 'SELECT') FROM pg_class
              WHERE relnamespace = 'call_budget'::regnamespace AND relname = 'call_budget_breaker_status'",
            &[],
        )
        .await?;
    match view.first().map(|view| view.get(0)) {
        None => return Ok(Breakers::NotInSchema),
        Some(false) => return Ok(Breakers::NotPermitted),
        Some(true) => {}
    }
    let rows = operation
        .rows(
            "SELECT breaker, surfaces, process, application_name, state, why, retry_us, rung, failure_rate_ppm, slow_rate_ppm, calls,
                    successes, failures, rejected, episode_age_us, total_open_us, reopen_count, probe_count, cause,
                    holds::text AS holds, age_us, stale
               FROM call_budget.call_budget_breaker_status ORDER BY breaker, application_name, process",
            &[],
        )
        .await?;
    Ok(Breakers::Shown(rows.iter().map(breaker).collect()))
}

/// The server, as far as this role may see it.
pub async fn server(operation: &Operation<'_>) -> Result<Server, OperationError> {
    let settings = operation
        .row(
            "SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
                    current_setting('synchronous_commit') AS synchronous_commit,
                    current_setting('full_page_writes') AS full_page_writes",
            &[],
        )
        .await?;
    let processes = operation
        .rows(
            "SELECT coalesce(application_name, '') AS application_name, count(*) AS sessions FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL
                AND coalesce(backend_type, 'client backend') = 'client backend'
              GROUP BY 1 ORDER BY 1",
            &[],
        )
        .await?;
    // A standby's feedback (a session of no database) holds rows of every database.
    let snapshot = operation
        .rows(
            "SELECT coalesce(application_name, '') AS application_name, age(backend_xmin)::bigint AS transactions,
                    (extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::bigint AS age_us FROM pg_stat_activity
              WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL
              ORDER BY age(backend_xmin) DESC LIMIT 1",
            &[],
        )
        .await?;
    Ok(Server {
        version: settings.get("version"),
        fsync: settings.get("fsync"),
        synchronous_commit: settings.get("synchronous_commit"),
        full_page_writes: settings.get("full_page_writes"),
        processes: processes
            .iter()
            .map(|row| Process { application_name: row.get("application_name"), sessions: row.get("sessions") })
            .collect(),
        oldest_snapshot: snapshot.first().map(|row| Snapshot {
            application_name: row.get("application_name"),
            transactions: row.get("transactions"),
            age_us: row.get("age_us"),
        }),
    })
}

fn budget(row: &Row) -> Budget {
    Budget {
        name: row.get("name"),
        settings: Settings {
            limit: row.get("limit_units"),
            window_us: row.get("window_us"),
            send_window_us: row.get("send_window_us"),
            arrival_jitter_us: row.get("arrival_jitter_us"),
            max_cost: row.get("max_cost"),
            interval_us: row.get("interval_us"),
            lookahead_us: row.get("lookahead_us"),
        },
        version: row.get("version"),
        fences: row.get("fences"),
        paused: row.get("paused"),
        paused_reason: row.get("paused_reason"),
        paused_by: row.get("paused_by"),
        blocked_for_us: row.get("blocked_for_us"),
        blocked_reason: row.get("blocked_reason"),
        blocked_by: row.get("blocked_by"),
        fenced_for_us: row.get("fenced_for_us"),
        last_slot_age_us: row.get("last_slot_age_us"),
    }
}

fn class(row: &Row) -> Class {
    Class {
        budget: row.get("budget"),
        name: row.get("name"),
        priority: row.get("priority"),
        floor_ppm: row.get("floor_ppm"),
        granted: row.get("granted"),
        waiting_lanes: row.get("waiting_lanes"),
        waiting_units: row.get("waiting_units"),
        last_slot_age_us: row.get("last_slot_age_us"),
    }
}

fn breaker(row: &Row) -> Breaker {
    let episode = |age_us| Episode {
        age_us,
        total_open_us: row.get("total_open_us"),
        reopen_count: row.get("reopen_count"),
        probe_count: row.get("probe_count"),
        cause: row.get("cause"),
    };
    Breaker {
        breaker: row.get("breaker"),
        surfaces: row.get("surfaces"),
        process: format!("{:016x}", row.get::<_, i64>("process")),
        application_name: row.get("application_name"),
        state: row.get("state"),
        why: row.get("why"),
        retry_us: row.get("retry_us"),
        rung: row.get("rung"),
        failure_rate_ppm: row.get("failure_rate_ppm"),
        slow_rate_ppm: row.get("slow_rate_ppm"),
        calls: row.get("calls"),
        successes: row.get("successes"),
        failures: row.get("failures"),
        rejected: row.get("rejected"),
        episode: row.get::<_, Option<i64>>("episode_age_us").map(episode),
        holds: serde_json::from_str(row.get("holds")).expect("the view makes this list itself"),
        age_us: row.get("age_us"),
        stale: row.get("stale"),
    }
}
