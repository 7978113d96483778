//! What must hold. Each check counts what it looked at: a zero is worth nothing where nothing was counted.

pub mod grants;
pub mod health;
pub mod order;
pub mod spacing;

use std::fmt;
use std::time::Duration;

/// The checks, by the names that the report prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Windows,
    Spacing,
    InDoubt,
    Books,
    Refusals,
    MaxWait,
    Pause,
    Pushback,
    Patience,
    Order,
    Floors,
    Priority,
    TopClass,
    Fair,
    Use,
    Recovery,
    StoreCalls,
    SameSeed,
}

impl Name {
    pub const ALL: [Name; 18] = [
        Name::Windows,
        Name::Spacing,
        Name::InDoubt,
        Name::Books,
        Name::Refusals,
        Name::MaxWait,
        Name::Pause,
        Name::Pushback,
        Name::Patience,
        Name::Order,
        Name::Floors,
        Name::Priority,
        Name::TopClass,
        Name::Fair,
        Name::Use,
        Name::Recovery,
        Name::StoreCalls,
        Name::SameSeed,
    ];

    pub fn of_str(name: &str) -> Option<Self> {
        Name::ALL.into_iter().find(|one| one.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Name::Windows => "windows",
            Name::Spacing => "spacing",
            Name::InDoubt => "in_doubt",
            Name::Books => "books",
            Name::Refusals => "refusals",
            Name::MaxWait => "max_wait",
            Name::Pause => "pause",
            Name::Pushback => "pushback",
            Name::Patience => "patience",
            Name::Order => "order",
            Name::Floors => "floors",
            Name::Priority => "priority",
            Name::TopClass => "top_class",
            Name::Fair => "fair",
            Name::Use => "use",
            Name::Recovery => "recovery",
            Name::StoreCalls => "store_calls",
            Name::SameSeed => "same_seed",
        }
    }

    /// What the check counts.
    pub fn counted(self) -> &'static str {
        match self {
            Name::Windows => "windows closed at a vendor's, of three kinds",
            Name::Spacing => "pairs of slots",
            Name::InDoubt => "calls sent",
            Name::Books => "accounts of processes and stores",
            Name::Refusals => "refusals told to callers",
            Name::MaxWait => "acquires ended",
            Name::Pause => "decisions while paused",
            Name::Pushback => "slots granted around a pushback",
            Name::Patience => "asks that could not be served in time",
            Name::Order => "slots of lanes that had not waited",
            Name::Floors => "classes with a floor that always waited",
            Name::Priority => "pairs of classes that always waited",
            Name::TopClass => "waits of a class that goes first and stays below its floor",
            Name::Fair => "classes with several lanes that always waited",
            Name::Use => "healthy spans with somebody waiting",
            Name::Recovery => "recoveries",
            Name::StoreCalls => "fleets without faults",
            Name::SameSeed => "seeds run twice",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one check has seen.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub counted: u64,
    /// Covered by a stated residual.
    pub excused: u64,
    pub failed: u64,
    /// The first failure, in words.
    pub first: Option<String>,
    /// How long after the beginning of all seeds it was found.
    pub after: Option<Duration>,
    /// The extreme of what was measured, where there is something to measure.
    pub worst: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub struct Tallies([Tally; Name::ALL.len()]);

impl Tallies {
    pub fn of(&self, name: Name) -> &Tally {
        &self.0[name as usize]
    }

    pub fn count(&mut self, name: Name) {
        self.0[name as usize].counted += 1;
    }

    pub fn excuse(&mut self, name: Name) {
        self.0[name as usize].excused += 1;
    }

    pub fn fail(&mut self, name: Name, why: impl FnOnce() -> String) {
        let tally = &mut self.0[name as usize];
        tally.failed += 1;
        tally.first.get_or_insert_with(why);
    }

    /// Counts, and fails unless it holds.
    pub fn check(&mut self, name: Name, holds: bool, why: impl FnOnce() -> String) {
        self.count(name);
        if !holds {
            self.fail(name, why);
        }
    }

    /// Notes a figure of which the smallest is the worst.
    pub fn least(&mut self, name: Name, figure: f64) {
        let worst = &mut self.0[name as usize].worst;
        *worst = Some(worst.map_or(figure, |before| before.min(figure)));
    }

    /// Notes a figure of which the largest is the worst.
    pub fn most(&mut self, name: Name, figure: f64) {
        let worst = &mut self.0[name as usize].worst;
        *worst = Some(worst.map_or(figure, |before| before.max(figure)));
    }

    pub fn has_failed(&self, name: Name) -> bool {
        self.of(name).failed > 0
    }

    pub fn any_failed(&self) -> bool {
        self.0.iter().any(|tally| tally.failed > 0)
    }

    /// The first check that failed, by the order of their names, and how.
    pub fn first_failure(&self) -> Option<(Name, &str)> {
        Name::ALL.into_iter().find_map(|name| Some((name, self.of(name).first.as_deref()?)))
    }

    /// Adds what one seed has seen, `after` so long since the first began.
    pub fn add(&mut self, seed: u64, other: &Self, after: Duration) {
        for name in Name::ALL {
            let (ours, theirs) = (&mut self.0[name as usize], other.of(name));
            ours.counted += theirs.counted;
            ours.excused += theirs.excused;
            ours.failed += theirs.failed;
            if ours.first.is_none() {
                ours.first = theirs.first.as_ref().map(|first| format!("seed {seed}: {first}"));
                ours.after = ours.first.as_ref().map(|_| after);
            }
            ours.worst = match (ours.worst, theirs.worst) {
                (Some(ours), Some(theirs)) if name == Name::Use => Some(ours.min(theirs)),
                (Some(ours), Some(theirs)) => Some(ours.max(theirs)),
                (ours, theirs) => ours.or(theirs),
            };
        }
    }
}
