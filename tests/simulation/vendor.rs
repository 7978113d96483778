//! The vendor: counts what arrives, in true time, in windows of three kinds. It answers everybody; what would be over the
//! limit is what the checks are about.

use std::collections::VecDeque;

use crate::time::True;

/// One call at the vendor's door.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub budget: usize,
    pub units: u32,
    pub excuse: Excuse,
}

/// Why a call may come at a moment at which none should: the residuals that are stated, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excuse {
    None,
    /// Its process was stopped between the check and the wire.
    Stopped,
    /// Granted after a step forward of the store's clock to a caller that could not see the step.
    UnseenStep,
}

/// What one vendor's budget has received.
pub struct Vendor {
    window: True,
    /// Units in any window that it allows at this moment.
    pub limit: u32,
    sliding: VecDeque<(True, u32, Excuse)>,
    /// By windows that begin on a beat of the vendor's own.
    fixed: Counted,
    phase: True,
    /// By windows that begin with a call.
    first_call: Counted,
    pub worst: Units,
    pub arrivals: u64,
}

/// A count with the stated residuals, and without.
#[derive(Clone, Copy, Debug, Default)]
pub struct Units {
    pub all: u32,
    pub without: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    began: True,
    units: Units,
}

/// The largest of the windows that an arrival closes.
pub struct Seen {
    pub units: Units,
    pub kind: &'static str,
}

impl Units {
    fn add(&mut self, units: u32, excuse: Excuse) {
        self.all += units;
        self.without += if excuse == Excuse::None { units } else { 0 };
    }
}

impl Vendor {
    pub fn new(window: True, limit: u32, phase: True) -> Self {
        let (fixed, first_call) = (Counted::default(), Counted::default());
        Self { window, limit, sliding: VecDeque::new(), fixed, phase, first_call, worst: Units::default(), arrivals: 0 }
    }

    /// Counts an arrival. The window of each kind that it lies in, with what is in it so far.
    pub fn count(&mut self, now: True, arrival: &Arrival) -> [Seen; 3] {
        let Arrival { units, excuse, .. } = *arrival;
        self.arrivals += 1;
        // The window is closed: a call exactly one window ago still counts.
        while self.sliding.front().is_some_and(|(at, ..)| *at + self.window < now) {
            self.sliding.pop_front();
        }
        self.sliding.push_back((now, units, excuse));
        let mut sliding = Units::default();
        for (_, units, excuse) in &self.sliding {
            sliding.add(*units, *excuse);
        }
        let beat = (now + self.phase) / self.window;
        if beat != self.fixed.began {
            self.fixed = Counted { began: beat, units: Units::default() };
        }
        self.fixed.units.add(units, excuse);
        if self.first_call.units.all == 0 || now > self.first_call.began + self.window {
            self.first_call = Counted { began: now, units: Units::default() };
        }
        self.first_call.units.add(units, excuse);
        self.worst.all = self.worst.all.max(sliding.all);
        self.worst.without = self.worst.without.max(sliding.without);
        [
            Seen { units: sliding, kind: "sliding" },
            Seen { units: self.fixed.units, kind: "fixed" },
            Seen { units: self.first_call.units, kind: "first-call" },
        ]
    }
}
