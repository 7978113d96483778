//! The transactions of others, looked at again and again: what one look shows may be gone the next moment, what stays is in
//! the way.

use std::collections::BTreeMap;
use std::time::Duration;

use super::judge::load::{Seen, Watched};
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;
use crate::store::direct::Direct;
use crate::store::inspect::{self, Running};
use crate::store::operation::{Operation, OperationError};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// All looks so far.
#[derive(Default)]
pub struct Watch {
    looks: usize,
    span: Option<Span>,
    /// By session and transaction.
    transactions: BTreeMap<(i32, String), Tracked>,
}

/// The first and the last moment at which something was so.
#[derive(Clone, Copy)]
struct Span(Instant, Instant);

struct Tracked {
    seen: Seen,
    span: Span,
    held: Option<Span>,
}

impl Watch {
    /// Looks for so long, past sessions of this `application_name`.
    pub async fn look(direct: &mut Direct, application_name: &str, time: Duration) -> Result<Watched, String> {
        let mut watch = Watch::default();
        let end = SystemClock.now() + time;
        loop {
            let running = running(direct, application_name).await.map_err(|error| error.to_string())?;
            watch.note(SystemClock.now(), running);
            let next = SystemClock.now() + PAUSE;
            if next > end {
                return Ok(watch.watched());
            }
            SystemClock.sleep_until(next).await;
        }
    }

    fn note(&mut self, now: Instant, running: Vec<Running>) {
        self.looks += 1;
        Span::reach(&mut self.span, now);
        for one in running {
            let tracked = self.transactions.entry((one.pid, one.transaction)).or_insert_with(|| Tracked {
                seen: Seen::default(),
                span: Span(now, now),
                held: None,
            });
            tracked.span.1 = now;
            if one.holds && one.waits_us.is_none() {
                Span::reach(&mut tracked.held, now);
            }
            let seen = &mut tracked.seen;
            seen.application_name = one.application_name;
            seen.age = one.age_us.map(micros);
            seen.waited = seen.waited.max(one.waits_us.map(micros));
            seen.snapshot = seen.snapshot.max(one.snapshot);
            seen.idle = one.state.map(|state| state.starts_with("idle in transaction"));
        }
    }

    fn watched(self) -> Watched {
        let transactions = self.transactions.into_values().map(|Tracked { seen, span, held }| Seen {
            seen_for: span.lasted(),
            held_for: held.map_or(Duration::ZERO, Span::lasted),
            ..seen
        });
        Watched {
            looked: self.span.map_or(Duration::ZERO, Span::lasted),
            looks: self.looks,
            transactions: transactions.collect(),
        }
    }
}

impl Span {
    fn reach(span: &mut Option<Span>, now: Instant) {
        span.get_or_insert(Span(now, now)).1 = now;
    }

    fn lasted(self) -> Duration {
        self.1.saturating_since(self.0)
    }
}

async fn running(direct: &mut Direct, application_name: &str) -> Result<Vec<Running>, OperationError> {
    let operation = Operation::begin(direct.client()).await?;
    inspect::running(&operation, application_name).await
}

fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_followed_by_its_own_number_and_a_session_that_begins_another_starts_anew() {
        let one = |transaction: &str| Running {
            pid: 7,
            transaction: transaction.into(),
            application_name: "job".into(),
            state: None,
            age_us: None,
            snapshot: Some(3),
            holds: true,
            waits_us: None,
        };
        let at = |ms| Instant::from_boot(Duration::from_millis(ms));
        let mut watch = Watch::default();
        watch.note(at(0), vec![one("3/1")]);
        watch.note(at(400), vec![one("3/1")]);
        watch.note(at(500), vec![Running { waits_us: Some(9_000), ..one("3/2") }]);
        watch.note(at(600), vec![one("3/2")]);
        let watched = watch.watched();
        assert_eq!((watched.looks, watched.looked), (4, Duration::from_millis(600)));
        let [first, second] = &watched.transactions[..] else { panic!("{watched:?}") };
        assert_eq!((first.seen_for, first.held_for), (Duration::from_millis(400), Duration::from_millis(400)));
        assert_eq!((second.seen_for, second.held_for), (Duration::from_millis(100), Duration::ZERO));
        assert_eq!((second.waited, second.snapshot), (Some(Duration::from_millis(9)), Some(3)));
    }
}
