//! A session for people: the same stages as for an acquire, one deadline over all of them, no pool.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use tokio_postgres::Client;

use super::connect::Target;
use super::session::{Opener, Session};
use super::{Progress, StoreError};
use crate::clock::{Clock, SystemClock};
use crate::config::Connection;
use crate::policy::stage::Stage;

/// From the first look-up to the end of the login. Long enough for a slow line, short enough for a person who waits.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One open session. It is closed when this is dropped.
pub struct Direct(Session);

/// Opens sessions to one place, one after the other. Names are looked up anew each time; the certificates to trust are read
/// once, as in a process that runs on.
pub struct Openings(Opener<SystemClock>);

/// An attempt to open a session, and what its stages took.
pub struct Opening {
    /// The stages that were entered, in their order, each once. Where the attempt failed, the last one is unfinished.
    pub stages: Vec<(Stage, Duration)>,
    /// The session, or which stage failed or ran out of time.
    pub outcome: Result<Direct, StoreError>,
}

/// What lies between this machine and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A Unix socket.
    Socket,
    /// An address of this machine.
    Loopback,
    /// A network.
    Network,
}

impl Direct {
    /// Connects and logs in, within [`CONNECT_TIMEOUT`].
    ///
    /// # Errors
    /// Which stage failed or ran out of time, after how long, and what to look at.
    pub async fn connect(connection: Connection) -> Result<Self, StoreError> {
        Openings::new(connection).open().await.outcome
    }

    /// The session's client.
    pub fn client(&mut self) -> &mut Client {
        &mut self.0.client
    }

    /// What lies between this machine and the server, or whatever answers in its place.
    pub fn way(&self) -> Way {
        match &self.0.target {
            Target::Socket(_) => Way::Socket,
            Target::Tcp { address, .. } if address.ip().is_loopback() => Way::Loopback,
            Target::Tcp { .. } => Way::Network,
        }
    }
}

impl Openings {
    /// Nothing is opened yet.
    pub fn new(connection: Connection) -> Self {
        Self(Opener::new(connection, SystemClock))
    }

    /// Connects and logs in, within [`CONNECT_TIMEOUT`], and notes what each stage took.
    pub async fn open(&self) -> Opening {
        let clock = SystemClock;
        let began = clock.now();
        let progress = Progress::default();
        let mut opening = pin!(clock.until(began + CONNECT_TIMEOUT, self.0.log_in(&progress)));
        let mut entered = vec![(Stage::LocalWait, began)];
        let opened = poll_fn(|cx| {
            let polled = opening.as_mut().poll(cx);
            let stage = progress.stage();
            if entered.last().is_none_or(|(last, _)| *last != stage) {
                // What the first stage does at once is its own.
                entered.push((stage, if entered.len() == 1 { began } else { clock.now() }));
            }
            polled
        })
        .await;
        let ended = clock.now();
        let mut stages: Vec<(Stage, Duration)> = Vec::new();
        for (index, (stage, from)) in entered.iter().enumerate().skip(1) {
            let until = entered.get(index + 1).map_or(ended, |(_, next)| *next);
            let took = until.saturating_since(*from);
            // A refused password is read anew, and all begins again.
            match stages.iter_mut().find(|(known, _)| known == stage) {
                Some((_, sum)) => *sum += took,
                None => stages.push((*stage, took)),
            }
        }
        let outcome = opened.unwrap_or_else(|| Err(StoreError::out_of_time(&progress)));
        let outcome = outcome.map(Direct).map_err(|error| error.after(ended.saturating_since(began)));
        Opening { stages, outcome }
    }
}
