//! Which faults come when: drawn from a seed, so that a run can be repeated. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use serde::Serialize;

/// The kinds of faults, under the names of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `kill -9` of one or two callers; new ones take their place.
    CallerKilled,
    /// SIGSTOP of one or two callers, and SIGCONT.
    CallerStopped,
    /// `kill -9` of the server's process of a caller's session: the server ends all of them and recovers.
    BackendKilled,
    /// The server is stopped at once, as by a crash, and started.
    ServerImmediate,
    /// The server is stopped in order and started.
    ServerRestart,
    /// `kill -9` of the primary; its standby is promoted, the name moved, and a new standby made of the new primary.
    Promotion,
    /// Somebody's transaction keeps its old view of the database.
    HeldSnapshot,
    /// Somebody holds the budget's row.
    RowLocked,
    /// Answers, or requests, come a quarter of a second late.
    LinkLatency,
    /// Whatever is sent is swallowed.
    LinkBlackHole,
    /// Every connection is reset with its first data.
    LinkReset,
    /// Data passes in small pieces.
    LinkSlicer,
    /// 1 KB/s.
    LinkBandwidth,
    /// Every connection is cut after so many bytes.
    LinkLimitData,
    /// The store's clock steps forward.
    ClockForward,
    /// The store's clock steps back.
    ClockBack,
}

impl Kind {
    pub const ALL: [Kind; 16] = [
        Kind::CallerKilled,
        Kind::CallerStopped,
        Kind::BackendKilled,
        Kind::ServerImmediate,
        Kind::ServerRestart,
        Kind::Promotion,
        Kind::HeldSnapshot,
        Kind::RowLocked,
        Kind::LinkLatency,
        Kind::LinkBlackHole,
        Kind::LinkReset,
        Kind::LinkSlicer,
        Kind::LinkBandwidth,
        Kind::LinkLimitData,
        Kind::ClockForward,
        Kind::ClockBack,
    ];

    /// As the report writes it.
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// A fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    pub kind: Kind,
    /// Since the run began; later where the fault before it took longer.
    pub at: Duration,
    /// For what it draws itself: how long, whom, how much.
    pub seed: u64,
}

/// Nothing happens before: the fleet finds its pace.
const LEAD: Duration = Duration::from_secs(4);
/// Room for the last one to heal.
const TAIL: Duration = Duration::from_secs(5);

/// The faults of a run: every kind once in an order by chance, then every kind again, as many as there is time for.
pub fn plan(seed: u64, length: Duration, kinds: &[Kind]) -> Vec<Planned> {
    let mut rng = Rng::with_seed(seed);
    let spacing = spacing(length);
    let mut turn: Vec<Kind> = Vec::new();
    let mut planned = Vec::new();
    let mut at = LEAD;
    while at + spacing.min(TAIL) <= length && !kinds.is_empty() {
        if turn.is_empty() {
            turn = kinds.to_vec();
            rng.shuffle(&mut turn);
        }
        let kind = turn.pop().expect("it was filled");
        planned.push(Planned { kind, at, seed: rng.u64(..) });
        at += spacing;
    }
    planned
}

/// From one fault to the next: in a short run just what most take to heal and to be calm again.
fn spacing(length: Duration) -> Duration {
    if length >= Duration::from_secs(300) { Duration::from_secs(12) } else { Duration::from_secs(6) }
}

/// How often each kind stands in a plan.
pub fn counts(kinds: impl Iterator<Item = Kind>) -> BTreeMap<Kind, u64> {
    let mut counts = BTreeMap::new();
    kinds.for_each(|kind| *counts.entry(kind).or_default() += 1);
    counts
}
