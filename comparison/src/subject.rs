//! What a breaker has to offer to be compared, and how it is observed: by what callers get, never by what it says of itself.

use std::time::Duration;

/// How long each breaker stays open here.
pub const OPEN: Duration = Duration::from_millis(120);
/// When it is surely over.
pub const LATER: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Five bad outcomes in a row.
    Streak,
    /// Half of the last 20 outcomes, of at least 10.
    Rate,
}

/// How an attempt ended. Dropping its ticket is the end that says nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Report {
    Good,
    Bad,
    /// The vendor answered, and it is the fault of one caller's key: in whatever way the breaker offers for errors that are
    /// not to count.
    Excluded,
    /// The caller's own bulkhead refused, nothing was sent: likewise.
    Local,
}

/// A kind of breaker, and how to set it up.
pub trait Kind: Sync {
    /// As the page heads its column.
    fn name(&self) -> &'static str;
    /// The package whose version the page gives.
    fn package(&self) -> Option<&'static str>;
    /// How scenarios are expressed with it, for the page.
    fn expressed(&self) -> &'static str;
    /// What the rate policy looks back over: a count of outcomes, or time.
    fn counts(&self) -> bool {
        true
    }
    /// A closed one. `listener` is called with each event that it can tell.
    fn make(&self, policy: Policy, listener: fn()) -> Box<dyn Subject>;
}

/// One breaker under observation.
pub trait Subject: Sync {
    /// Leave for one attempt of this logical call, or none.
    fn admit(&self, call: u64) -> Option<Box<dyn Ticket>>;
    /// Time goes by.
    fn pass(&self, by: Duration) {
        crate::wall::sleep(by);
    }
    /// The wall clock is set, by seconds; the monotonic one is not.
    fn step_wall(&self, by: i64) {
        crate::wall::step(by);
    }
    /// Its state as it shows it to who only looks, if it does.
    fn read(&self) -> Option<String>;
    /// How many outcomes decide a half-open round at its smallest setting.
    fn evidence(&self) -> u64 {
        1
    }
    /// How far apart outcomes have to be for its rate policy to see them.
    fn pace(&self) -> Duration {
        Duration::ZERO
    }
}

/// Leave for one attempt.
pub trait Ticket: Send {
    fn settle(self: Box<Self>, report: Report);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Closed,
    HalfOpen,
    Open,
}

impl dyn Subject + '_ {
    /// One attempt from beginning to end; whether it was let through.
    pub fn attempt(&self, call: u64, report: Report) -> bool {
        self.admit(call).map(|ticket| ticket.settle(report)).is_some()
    }

    /// Bad outcomes of different calls until somebody is refused: how many, or none if that never happens.
    pub fn trip(&self) -> Option<u64> {
        (0..64).find(|nth| {
            if *nth > 0 {
                self.pass(self.pace());
            }
            !self.attempt(1000 + nth, Report::Bad)
        })
    }

    /// As many tickets as decide a half-open round.
    pub fn tickets(&self) -> Vec<Box<dyn Ticket>> {
        (0..self.evidence()).filter_map(|nth| self.admit(2000 + nth)).collect()
    }

    /// As many attempts as decide a half-open round, each after the other.
    pub fn round(&self, report: Report) {
        for nth in 0..self.evidence() {
            self.attempt(3000 + nth, report);
        }
    }

    /// Its state, found out by using it: a half-open breaker reopens on so little bad evidence that a closed one bears it.
    pub fn seen(&self) -> Seen {
        let tickets = self.tickets();
        if tickets.is_empty() {
            return Seen::Open;
        }
        let all = tickets.len() as u64 == self.evidence();
        for ticket in tickets {
            ticket.settle(Report::Bad);
        }
        if all && self.admit(4000).is_some() { Seen::Closed } else { Seen::HalfOpen }
    }
}
