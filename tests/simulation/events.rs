//! One queue of everything that is going to happen, by true time, and by order of entry within one moment.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::network::{Delivery, Request};
use crate::time::True;
use crate::timers::Key;
use crate::vendor::Arrival;
use crate::world::ProcessId;

/// Something that happens at one moment.
pub enum Event {
    /// A process's timer.
    Timer(ProcessId, Key),
    /// A request reaches the store.
    Arrives(Box<Request>),
    /// The store has the budget's lock for it.
    Decides(Box<Request>),
    /// An answer reaches its process.
    Answers(Box<Delivery>),
    /// A call reaches the vendor.
    Counts(Box<Arrival>),
    /// The plan's fault of this number begins.
    Fault(usize),
    /// What a fault does in a second and third step.
    Later(Later),
    /// Faults are over, and everything is well again.
    Heals,
    /// From now on use, shares and order are measured.
    Measures,
    Ends,
}

/// Steps of a fault after its first.
#[derive(Clone, Debug)]
pub enum Later {
    /// The vendor enforces this limit from now on.
    VendorLimit {
        budget: usize,
        units: u32,
    },
    /// An operator sets our limit.
    SetUnits {
        budget: usize,
        units: u32,
    },
    /// An operator sets the largest cost, where the budget was paused for long enough, and resumes.
    SetCostAndResume {
        budget: usize,
        max_cost: u32,
    },
    Resume {
        budget: usize,
    },
    /// The store is up again.
    ServerUp,
    /// A process is started with the part of the plan that this one had.
    Start {
        part: usize,
    },
}

struct Entry {
    at: True,
    number: u64,
    event: Event,
}

#[derive(Default)]
pub struct Events {
    queue: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

impl Events {
    pub fn push(&mut self, at: True, event: Event) {
        self.entered += 1;
        self.queue.push(Reverse(Entry { at, number: self.entered, event }));
    }

    pub fn pop(&mut self) -> Option<(True, Event)> {
        self.queue.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
