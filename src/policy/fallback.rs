//! When the next source of the same data is asked, and of when its data is.

use std::fmt;
use std::time::Duration;

use super::Wall;
use super::verdict::{Action, Finding, Verdict};

/// Why a source was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It was not asked: its breaker is open, or its budget gave no slot.
    Refused,
    /// Its key, its surface or its budget is to wait.
    Held,
    /// It failed, or brought no whole answer.
    Bad,
    /// It answered that it has nothing.
    NoData,
}

impl Why {
    /// Why this answer is no reason to stop asking; `None` where it is the answer: also a no that concerns the request
    /// alone, which another source could only repeat, and a fault of our own, which it could only hide.
    pub fn of(finding: &Finding) -> Option<Self> {
        if finding.no_data {
            return Some(Why::NoData);
        }
        match finding.verdict {
            Verdict::Good => None,
            Verdict::Bad => Some(Why::Bad),
            Verdict::None if finding.throttled || finding.action != Action::Nothing => Some(Why::Held),
            Verdict::None => None,
        }
    }

    /// As logs write it, such as `no_data`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::Refused => "refused",
            Why::Held => "held",
            Why::Bad => "bad",
            Why::NoData => "no_data",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far the data of a source is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delay {
    /// It is live.
    None,
    /// It is this late.
    Late(Duration),
    /// It is made up: of no moment at all.
    Simulated,
}

impl Delay {
    /// Of when data is that was had at this moment.
    pub fn as_of(self, had: Wall) -> Option<Wall> {
        match self {
            Delay::None => Some(had),
            Delay::Late(by) => Some(had - by),
            Delay::Simulated => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: Verdict, action: Action) -> Finding {
        Finding {
            verdict,
            action,
            code: None,
            throttled: false,
            outcome_unknown: false,
            never_again: false,
            no_data: false,
            meaning: "".into(),
        }
    }

    #[test]
    fn falls_through_on_bad_on_holds_and_on_no_data_and_on_nothing_else() {
        const S: Duration = Duration::from_secs(1);
        let of = |verdict, action| Why::of(&finding(verdict, action));
        assert_eq!(of(Verdict::Bad, Action::Nothing), Some(Why::Bad));
        assert_eq!(of(Verdict::Bad, Action::HoldSurface(S)), Some(Why::Bad));
        for action in [
            Action::HoldCredentialUntilChanged,
            Action::HoldCredential(S),
            Action::HoldSurface(S),
            Action::HoldTokenSurface(S),
            Action::PushBack(S),
            Action::RefreshToken,
        ] {
            assert_eq!(of(Verdict::None, action), Some(Why::Held), "{action:?}");
        }
        let throttled = Finding { throttled: true, ..finding(Verdict::None, Action::Nothing) };
        assert_eq!(Why::of(&throttled), Some(Why::Held));
        for verdict in [Verdict::None, Verdict::Good, Verdict::Bad] {
            let nothing_there = Finding { no_data: true, ..finding(verdict, Action::Nothing) };
            assert_eq!(Why::of(&nothing_there), Some(Why::NoData));
        }
        assert_eq!(of(Verdict::Good, Action::Nothing), None, "a business answer");
        assert_eq!(of(Verdict::None, Action::Nothing), None, "our own fault");
    }

    #[test]
    fn late_data_is_of_an_earlier_moment_and_simulated_data_of_none() {
        let had = Wall::from_unix_us(60_000_000);
        assert_eq!(Delay::None.as_of(had), Some(had));
        assert_eq!(Delay::Late(Duration::from_secs(15)).as_of(had), Some(Wall::from_unix_us(45_000_000)));
        assert_eq!(Delay::Simulated.as_of(had), None);
    }
}
