//! What the fleet stands on: a database with the budget and its classes, thrown away or cleared afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::{self, BUDGET, LIMIT, LOOKAHEAD};
use super::worker::Pacing;
use crate::cli::command_error::CommandError;
use crate::cli::database::{Connected, Database};
use crate::cli::progress;
use crate::service::scratch_postgres::ScratchPostgres;
use crate::store::admin;
use crate::store::status;

pub struct Stage {
    /// None where each process paces itself: then no database is needed.
    store: Option<Store>,
    interval_us: u64,
    settings: BTreeMap<&'static str, String>,
}

struct Store {
    url: String,
    connected: Connected,
    /// None where the database is somebody else's.
    server: Option<ScratchPostgres>,
}

/// Where a database is, as far as it may be shown.
pub enum Url<'a> {
    ThrowAway(&'a str),
    Given,
}

impl Stage {
    /// Starts what is missing, migrates, and sets the budget and its classes.
    pub async fn prepare(database_url: Option<String>, governed: bool) -> Result<Stage, CommandError> {
        let interval = LIMIT.interval().expect("the demo's limit is safe at some interval");
        let interval_us = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        if !governed {
            return Ok(Stage { store: None, interval_us, settings: BTreeMap::new() });
        }
        let (url, server) = match database_url {
            Some(url) => (url, None),
            None => {
                let server = start_server().await?;
                (server.url("postgres"), Some(server))
            }
        };
        let (mut connected, _) = Database::from(url.clone()).migrate().await?;
        let settings = set_budget(&mut connected, interval_us, server.is_none()).await?;
        Ok(Stage { store: Some(Store { url, connected, server }), interval_us, settings })
    }

    /// The throw-away database's URL, or that it is somebody else's, which is not to be shown: it may hold a password. None
    /// where no database is needed.
    pub fn url(&self) -> Option<Url<'_>> {
        let store = self.store.as_ref()?;
        Some(if store.server.is_some() { Url::ThrowAway(&store.url) } else { Url::Given })
    }

    pub fn interval_us(&self) -> u64 {
        self.interval_us
    }

    pub fn settings(&self) -> &BTreeMap<&'static str, String> {
        &self.settings
    }

    /// How each of the processes paces itself.
    pub fn pacing(&self, processes: usize) -> Pacing {
        match &self.store {
            Some(store) => Pacing::Budget { database_url: store.url.clone() },
            // Together exactly the limit.
            None => {
                let window_us = u64::try_from(LIMIT.window.as_micros()).unwrap_or(u64::MAX);
                Pacing::Alone { interval_us: window_us * processes as u64 / u64::from(LIMIT.units) }
            }
        }
    }

    /// Stops the server, or takes the budget out of a database that is somebody else's.
    pub async fn clear(&mut self) {
        let Some(mut store) = self.store.take() else { return };
        match store.server {
            Some(server) => {
                let _ = tokio::task::spawn_blocking(move || drop(server)).await;
            }
            None => {
                // The slots that are out pass first.
                tokio::time::sleep(LIMIT.send_window + LOOKAHEAD + Duration::from_micros(2 * self.interval_us)).await;
                if let Err(error) = remove_budget(&mut store.connected).await {
                    eprintln!("{}", error.hint(format!("remove it with \"call-budget budget delete {BUDGET} --yes\"")));
                }
            }
        }
    }
}

/// A throw-away PostgreSQL.
pub async fn start_server() -> Result<ScratchPostgres, CommandError> {
    let starting = tokio::task::spawn_blocking(|| ScratchPostgres::start(&[]));
    let started = progress::during("starting a throw-away PostgreSQL", starting).await;
    let started = started.map_err(|error| CommandError::failed(format!("PostgreSQL could not be started: {error}")))?;
    started.map_err(|error| CommandError::store(error.to_string()))
}

async fn set_budget(
    connected: &mut Connected,
    interval_us: u64,
    foreign: bool,
) -> Result<BTreeMap<&'static str, String>, CommandError> {
    let us = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    let operation = connected.begin().await?;
    if foreign && !status::budgets(&operation, Some(BUDGET)).await?.is_empty() {
        return Err(CommandError::failed(format!(
            "that database already has a budget {BUDGET:?}, and the demo would change it"
        ))
        .hint("use another database, or none: the demo then starts its own"));
    }
    let settings = admin::Settings {
        limit: i32::try_from(LIMIT.units).unwrap_or(i32::MAX),
        window_us: us(LIMIT.window),
        send_window_us: us(LIMIT.send_window),
        arrival_jitter_us: us(LIMIT.arrival_jitter),
        max_cost: i32::try_from(LIMIT.max_cost).unwrap_or(i32::MAX),
        interval_us: i64::try_from(interval_us).unwrap_or(i64::MAX),
        lookahead_us: us(LOOKAHEAD),
    };
    if admin::set(&operation, BUDGET, &settings).await? != 1 {
        // Another demo made it between the look and now.
        return Err(CommandError::failed(format!("that database has just got a budget {BUDGET:?} from somebody else"))
            .hint("use another database, or none: the demo then starts its own"));
    }
    for class in plan::classes() {
        let floor_ppm = (class.floor * 1e6).round() as i32;
        admin::class_set(&operation, BUDGET, class.name, class.priority, floor_ppm).await?;
    }
    let server = status::server(&operation).await?;
    operation.commit().await?;
    Ok(server.durability())
}

async fn remove_budget(connected: &mut Connected) -> Result<(), CommandError> {
    let operation = connected.begin().await?;
    admin::delete(&operation, BUDGET).await?;
    Ok(operation.commit().await?)
}
