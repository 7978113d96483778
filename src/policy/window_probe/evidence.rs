//! What was seen, held against every kind of window, every limit and every phase.
//!
//! When a call arrived is not known, only that it was between its sending and its answer. So each count has a least (what
//! surely fell into one window) and a most (what may have), and only what holds either way is held against a kind. Whether a
//! vendor counts the calls that it refuses is not known either: the least is without them, the most with them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Kind;

/// Phases of a fixed window that are told apart.
const PHASES: i64 = 100;
/// Time that is given to every count on either side, as a part of the window: half the way between two phases, and a little
/// for clocks that run differently.
const MARGIN: i64 = 125;
/// How likely it may be, at most, that a kind refused what it did for no reason.
const UNLIKELY: f64 = 1e-5;

/// An answered call. Microseconds since the probe began.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub sent: i64,
    pub answered: i64,
    pub refused: bool,
}

/// All trials, as each kind would have to explain them.
#[derive(Debug)]
pub struct Evidence {
    window: i64,
    admitted: u32,
    sliding: Fit,
    first_call: Fit,
    /// By phase.
    fixed: Vec<Fit>,
}

/// What a kind says of the calls: its limit must be `least` or more, and less than each of `refusals`, unless that one was
/// refused for no reason.
#[derive(Clone, Debug, Default)]
struct Fit {
    least: u32,
    refusals: Vec<u32>,
}

impl Evidence {
    pub fn new(window: Duration) -> Self {
        let window = i64::try_from(window.as_micros()).unwrap_or(i64::MAX / 1000).max(PHASES);
        let phases = usize::try_from(PHASES).unwrap_or_default();
        let (sliding, first_call, fixed) = (Fit::default(), Fit::default(), vec![Fit::default(); phases]);
        Self { window, admitted: 0, sliding, first_call, fixed }
    }

    /// Adds a trial: its calls in the order in which they were sent.
    pub fn add(&mut self, calls: &[Call]) {
        let admitted = calls.iter().filter(|call| !call.refused).count();
        self.admitted += u32::try_from(admitted).unwrap_or(u32::MAX);
        self.sliding.add(sliding(calls, self.window));
        self.first_call.add(first_call(calls, self.window));
        for (phase, fit) in (0..PHASES).zip(&mut self.fixed) {
            fit.add(fixed(calls, self.window, phase * self.window / PHASES));
        }
    }

    /// Whether this kind with this limit explains every answer.
    pub fn explains(&self, kind: Kind, limit: u32) -> bool {
        self.fits(kind).iter().any(|fit| fit.explains(limit))
    }

    /// Whether this kind is as good as impossible, whatever its limit.
    pub fn is_out(&self, kind: Kind) -> bool {
        self.fits(kind).iter().all(|fit| fit.likelihood(self.admitted) < UNLIKELY)
    }

    /// The most calls that were let through surely within the length of a window.
    pub fn closest(&self) -> u32 {
        self.sliding.least
    }

    /// Where the boundary of a fixed window is, as a part of the window after the probe's beginning: the middle of the phases
    /// that explain everything. None where they are not close together.
    pub fn boundary(&self, limit: u32) -> Option<f64> {
        let count = self.fixed.len();
        let possible = |phase: usize| self.fixed[phase % count].explains(limit);
        let begins = (0..count).find(|phase| possible(*phase) && !possible(phase + count - 1))?;
        let length = (begins..).take_while(|phase| possible(*phase)).count();
        let all = (0..count).filter(|phase| possible(*phase)).count();
        (length == all && length * 5 <= count * 2)
            .then(|| ((begins as f64 + (length - 1) as f64 / 2.0) / count as f64).fract())
    }

    /// The limits with which some kind explains every answer; the most is none where nothing was refused.
    pub fn fitting_limits(&self) -> Option<(u32, Option<u32>)> {
        let fits = Kind::ALL.into_iter().flat_map(|kind| self.fits(kind));
        let fitting: Vec<&Fit> = fits.filter(|fit| fit.explains(fit.least)).collect();
        let least = fitting.iter().map(|fit| fit.least).min()?;
        let most = fitting.iter().map(|fit| fit.most()).max()?;
        Some((least, Some(most).filter(|most| *most < u32::MAX)))
    }

    /// The fewest refusals that this kind leaves unexplained; none where it is dead at `limit` by what was let through.
    pub fn unexplained(&self, kind: Kind, limit: u32) -> Option<u32> {
        let alive = self.fits(kind).iter().filter(|fit| fit.least <= limit);
        alive.map(|fit| fit.unexplained(limit)).min()
    }

    fn fits(&self, kind: Kind) -> &[Fit] {
        match kind {
            Kind::Fixed => &self.fixed,
            Kind::FirstCall => std::slice::from_ref(&self.first_call),
            Kind::Sliding => std::slice::from_ref(&self.sliding),
        }
    }
}

impl Fit {
    fn add(&mut self, other: Fit) {
        self.least = self.least.max(other.least);
        self.refusals.extend(other.refusals);
    }

    fn explains(&self, limit: u32) -> bool {
        self.least <= limit && self.unexplained(limit) == 0
    }

