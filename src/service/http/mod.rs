//! `call-budget serve`: the library for callers that are not Rust, and a page for the people who run it.
//!
//! It keeps no state that matters, breakers apart: two side by side serve the same budgets, and when one is killed no caller
//! of the other notices. Whatever it cannot answer for certain, it answers with a problem, and nothing is sent.

mod access;
mod acquire;
mod admin;
mod calls;
mod connections;
mod events;
mod fields;
mod health;
mod json;
mod looking;
mod lookout;
mod outcome;
mod page;
mod problem;
mod routes;
mod settings;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::CallBudget;
use crate::clock::{Clock, SystemClock};
use crate::config::{Connection, Settings as Shared, SettingsError};
use crate::policy::Instant;
use crate::service::metrics::HttpFigures;

use access::Tokens;
use calls::OpenCalls;
use connections::Connections;
use lookout::Lookout;

pub use settings::Settings;

/// From the order to stop until nothing runs any longer: settles of calls that are out come in until then.
const STOP_WITHIN: Duration = Duration::from_secs(4);

/// What every endpoint works with.
pub(crate) struct House {
    budgets: CallBudget,
    enabled: bool,
    /// None: nothing says where the store is, which only a switch that is off allows.
    store: Option<Connection>,
    lookout: Lookout,
    calls: OpenCalls,
    tokens: Tokens,
    allowed_hosts: Vec<String>,
    started: Instant,
    /// Callers that wait for their slot.
    waiting: AtomicUsize,
    http: HttpFigures,
    stopping: watch::Sender<bool>,
}

impl House {
    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Completes when the service is told to stop.
    async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as the house.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Counts as waiting until it is dropped.
    fn waits(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The service at work. [`Service::stop`] ends it in order; dropped, it ends at once.
pub struct Service {
    house: Arc<House>,
    address: SocketAddr,
    connections: Connections,
    tasks: Vec<JoinHandle<()>>,
}

/// Why it did not start.
#[derive(Debug)]
pub enum StartError {
    /// A setting cannot be; the message says which and what to do.
    Settings(SettingsError),
    /// The address cannot be used.
    Address(SocketAddr, std::io::Error),
}

impl Service {
    /// Listens from here on.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(shared: &Shared, settings: Settings) -> Result<Service, StartError> {
        let tokens = settings.tokens().map_err(StartError::Settings)?;
        let budgets = CallBudget::new(shared).map_err(StartError::Settings)?;
        let store = match Connection::of(shared) {
            Ok(connection) => Some(connection),
            // The switch is off, and then nothing has to say where the store is: there is nothing to look at.
            Err(_) if !shared.enabled => None,
            Err(error) => return Err(StartError::Settings(error)),
        };
        let listener =
            connections::listen(settings.listen).map_err(|error| StartError::Address(settings.listen, error))?;
        let address = listener.local_addr().map_err(|error| StartError::Address(settings.listen, error))?;
        let house = Arc::new(House {
            budgets,
            enabled: shared.enabled,
            lookout: Lookout::new(store.clone()),
            store,
            calls: OpenCalls::default(),
            tokens,
            allowed_hosts: settings.allowed_hosts,
            started: SystemClock.now(),
            waiting: AtomicUsize::new(0),
            http: HttpFigures::default(),
            stopping: watch::Sender::new(false),
        });
        let connections = Connections::accept(listener, routes::router(&house), settings.max_connections);
        let mut tasks = vec![tokio::spawn(calls::sweep(Arc::clone(&house)))];
        if shared.enabled {
            tasks.push(tokio::spawn(lookout::sample(Arc::clone(&house))));
        }
        Ok(Service { house, address, connections, tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it in order, within 5 s: callers that wait are refused, what is being answered is answered, and calls that are
    /// out can be settled for as long as that takes.
    pub async fn stop(mut self) {
        self.house.stopping.send_replace(true);
        let deadline = SystemClock.now() + STOP_WITHIN;
        self.house.calls.until_settled(deadline).await;
        self.connections.close(deadline).await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
