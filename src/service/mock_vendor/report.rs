//! The figures of a run, from the arrivals and the heartbeat. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::arrivals::Arrival;
use super::heartbeat::{Stall, micros};
use super::limit::Kind;
use super::settings::Settings;
use super::windows::{ClosedWindow, Weighed, Windows};

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
    /// Connections that a black hole reset unread: what was to come on them never arrived.
    pub turned_away: u64,
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

/// The figures so far, kept up with each arrival.
#[derive(Debug, Default)]
pub struct Tally {
    arrivals: u64,
    late: u64,
    refused: u64,
    refused_below_limit: u64,
    turned_away: u64,
    duplicate_nonces: u64,
    nonces: HashSet<u64>,
    pids: BTreeSet<u32>,
    by_class: BTreeMap<String, ClassCount>,
    first_us: Option<u64>,
    last_us: Option<u64>,
    /// Each account by itself: its windows hold its own arrivals only.
    accounts: BTreeMap<String, Account>,
}

#[derive(Debug, Default)]
struct Account {
    all: Windows,
    without_late: Windows,
}

impl Tally {
    /// Counts an arrival, which need not be the latest.
    pub fn count(&mut self, arrival: &Arrival) {
        let Arrival { at_us, note, units, limit, window_us, late, .. } = arrival;
        self.arrivals += 1;
        self.late += u64::from(*late);
        self.refused += u64::from(arrival.refused);
        self.refused_below_limit += u64::from(arrival.refused_below_limit);
        self.duplicate_nonces += u64::from(note.nonce.is_some_and(|nonce| !self.nonces.insert(nonce)));
        self.pids.extend(note.pid);
        let class = self.by_class.entry(note.class.clone()).or_default();
        class.arrivals += 1;
        class.units += u64::from(*units);
        self.first_us = Some(self.first_us.map_or(*at_us, |first| first.min(*at_us)));
        self.last_us = self.last_us.max(Some(*at_us));
        if *units > 0 {
            let weighed = Weighed { at_us: *at_us, units: *units, limit: *limit, window_us: *window_us };
            let account = self.accounts.entry(arrival.account.clone()).or_default();
            account.all.enter(weighed);
            if !late {
                account.without_late.enter(weighed);
            }
        }
    }

    /// Counts a connection that was reset unread.
    pub fn turn_away(&mut self) {
        self.turned_away += 1;
    }

    pub fn report(&self, stalls: &[Stall], settings: &Settings) -> Report {
        let all = || self.accounts.values().map(|account| &account.all);
        let without_late = || self.accounts.values().map(|account| &account.without_late);
        let in_a_stall =
            |window: &ClosedWindow| stalls.iter().any(|stall| stall.overlaps(window.from_us, window.to_us));
        Report {
            limit: settings.limit,
            window_us: micros(settings.window),
            kind: settings.kind,
            arrivals: self.arrivals,
            units: self.by_class.values().map(|class| class.units).sum(),
            worst_window: worst(all()),
            over_limit_windows: over_limit(all()),
            worst_window_without_late: worst(without_late()),
            over_limit_windows_without_late: over_limit(without_late()),
            late: self.late,
            refused: self.refused,
            refused_below_limit: self.refused_below_limit,
            turned_away: self.turned_away,
            pids: self.pids.iter().copied().collect(),
            first_arrival_us: self.first_us,
            last_arrival_us: self.last_us,
            worst_stall_us: stalls.iter().map(|stall| stall.for_us).max().unwrap_or(0),
            stalls: stalls.to_vec(),
            violation_during_stall: all().flat_map(Windows::over_limit).any(in_a_stall),
            by_class: self.by_class.clone(),
            duplicate_nonces: self.duplicate_nonces,
        }
    }
}

fn worst<'a>(accounts: impl Iterator<Item = &'a Windows>) -> u64 {
    accounts.map(Windows::worst).max().unwrap_or(0)
}

fn over_limit<'a>(accounts: impl Iterator<Item = &'a Windows>) -> u64 {
    accounts.flat_map(Windows::over_limit).count() as u64
}
