//! The store's answer, decoded and checked. What breaks the contract is an error, never a grant.

use std::time::Duration;

use super::{Ask, CONTRACT, NAP};

/// What `call_budget_acquire` said: slots for the first callers, and what the rest is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// One wait a granted slot, for the first callers in order, from the store's reading of its clock.
    pub slots: Vec<Duration>,
    /// When the lane is to come back for the rest, from the moment it asked.
    pub appointment: Option<Duration>,
    /// Why nothing was granted and nothing booked.
    pub refusal: Option<Refusal>,
    /// How long after its slot a call may leave.
    pub send_window: Duration,
    /// The interval between two slots.
    pub interval: Duration,
    /// How far ahead of the store's clock a slot may lie.
    pub lookahead: Duration,
    /// The largest cost that the budget allows.
    pub max_cost: u32,
    /// The version of the budget's settings.
    pub version: i64,
    /// How many fences the budget has seen.
    pub fences: i64,
    /// The store's timeline: it grows with every promotion. 0 where the answer tells none, since there is no such budget.
    pub timeline: i64,
    /// The store's own clock, in microseconds. Its date means nothing here: it is to be compared with earlier ones of the
    /// same timeline only (see `policy::store_clock`).
    pub store_clock_us: i64,
}

impl Answer {
    /// What the store may have promised when it answered: a slot at the end of the lookahead, with the largest cost. A fence
    /// takes as long.
    pub fn promise(&self) -> Duration {
        self.lookahead.saturating_add(self.interval.saturating_mul(self.max_cost))
    }
}

/// The store's no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Even the estimate, a lower bound, is longer than the first caller's patience.
    Patience { retry_after: Duration },
    /// The budget is paused.
    Paused { retry_after: Duration },
    /// A cost is over the largest that the budget allows.
    CostOutOfRange { max_cost: u32 },
    /// There is no such budget.
    UnknownBudget,
    /// The budget has no such class.
    UnknownClass,
}

/// The columns as they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    pub contract: Option<i32>,
    pub nonce: Option<i64>,
    pub waits_us: Option<Vec<i64>>,
    pub retry_us: Option<i64>,
    pub reason: Option<String>,
    pub interval_us: Option<i64>,
    pub lookahead_us: Option<i64>,
    pub send_window_us: Option<i64>,
    pub max_cost: Option<i32>,
    pub version: Option<i64>,
    pub fences: Option<i64>,
    pub timeline: Option<i64>,
    pub store_us: Option<i64>,
}

/// Why an answer does not count.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Breach {
    /// The schema speaks another contract.
    Contract(Option<i32>),
    /// The answer is not one that the contract allows.
    Nonsense(&'static str),
}

impl Columns {
    /// The answer, if it is one to this question.
    pub fn checked(self, ask: &Ask) -> Result<Answer, Breach> {
        use Breach::Nonsense;
        if self.contract != Some(CONTRACT) {
            return Err(Breach::Contract(self.contract));
        }
        if self.nonce != Some(ask.nonce) {
            return Err(Nonsense("it belongs to another question (nonce)"));
        }
        let waits = self.waits_us.ok_or(Nonsense("waits_us is NULL"))?;
        let retry = self.retry_us.map(micros).transpose()?;
        let store_clock_us = self.store_us.ok_or(Nonsense("store_us is NULL"))?;
        let max_cost = self.max_cost.and_then(|cost| u32::try_from(cost).ok());
        let refusal = match self.reason.as_deref() {
            None => None,
            Some("patience") => Some(Refusal::Patience { retry_after: retry.ok_or(Nonsense("no retry_us"))? }),
            Some("paused") => Some(Refusal::Paused { retry_after: retry.ok_or(Nonsense("no retry_us"))? }),
            Some("cost_out_of_range") => {
                Some(Refusal::CostOutOfRange { max_cost: max_cost.ok_or(Nonsense("no max_cost"))? })
            }
            Some("unknown_budget") => Some(Refusal::UnknownBudget),
            Some("unknown_class") => Some(Refusal::UnknownClass),
            Some(_) => return Err(Nonsense("its reason is unknown")),
        };
        if refusal == Some(Refusal::UnknownBudget) {
            return Ok(Answer {
                slots: Vec::new(),
                appointment: None,
                refusal,
                send_window: Duration::ZERO,
                interval: Duration::ZERO,
                lookahead: Duration::ZERO,
                max_cost: 0,
                version: 0,
                fences: 0,
                timeline: 0,
                store_clock_us,
            });
        }
        let lookahead = micros(self.lookahead_us.ok_or(Nonsense("lookahead_us is NULL"))?)?;
        let slots = waits.into_iter().map(micros).collect::<Result<Vec<_>, _>>()?;
        if slots.iter().any(|wait| *wait > lookahead) || !slots.is_sorted() {
            return Err(Nonsense("a slot lies outside the lookahead"));
        }
        let appointment = if refusal.is_none() { retry } else { None };
        if appointment.is_some_and(|wait| wait > NAP) {
            return Err(Nonsense("an appointment lies past the nap"));
        }
        let served = slots.len().cmp(&ask.costs.len());
        let fits = match refusal {
            Some(_) => slots.is_empty(),
            None => served.is_eq() && appointment.is_none() || served.is_lt() && appointment.is_some(),
        };
        if !fits {
            return Err(Nonsense("slots and appointment do not fit the question"));
        }
        Ok(Answer {
            slots,
            appointment,
            refusal,
            send_window: micros(self.send_window_us.ok_or(Nonsense("send_window_us is NULL"))?)?,
            interval: micros(self.interval_us.ok_or(Nonsense("interval_us is NULL"))?)?,
            lookahead,
            max_cost: max_cost.ok_or(Nonsense("no max_cost"))?,
            version: self.version.ok_or(Nonsense("version is NULL"))?,
            fences: self.fences.ok_or(Nonsense("fences is NULL"))?,
            timeline: self.timeline.ok_or(Nonsense("timeline is NULL"))?,
            store_clock_us,
        })
    }
}

