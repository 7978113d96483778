//! A session for people: the same stages as for an acquire, one deadline over all of them, no pool.

use std::time::Duration;

use tokio_postgres::Client;

use super::session::{Opener, Session};
use super::{Progress, StoreError};
use crate::clock::{Clock, SystemClock};
use crate::config::Connection;

/// From the first look-up to the end of the login. Long enough for a slow line, short enough for a person who waits.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One open session. It is closed when this is dropped.
pub struct Direct(Session);

impl Direct {
    /// Connects and logs in, within [`CONNECT_TIMEOUT`].
    ///
    /// # Errors
    /// Which stage failed or ran out of time, after how long, and what to look at.
    pub async fn connect(connection: Connection) -> Result<Self, StoreError> {
        let clock = SystemClock;
        let began = clock.now();
        let progress = Progress::default();
        let opener = Opener::new(connection, clock);
        let opened = clock.until(began + CONNECT_TIMEOUT, opener.log_in(&progress)).await;
        let opened = opened.unwrap_or_else(|| Err(StoreError::out_of_time(&progress)));
        Ok(Self(opened.map_err(|error| error.after(clock.now().saturating_since(began)))?))
    }

    /// The session's client.
    pub fn client(&mut self) -> &mut Client {
        &mut self.0.client
    }
}
