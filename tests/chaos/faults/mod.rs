//! The faults, one file a group: each does harm, undoes it, and says when.

mod callers;
mod clock;
mod link;
mod server;
mod sessions;
mod snapshot;

use std::time::Duration;

use fastrand::Rng;

use super::fleet::{Fleet, now_us};
use super::judge::Span;
use super::schedule::Kind;
use super::site::{self, Site};
use crate::tools::faketime;
pub use snapshot::Snapshot;

/// What faults are done to.
pub struct Scene {
    pub site: Site,
    pub fleet: Fleet,
    /// When the store's clock was stepped forward.
    pub steps_us: Vec<u64>,
    /// Somebody's old view of the database, which lasts over other faults.
    pub snapshot: Option<Snapshot>,
}

/// A fault that is over.
pub struct Healed {
    pub at_us: u64,
    /// Whose next arrival shows that all is well; `None`: anybody's.
    pub whom: Option<u32>,
    /// What this kind needs besides what every fault needs.
    pub needs: Duration,
    pub forgettable: u64,
    /// When nobody could be granted anything.
    pub silent: Option<Span>,
    pub note: String,
}

impl Healed {
    /// Now, for everybody.
    fn now(note: impl Into<String>) -> Self {
        Self { at_us: now_us(), whom: None, needs: Duration::ZERO, forgettable: 0, silent: None, note: note.into() }
    }
}

/// Whether that kind can be tried on this machine, or why not.
pub fn available(kind: Kind) -> Result<(), String> {
    match kind {
        Kind::Promotion => site::two_addresses(),
        Kind::ClockForward | Kind::ClockBack => faketime::available(),
        _ => Ok(()),
    }
}

/// Does it, and undoes it.
pub async fn play(kind: Kind, scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    match kind {
        Kind::CallerKilled => callers::killed(scene, rng).await,
        Kind::CallerStopped => callers::stopped(scene, rng).await,
        Kind::BackendKilled => server::backend_killed(scene).await,
        Kind::ServerImmediate => server::immediate(scene, rng).await,
        Kind::ServerRestart => server::restart(scene).await,
        Kind::Promotion => server::promotion(scene, rng).await,
        Kind::HeldSnapshot => snapshot::begin(scene, rng).await,
        Kind::RowLocked => sessions::row_locked(scene, rng).await,
        Kind::LinkLatency
        | Kind::LinkBlackHole
        | Kind::LinkReset
        | Kind::LinkSlicer
        | Kind::LinkBandwidth
        | Kind::LinkLimitData => link::poisoned(kind, scene, rng).await,
        Kind::ClockForward => clock::forward(scene, rng).await,
        Kind::ClockBack => clock::back(scene, rng).await,
    }
}

/// What belongs to a fault and is done once the fleet calls again.
pub async fn clean_up(kind: Kind, scene: &mut Scene) -> Result<(), String> {
    if kind == Kind::Promotion { scene.site.replace_standby().await } else { Ok(()) }
}

/// So long, by chance.
fn between(rng: &mut Rng, least_ms: u64, most_ms: u64) -> Duration {
    Duration::from_millis(rng.u64(least_ms..=most_ms))
}
