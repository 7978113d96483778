//! The figures of a run, computed from the arrival log and the heartbeat. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::arrivals::Arrival;
use super::heartbeat::{Stall, micros};
use super::limit::Kind;
use super::settings::Settings;
use super::windows::{ClosedWindow, Weighed, closed_windows};

/// What a mock vendor saw since it started or was reset. Times are microseconds of the machine's clock.
///
/// Every arrival counts in the windows, refused ones too, whatever kind of window the vendor enforces; each is judged
/// by the limit that was in force when it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub limit: u32,
    pub window_us: u64,
    pub kind: Kind,
    pub arrivals: u64,
    /// The arrivals' costs added up; token requests cost nothing.
    pub units: u64,
    /// The most units in the closed window [t - window, t] of any arrival t.
    pub worst_window: u64,
    /// How many arrivals end a closed window that holds more than the limit.
    pub over_limit_windows: u64,
    pub worst_window_without_late: u64,
    pub over_limit_windows_without_late: u64,
    /// Arrivals past the end of their send window and the arrival jitter.
    pub late: u64,
    /// Arrivals answered EGW00201.
    pub refused: u64,
    /// Those of them that were within the limit.
    pub refused_below_limit: u64,
    /// The processes that called, each once.
    pub pids: Vec<u32>,
    pub first_arrival_us: Option<u64>,
    pub last_arrival_us: Option<u64>,
    /// The longest stall of the mock itself; 0 if there was none.
    pub worst_stall_us: u64,
    pub stalls: Vec<Stall>,
    /// A window over the limit touches a stall, so that neither pass nor fail can be said.
    pub violation_during_stall: bool,
    pub by_class: BTreeMap<String, ClassCount>,
    /// Arrivals whose nonce had been seen before.
    pub duplicate_nonces: u64,
}

/// What came from one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCount {
    pub arrivals: u64,
    pub units: u64,
}

/// The figures of `arrivals`, which must be in the order of arrival.
pub fn report(arrivals: &[Arrival], stalls: &[Stall], settings: &Settings) -> Report {
    let all = Windows::of(arrivals.iter());
    let without_late = Windows::of(arrivals.iter().filter(|arrival| !arrival.late));
    let mut by_class = BTreeMap::<String, ClassCount>::new();
    for arrival in arrivals {
        let count = match by_class.get_mut(&arrival.note.class) {
            Some(count) => count,
            None => by_class.entry(arrival.note.class.clone()).or_default(),
        };
        count.arrivals += 1;
        count.units += u64::from(arrival.units);
    }
    let pids: BTreeSet<u32> = arrivals.iter().filter_map(|arrival| arrival.note.pid).collect();
    let nonces = arrivals.iter().filter_map(|arrival| arrival.note.nonce);
    let mut seen = HashSet::new();
    Report {
        limit: settings.limit,
        window_us: micros(settings.window),
        kind: settings.kind,
        arrivals: arrivals.len() as u64,
        units: by_class.values().map(|count| count.units).sum(),
        worst_window: all.worst,
        over_limit_windows: all.over_limit.len() as u64,
        worst_window_without_late: without_late.worst,
        over_limit_windows_without_late: without_late.over_limit.len() as u64,
        late: count(arrivals, |arrival| arrival.late),
        refused: count(arrivals, |arrival| arrival.refused),
        refused_below_limit: count(arrivals, |arrival| arrival.refused_below_limit),
        pids: pids.into_iter().collect(),
        first_arrival_us: arrivals.first().map(|arrival| arrival.at_us),
        last_arrival_us: arrivals.last().map(|arrival| arrival.at_us),
        worst_stall_us: stalls.iter().map(|stall| stall.for_us).max().unwrap_or(0),
        stalls: stalls.to_vec(),
        violation_during_stall: all.touch_any(stalls),
        by_class,
        duplicate_nonces: nonces.filter(|nonce| !seen.insert(*nonce)).count() as u64,
    }
}

fn count(arrivals: &[Arrival], which: impl Fn(&Arrival) -> bool) -> u64 {
    arrivals.iter().filter(|arrival| which(arrival)).count() as u64
}

#[derive(Default)]
struct Windows {
    worst: u64,
    over_limit: Vec<ClosedWindow>,
}

impl Windows {
    /// Each account by itself: its windows hold its own arrivals only.
    fn of<'a>(arrivals: impl Iterator<Item = &'a Arrival>) -> Windows {
        let mut by_account = BTreeMap::<&str, Vec<Weighed>>::new();
        for Arrival { at_us, account, units, limit, window_us, .. } in arrivals.filter(|arrival| arrival.units > 0) {
            let weighed = Weighed { at_us: *at_us, units: *units, limit: *limit, window_us: *window_us };
            by_account.entry(account).or_default().push(weighed);
        }
        let mut windows = Windows::default();
        for window in by_account.values().flat_map(|arrivals| closed_windows(arrivals)) {
            windows.worst = windows.worst.max(window.units);
            if window.is_over_limit() {
                windows.over_limit.push(window);
            }
        }
        windows
    }

    fn touch_any(&self, stalls: &[Stall]) -> bool {
        let touched = |window: &ClosedWindow| stalls.iter().any(|stall| stall.overlaps(window.from_us, window.to_us));
        self.over_limit.iter().any(touched)
    }
}