    fn unexplained(&self, limit: u32) -> u32 {
        u32::try_from(self.refusals.iter().filter(|most| **most <= limit).count()).unwrap_or(u32::MAX)
    }

    /// The largest limit that explains every refusal.
    fn most(&self) -> u32 {
        self.refusals.iter().map(|most| most - 1).min().unwrap_or(u32::MAX)
    }

    /// How likely the unexplained refusals are at the limit that suits best, which is the least one, and at the rate of random
    /// refusals that suits best.
    fn likelihood(&self, admitted: u32) -> f64 {
        let (refused, admitted) = (f64::from(self.unexplained(self.least)), f64::from(admitted));
        if refused == 0.0 {
            return 1.0;
        }
        let rate = refused / (refused + admitted);
        rate.powf(refused) * (1.0 - rate).powf(admitted)
    }
}

fn sliding(calls: &[Call], window: i64) -> Fit {
    let margin = window / MARGIN;
    let admitted = || calls.iter().filter(|call| !call.refused);
    let from = |first: &Call| {
        let inside = |call: &&Call| call.sent >= first.sent && call.answered <= first.sent + window - margin;
        count(admitted().filter(inside))
    };
    let before = |refused: &Call| {
        let inside = |call: &&Call| call.sent <= refused.answered && call.answered >= refused.sent - window - margin;
        count(calls.iter().filter(inside))
    };
    Fit { least: admitted().map(from).max().unwrap_or(0), refusals: refused(calls).map(before).collect() }
}

fn fixed(calls: &[Call], window: i64, phase: i64) -> Fit {
    let margin = window / MARGIN;
    // The first and the last of the windows that each call may have fallen into.
    let windows = |call: &Call| {
        let first = (call.sent - margin - phase).div_euclid(window);
        (first, (call.answered + margin - phase).div_euclid(window))
    };
    let spans: Vec<(i64, i64)> = calls.iter().map(windows).collect();
    let mut surely = BTreeMap::new();
    for (call, (first, last)) in calls.iter().zip(&spans) {
        if !call.refused && first == last {
            *surely.entry(*first).or_insert(0) += 1;
        }
    }
    let before = |(refused, (first, last)): (&Call, &(i64, i64))| {
        let in_one = |index: i64| {
            let inside = |(call, (first, last)): &(&Call, &(i64, i64))| {
                (*first..=*last).contains(&index) && call.sent <= refused.answered
            };
            u32::try_from(calls.iter().zip(&spans).filter(inside).count()).unwrap_or(u32::MAX)
        };
        (*first..=*last).map(in_one).max().unwrap_or(0)
    };
    let refused = calls.iter().zip(&spans).filter(|(call, _)| call.refused);
    Fit { least: surely.into_values().max().unwrap_or(0), refusals: refused.map(before).collect() }
}

/// The calls come after a quiet time, so the first of them opens a window.
fn first_call(calls: &[Call], window: i64) -> Fit {
    let margin = window / MARGIN;
    // Of each window: when it opened, at the earliest and at the latest.
    let mut windows: Vec<(i64, i64)> = Vec::new();
    let mut after: Vec<&Call> = calls.iter().collect();
    let mut not_before = i64::MIN;
    while let Some(sent) = after.iter().map(|call| call.sent).min() {
        let latest = |call: &&Call| windows.last().is_none_or(|(_, latest)| call.sent > latest + window + margin);
        // Those that surely came after the last one ended; if there is none, another may not have opened at all.
        let Some(opened) = after.iter().copied().filter(latest).map(|call| call.answered).min() else { break };
        let earliest = sent.max(not_before);
        windows.push((earliest, opened));
        not_before = earliest + window - margin;
        after.retain(|call| call.answered >= not_before);
    }
    // Between the earliest and the latest end of a window a call may belong to it or to the next.
    let may_be = |call: &Call, (earliest, latest): (i64, i64)| {
        call.answered >= earliest && call.sent <= latest + window + margin
    };
    let is_sure = |call: &Call, (earliest, latest): (i64, i64)| {
        call.answered < earliest + window - margin
            && call.sent >= earliest
            && windows.iter().filter(|other| may_be(call, **other)).count() == 1
            && may_be(call, (earliest, latest))
    };
    let surely = |its: &(i64, i64)| count(calls.iter().filter(|call| !call.refused && is_sure(call, *its)));
    let before = |refused: &Call| {
        let in_one =
            |its: &(i64, i64)| count(calls.iter().filter(|call| may_be(call, *its) && call.sent <= refused.answered));
        windows.iter().filter(|its| may_be(refused, **its)).map(in_one).max().unwrap_or(u32::MAX)
    };
    Fit { least: windows.iter().map(surely).max().unwrap_or(0), refusals: refused(calls).map(before).collect() }
}

fn refused(calls: &[Call]) -> impl Iterator<Item = &Call> {
    calls.iter().filter(|call| call.refused)
}

fn count<'a>(calls: impl Iterator<Item = &'a Call>) -> u32 {
    u32::try_from(calls.count()).unwrap_or(u32::MAX)
}
