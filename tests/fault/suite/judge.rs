//! What a round is worth: pure arithmetic over what was seen, without clock, socket or database.
//!
//! A zero counts only if the judge can say something else: `tests/fault_tools/judge.rs` shows each rule to be broken.

use std::time::Duration;

/// What a call may take over its deadline before it counts as late.
pub const GRACE: Duration = Duration::from_millis(100);
/// From leaving to arriving over loopback, at most; more than that is told from a stall by the receiver's heartbeat.
pub const JITTER_US: u64 = 10_000;

/// A request at the vendor, on the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at_us: u64,
    pub nonce: u64,
}

/// Leave that a caller was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    pub nonce: u64,
    pub given_us: u64,
    pub closes_us: u64,
}

/// A span of the machine's clock, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from_us: u64,
    pub to_us: u64,
}

impl Span {
    fn holds(self, at_us: u64) -> bool {
        (self.from_us..=self.to_us).contains(&at_us)
    }

    fn touches(self, other: Span) -> bool {
        self.from_us <= other.to_us && other.from_us <= self.to_us
    }
}

/// What the arrivals of a round come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    /// Arrivals without leave of their own, with leave from a span in which none may be given, or after their window.
    pub in_doubt: usize,
    /// Arrivals after their window while the receiver itself stood still: nothing can be said.
    pub inconclusive: usize,
}

/// Judges each arrival. Leave is good for one: a second arrival under the same nonce has none.
pub fn doubt(arrivals: &[Arrival], leaves: &[Leave], forbidden: &[Span], stalls: &[Span]) -> Doubt {
    let mut left: Vec<Leave> = leaves.to_vec();
    let mut doubt = Doubt::default();
    for arrival in arrivals {
        let Some(at) = left.iter().position(|leave| leave.nonce == arrival.nonce) else {
            doubt.in_doubt += 1;
            continue;
        };
        let leave = left.swap_remove(at);
        let late = Span { from_us: leave.closes_us, to_us: arrival.at_us };
        if forbidden.iter().any(|span| span.holds(leave.given_us)) {
            doubt.in_doubt += 1;
        } else if arrival.at_us > leave.closes_us + JITTER_US {
            if stalls.iter().any(|stall| stall.touches(late)) {
                doubt.inconclusive += 1;
            } else {
                doubt.in_doubt += 1;
            }
        }
    }
    doubt
}

/// What the callers of one class did with their slots, as they counted themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub class: String,
    pub permits: u64,
    pub dropped: u64,
    /// Calls whose answer never came: each may have spent a slot.
    pub lost: u64,
}

/// Whether what the store granted is what the callers know of, give or take what was lost: the error is a sentence.
pub fn balance(class: &str, granted: u64, accounts: &[Account]) -> Result<(), String> {
    let of_class = || accounts.iter().filter(|account| account.class == class);
    let known: u64 = of_class().map(|account| account.permits + account.dropped).sum();
    let lost: u64 = of_class().map(|account| account.lost).sum();
    if (known..=known + lost).contains(&granted) {
        Ok(())
    } else {
        Err(format!("class {class}: the store granted {granted}, the callers know of {known} and lost at most {lost}"))
    }
}

/// The middle and the largest of some durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    pub median: Duration,
    pub worst: Duration,
}

/// `None` of nothing. Of an even number, the median is the larger of the middle two: never kinder than the truth.
pub fn spread(durations: &[Duration]) -> Option<Spread> {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    Some(Spread { median: *sorted.get(sorted.len() / 2)?, worst: *sorted.last()? })
}

/// Everything that was measured of a case, over all its rounds.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// How long each call under the fault took.
    pub ends: Vec<Duration>,
    /// From healing to the first grant, one entry a healing.
    pub recoveries: Vec<Duration>,
    pub sends_in_doubt: usize,
    pub lost: u64,
    /// Where the books did not balance.
    pub unbalanced: Vec<String>,
    /// What was not back where it was.
    pub leaks: Vec<String>,
    /// What the case itself asserted in vain.
    pub failures: Vec<String>,
}

impl Measured {
    pub fn add(&mut self, round: Measured) {
        self.ends.extend(round.ends);
        self.recoveries.extend(round.recoveries);
        self.sends_in_doubt += round.sends_in_doubt;
        self.lost += round.lost;
        self.unbalanced.extend(round.unbalanced);
        self.leaks.extend(round.leaks);
        self.failures.extend(round.failures);
    }

    /// Everything that keeps the case from passing, a sentence each; nothing means that it passed.
    pub fn faults(&self, deadline: Duration, heals: Option<Spread>) -> Vec<String> {
        let mut faults = self.failures.clone();
        match spread(&self.ends) {
            None => faults.push("no call was made under the fault: nothing was measured".into()),
            Some(ends) if ends.worst > deadline + GRACE => {
                faults.push(format!("a call took {:.0?}, its deadline was {deadline:.0?}", ends.worst));
            }
            Some(_) => {}
        }
        if self.sends_in_doubt > 0 {
            faults.push(format!("sent in doubt: {}", self.sends_in_doubt));
        }
        faults.extend(self.unbalanced.iter().map(|what| format!("the books do not balance: {what}")));
        faults.extend(self.leaks.iter().map(|what| format!("left behind: {what}")));
        if let Some(bound) = heals {
            match spread(&self.recoveries) {
                None => faults.push("it should have healed, and no recovery was measured".into()),
                Some(took) if took.worst > bound.worst || took.median > bound.median => faults.push(format!(
                    "recovery took {:.0?} (median) and {:.0?} (worst), the bounds are {:.0?} and {:.0?}",
                    took.median, took.worst, bound.median, bound.worst
                )),
                Some(_) => {}
            }
        }
        faults
    }
}
