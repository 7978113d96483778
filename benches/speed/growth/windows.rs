//! What a vendor would have counted.

use std::time::Duration;

use call_budget::policy::Instant;

use crate::Outcome;

/// The closed windows that end at an arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The most arrivals in any of them.
    pub worst: usize,
    pub over_limit: usize,
}

/// Judges arrivals in any order, each of cost 1.
pub fn judge(mut arrivals: Vec<Instant>, window: Duration, limit: usize) -> Windows {
    arrivals.sort_unstable();
    let (mut found, mut first) = (Windows::default(), 0);
    for (last, end) in arrivals.iter().enumerate() {
        while end.saturating_since(arrivals[first]) > window {
            first += 1;
        }
        let count = last - first + 1;
        found.worst = found.worst.max(count);
        found.over_limit += usize::from(count > limit);
    }
    found
}

/// A judge that finds nothing proves nothing: it must find the closed window that holds one too many, and no other.
pub fn check_the_judge() -> Outcome<()> {
    let second = Duration::from_secs(1);
    let at = |ms: u64| Instant::from_boot(Duration::from_millis(ms));
    let found = judge(vec![at(1000), at(0), at(500), at(1501)], second, 2);
    let expected = Windows { worst: 3, over_limit: 1 };
    if found != expected {
        return Err(format!("the judge of windows found {found:?} where there is {expected:?}").into());
    }
    Ok(())
}