fn micros(us: i64) -> Result<Duration, Breach> {
    u64::try_from(us).map(Duration::from_micros).map_err(|_| Breach::Nonsense("a duration is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(callers: usize) -> Ask {
        Ask {
            budget: "b".into(),
            class: "c".into(),
            lane: 1,
            costs: vec![1; callers],
            patience: Duration::from_secs(1),
            nonce: 77,
        }
    }

    fn columns() -> Columns {
        Columns {
            contract: Some(CONTRACT),
            nonce: Some(77),
            waits_us: Some(vec![0, 1000]),
            retry_us: None,
            reason: None,
            interval_us: Some(1000),
            lookahead_us: Some(60_000),
            send_window_us: Some(50_000),
            max_cost: Some(1),
            version: Some(1),
            fences: Some(1),
            timeline: Some(1),
            store_us: Some(1),
        }
    }

    #[test]
    fn a_well_formed_answer_counts() {
        let answer = columns().checked(&ask(2)).unwrap();
        assert_eq!(answer.slots, [Duration::ZERO, Duration::from_millis(1)]);
        assert!(Columns { retry_us: Some(5_000_000), ..columns() }.checked(&ask(3)).is_ok());
    }

    #[test]
    fn whatever_breaks_the_contract_is_never_a_grant() {
        for (what, broken, callers) in [
            ("another contract", Columns { contract: Some(CONTRACT + 1), ..columns() }, 2),
            ("another nonce", Columns { nonce: Some(78), ..columns() }, 2),
            ("no nonce", Columns { nonce: None, ..columns() }, 2),
            ("no slots column", Columns { waits_us: None, ..columns() }, 2),
            ("a negative wait", Columns { waits_us: Some(vec![-1, 0]), ..columns() }, 2),
            ("a wait past the lookahead", Columns { waits_us: Some(vec![0, 60_001]), ..columns() }, 2),
            ("slots out of order", Columns { waits_us: Some(vec![1000, 0]), ..columns() }, 2),
            ("an appointment past the nap", Columns { retry_us: Some(5_000_001), ..columns() }, 3),
            ("a negative appointment", Columns { retry_us: Some(-1), ..columns() }, 3),
            ("more slots than callers", columns(), 1),
            ("callers without slot or appointment", columns(), 3),
            ("a refusal with slots", Columns { reason: Some("paused".into()), retry_us: Some(1), ..columns() }, 2),
            ("an unknown reason", Columns { reason: Some("x".into()), waits_us: Some(vec![]), ..columns() }, 2),
            ("no send window", Columns { send_window_us: None, ..columns() }, 2),
        ] {
            assert!(broken.checked(&ask(callers)).is_err(), "{what}");
        }
    }

    #[test]
    fn a_refusal_keeps_its_reason_and_says_when_to_come_back() {
        let refused = |reason: &str| {
            let columns =
                Columns { waits_us: Some(vec![]), reason: Some(reason.into()), retry_us: Some(1_000_000), ..columns() };
            columns.checked(&ask(1)).unwrap().refusal
        };
        let retry_after = Duration::from_secs(1);
        assert_eq!(refused("patience"), Some(Refusal::Patience { retry_after }));
        assert_eq!(refused("paused"), Some(Refusal::Paused { retry_after }));
        assert_eq!(refused("cost_out_of_range"), Some(Refusal::CostOutOfRange { max_cost: 1 }));
        assert_eq!(refused("unknown_class"), Some(Refusal::UnknownClass));
    }
}
