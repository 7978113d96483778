//! A primary and its streaming standby, at two addresses of this machine and on the same port: what a failover by DNS
//! looks like, where the name stays and the address changes.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use call_budget::service::scratch_postgres::{Halt, ScratchOptions, ScratchPostgres};

use super::kept::within;
use super::psql::{ask, try_ask};

/// Where the primary listens at first.
pub const PRIMARY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Where the standby listens.
pub const STANDBY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// The pair; both end with the value. Roles and passwords are the same on both.
pub struct Pair {
    /// First, so that it is gone before its primary: a standby that waits for one ends slowly.
    pub standby: ScratchPostgres,
    pub primary: ScratchPostgres,
}

/// When the primary calls a commit done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    Asynchronous,
    /// When the standby has it too: without a standby, commits wait.
    Synchronous,
}

impl Pair {
    /// Starts both, the standby in step with the primary. `settings` are those of either.
    ///
    /// An error says that this machine has no second loopback address (macOS has one only).
    pub fn start(replication: Replication, settings: &[(&str, &str)]) -> Result<Self, String> {
        let port = free_port()?;
        let at = |address, primary| ScratchOptions {
            settings,
            address,
            port: Some(port),
            standby_of: primary,
            ..ScratchOptions::default()
        };
        let primary = ScratchPostgres::start_with(&at(PRIMARY, None)).map_err(|error| error.to_string())?;
        let standby = ScratchPostgres::start_with(&at(STANDBY, Some(&primary))).map_err(|error| error.to_string())?;
        let pair = Self { standby, primary };
        pair.wait_until_in_step();
        if replication == Replication::Synchronous {
            ask(&pair.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'");
            ask(&pair.primary, "SELECT pg_reload_conf()");
            within(PATIENCE, "the standby is synchronous", || {
                ask(&pair.primary, "SELECT sync_state FROM pg_stat_replication") == "sync"
            });
        }
        Ok(pair)
    }

    /// The port of both.
    pub fn port(&self) -> u16 {
        self.primary.port()
    }

    /// Waits until the standby shows all that the primary had written at this moment. 30 s at most.
    pub fn wait_until_in_step(&self) {
        let written = ask(&self.primary, "SELECT pg_current_wal_flush_lsn()");
        let shown = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
        within(PATIENCE, "the standby is in step", || ask(&self.standby, &shown) == "t");
    }

    /// Stops the primary, cleanly or not. Its `resume` brings it back as it was: a second server that takes writes, if
    /// the standby was promoted meanwhile.
    pub fn stop_primary(&mut self, how: Halt) {
        self.primary.halt(how).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Makes the standby a server that takes writes, whether its primary lives or not. Returns when it does.
    pub fn promote(&self) {
        assert_eq!(
            ask(&self.standby, "SELECT pg_promote(wait => true, wait_seconds => 20)"),
            "t",
            "not promoted in 20 s"
        );
        within(PATIENCE, "the promoted standby takes writes", || {
            try_ask(&self.standby, "SHOW transaction_read_only").is_ok_and(|answer| answer == "off")
        });
    }
}

/// A port that is free at both addresses.
fn free_port() -> Result<u16, String> {
    let both = |port| TcpListener::bind((PRIMARY, port)).and_then(|_| TcpListener::bind((STANDBY, port)));
    if let Err(error) = both(0) {
        return Err(format!("no server can listen at {PRIMARY} and {STANDBY}: {error}"));
    }
    (0..1000)
        .map(|_| fastrand::u16(15_000..32_000))
        .find(|port| both(*port).is_ok())
        .ok_or_else(|| format!("no port is free at both {PRIMARY} and {STANDBY}"))
}

const PATIENCE: Duration = Duration::from_secs(30);
