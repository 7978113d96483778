//! The arrival log: every request that came, whatever became of it.

use std::num::NonZeroU32;
use std::str::FromStr;

use hyper::HeaderMap;
use serde::{Deserialize, Serialize};

/// One request, from its first byte. Times are microseconds of the machine's clock that counts through sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    pub at_us: u64,
    /// What it was counted with: `all`, or its app key where keys are counted by themselves.
    pub account: String,
    pub tr_id: String,
    #[serde(flatten)]
    pub note: Note,
    /// Units it was counted with: its cost, or 0 where only the token rules count.
    pub units: u32,
    /// The limit and the window in force when it came.
    pub limit: u32,
    pub window_us: u64,
    /// It came after the end of its send window and the arrival jitter.
    pub late: bool,
    /// It was answered EGW00201.
    pub refused: bool,
    /// It was answered EGW00201 although it was within the limit.
    pub refused_below_limit: bool,
}

/// What a caller says about its request: the app key, and the fleet's `x-call-budget-*` headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub appkey: String,
    /// `unnamed` where the caller gave none.
    pub class: String,
    pub pid: Option<u32>,
    pub nonce: Option<u64>,
    /// 1 where the caller gave none.
    pub cost: NonZeroU32,
    /// The end of the request's send window, on the machine's clock.
    pub closes_us: Option<u64>,
}

impl Note {
    /// Reads the headers. A header that cannot be read counts as absent and is named in the sentence that comes along.
    pub fn read(headers: &HeaderMap) -> (Note, Result<(), String>) {
        let mut odd = Ok(());
        let note = Note {
            appkey: text(headers, "appkey"),
            class: Some(text(headers, "x-call-budget-class"))
                .filter(|class| !class.is_empty())
                .unwrap_or("unnamed".into()),
            pid: number(headers, "x-call-budget-pid", &mut odd),
            nonce: number(headers, "x-call-budget-nonce", &mut odd),
            cost: number(headers, "x-call-budget-cost", &mut odd).unwrap_or(NonZeroU32::MIN),
            closes_us: number(headers, "x-call-budget-closes-us", &mut odd),
        };
        (note, odd)
    }
}

/// A header's value, or nothing where it is absent or not ASCII.
pub fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn number<N: FromStr>(headers: &HeaderMap, name: &str, odd: &mut Result<(), String>) -> Option<N> {
    let value = headers.get(name)?;
    let number = value.to_str().ok().and_then(|value| value.parse().ok());
    if number.is_none() {
        *odd = Err(format!("the header {name} is {value:?}; it must be a whole number in range (a cost is 1 or more)"));
    }
    number
}

/// The log, in the order of arrival.
#[derive(Debug, Default)]
pub struct ArrivalLog(Vec<Arrival>);

impl ArrivalLog {
    /// Enters an arrival in its place: a slow head is complete only after later arrivals have been entered.
    pub fn enter(&mut self, arrival: Arrival) {
        let place = self.0.partition_point(|other| other.at_us <= arrival.at_us);
        self.0.insert(place, arrival);
    }

    pub fn as_slice(&self) -> &[Arrival] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_in_the_order_of_arrival_whatever_the_order_of_entry() {
        let (note, odd) = Note::read(&HeaderMap::new());
        assert_eq!(odd, Ok(()));
        let mut log = ArrivalLog::default();
        for at_us in [3, 1, 2, 1] {
            log.enter(Arrival {
                at_us,
                account: String::new(),
                tr_id: String::new(),
                note: note.clone(),
                units: 1,
                limit: 1,
                window_us: 1,
                late: false,
                refused: false,
                refused_below_limit: false,
            });
        }
        assert_eq!(log.as_slice().iter().map(|arrival| arrival.at_us).collect::<Vec<_>>(), [1, 1, 2, 3]);
    }

    #[test]
    fn a_header_that_cannot_be_read_is_named() {
        for (name, value) in [("x-call-budget-cost", "0"), ("x-call-budget-pid", "-3"), ("x-call-budget-nonce", "")] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let (note, odd) = Note::read(&headers);
            assert!(odd.unwrap_err().contains(name));
            assert_eq!((note.pid, note.nonce, note.cost.get()), (None, None, 1));
        }
    }
}
