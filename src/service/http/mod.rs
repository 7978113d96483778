//! `call-budget serve`: the library for callers that are not Rust, and a page for the people who run it.
//!
//! It keeps no state that matters, breakers apart: two side by side serve the same budgets, and when one is killed no caller
//! of the other notices. Whatever it cannot answer for certain, it answers with a problem, and nothing is sent.

mod access;
mod acquire;
mod admin;
mod calls;
mod connections;
mod descriptors;
mod events;
mod fields;
mod health;
mod json;
mod leave;
mod limits;
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

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
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
use problem::Problem;

pub use settings::Settings;
pub(crate) use settings::names;

/// From the order to stop until nothing runs any longer: settles of calls that are out come in until then.
const STOP_WITHIN: Duration = Duration::from_secs(4);

/// Connections at most that nobody may keep for long; a tenth of them where that is fewer.
const MOST_RESERVED: usize = 50;

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
    /// For whoever keeps a connection for long. They are fewer than connections: looking, settling and orders find one.
    places: Arc<Semaphore>,
    http: HttpFigures,
    stopping: watch::Sender<bool>,
    /// It is time to end what is not a whole request.
    closing: watch::Sender<bool>,
}

impl House {
    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Completes when the service is told to stop.
    async fn stopped(&self) {
        // The sender lives as long as the house.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Completes when no call is out any longer that could be settled, or its time is over.
    async fn closing(&self) {
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// What `work` comes to, or a problem where the service is told to stop before.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        tokio::select! {
            biased;
            () = self.stopped() => Err(Problem::stopping()),
            done = work => Ok(done),
        }
    }

    /// A place among those that keep a connection for long, or a problem where all are taken.
    fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| Problem::crowded())
    }

    /// Counts as waiting until it is dropped.
    fn waits(&self) -> Result<Waiting<'_>, Problem> {
        let place = self.place()?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Waiting { count: &self.waiting, _place: place })
    }
}

struct Waiting<'a> {
    count: &'a AtomicUsize,
    _place: OwnedSemaphorePermit,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Of so many connections, how many may be kept for long.
fn places(connections: usize) -> usize {
    let reserve = (connections / 10).clamp(1, MOST_RESERVED);
    connections.saturating_sub(reserve).max(1)
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
        let max_connections = descriptors::room(settings.max_connections, shared.pool_size);
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
            places: Arc::new(Semaphore::new(places(max_connections))),
            http: HttpFigures::default(),
            stopping: watch::Sender::new(false),
            closing: watch::Sender::new(false),
        });
        let connections = Connections::accept(listener, routes::router(&house), max_connections);
        let looking = Arc::clone(&house);
        let tasks = vec![
            tokio::spawn(calls::sweep(Arc::clone(&house))),
            if shared.enabled {
                tokio::spawn(lookout::sample(looking))
            } else {
                tokio::spawn(lookout::leave_alone(looking))
            },
        ];
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
        self.house.closing.send_replace(true);
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
