//! Who is in the way: locks, and transactions that stay.

use std::time::Duration;

use super::{Line, Times, in_ms, in_words, named, percent};
use crate::store::inspect::Kept;

/// What the transactions of others did while they were looked at.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// From the first look to the last.
    pub looked: Duration,
    pub looks: usize,
    pub transactions: Vec<Seen>,
}

/// One transaction of another session.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub application_name: String,
    /// From the first look that saw it to the last.
    pub seen_for: Duration,
    /// Since it began, where this role may see it.
    pub age: Option<Duration>,
    /// From the first look to the last at which it held, without waiting itself, a lock that others may wait for.
    pub held_for: Duration,
    /// The longest that it waited for a lock on the schema's tables.
    pub waited: Option<Duration>,
    /// The oldest that its snapshot was, in transactions.
    pub snapshot: Option<i64>,
    /// Whether it does nothing, where this role may see it.
    pub idle: Option<bool>,
}

/// Calls that take the budget's lock as every call does, and are refused: they ask for more than any budget allows.
#[derive(Clone, Debug, Default)]
pub struct Asks {
    pub times: Times,
    pub failures: usize,
    /// The first of them.
    pub failure: Option<String>,
}

/// A lock that is held for longer than this is held by somebody who has gone.
const HELD: Duration = Duration::from_millis(500);
const FEW: f64 = 0.01;
const MANY: f64 = 0.05;
/// A transaction of this age stays, wherever its age can be seen.
const LONG: Duration = Duration::from_secs(60);
/// What 1,000 calls add to each call while one snapshot is held.
const SLOWER: Duration = Duration::from_micros(140);
/// As much is noticed by nobody.
const SLOWED: Duration = Duration::from_millis(1);

/// `lock_waits`: how long the budget's lock is waited for. `bar` is the longest round trip whose slots are used.
pub fn lock_waits(asks: &Asks, watched: &Watched, bar: Duration) -> Line {
    let waits: Vec<Duration> = watched.transactions.iter().filter_map(|seen| seen.waited).collect();
    let longest_wait = waits.iter().max().copied().unwrap_or_default();
    let times = &asks.times;
    let dropped = times.share_over(bar);
    let line = Line::new("lock_waits", format!("a call that takes the lock within rtt_max, {}", in_words(bar)))
        .figure("calls", times.count())
        .figure("failed", asks.failures)
        .figure("p50_ms", in_ms(times.within(0.5)))
        .figure("p99_ms", in_ms(times.within(0.99)))
        .figure("max_ms", in_ms(times.longest()))
        .figure("dropped_share", dropped)
        .figure("waiting_seen", waits.len())
        .figure("longest_wait_ms", in_ms(longest_wait))
        .shown(format!(
            "calls p50 {} p99 {}, {} waits seen",
            in_words(times.within(0.5)),
            in_words(times.within(0.99)),
            waits.len()
        ));
    let way_out = "see who holds the row's lock (lock_holders), and how long a commit takes on that disk";
    let too_long = || {
        let raise = if longest_wait > bar { "" } else { "raise rtt_max if that is what a call takes here, or " };
        format!(
            "{} of the calls took too long for a grant to be used, more than the {} of rtt_max: {raise}{way_out}",
            percent(dropped),
            in_words(bar)
        )
    };
    if let Some(failure) = &asks.failure {
        line.fail(format!("{} calls that take the budget's lock failed ({failure}): {way_out}", asks.failures))
    } else if dropped > MANY {
        line.fail(too_long())
    } else if dropped > FEW {
        line.warn(too_long())
    } else if longest_wait > bar {
        line.warn(format!("somebody waited {} for a lock on the schema's tables: {way_out}", in_words(longest_wait)))
    } else {
        line.pass("the row's lock is free when it is asked for")
    }
}

/// `lock_holders`: transactions that keep a lock on the schema's tables.
pub fn lock_holders(watched: &Watched) -> Line {
    let holders: Vec<&Seen> = watched.transactions.iter().filter(|seen| seen.held_for >= HELD).collect();
    let line = Line::new("lock_holders", format!("no lock on the schema's tables kept for {}", in_words(HELD)))
        .figure("holders", holders.len())
        .shown(format!("{} in {} looks", holders.len(), watched.looks));
    match holders.iter().max_by_key(|seen| seen.held_for) {
        Some(worst) => line.figure("longest_ms", in_ms(worst.held_for)).fail(format!(
            "{} has kept a lock on the schema's tables for {} or longer, and no call is granted meanwhile: end its \
             transaction, and set idle_in_transaction_session_timeout for its role",
            named(&worst.application_name),
            in_words(worst.held_for)
        )),
        None => line.pass("every lock is given back at once"),
    }
}

/// `oldest_snapshot`: what keeps row versions from being cleaned up, and so slows every call. `bar` is the longest round
/// trip whose slots are used.
pub fn oldest_snapshot(watched: &Watched, kept: Kept, bar: Duration) -> Line {
    let with_snapshot = || watched.transactions.iter().filter(|seen| seen.snapshot.is_some());
    let oldest = with_snapshot().max_by_key(|seen| seen.snapshot);
    let others = [
        (kept.prepared, "a prepared transaction", "end it (COMMIT PREPARED, ROLLBACK PREPARED)"),
        (kept.slot, "a replication slot", "see whether its standby is still there, else drop it"),
        (kept.feedback, "a standby (hot_standby_feedback)", "end the long query there"),
    ];
    let (age, who, way_out) = others
        .into_iter()
        .filter_map(|(age, who, way_out)| Some((age?, who.to_owned(), way_out)))
        .chain(oldest.map(|seen| {
            (
                seen.snapshot.unwrap_or_default(),
                named(&seen.application_name),
                "end it, or give budgets an own database",
            )
        }))
        .max_by_key(|(age, ..)| *age)
        .unwrap_or((0, "nobody".to_owned(), ""));
    let slower = SLOWER.mul_f64(age.max(0) as f64 / 1000.0);
    let line = Line::new("oldest_snapshot", format!("calls slower by less than {}", in_words(SLOWED)))
        .figure("transactions", age)
        .figure("slower_ms", in_ms(slower))
        .figure("holder", who.as_str())
        .shown(format!("{age} transactions, {} a call", in_words(slower)));
    if slower > bar / 2 {
        return line.fail(format!(
            "{who} keeps {age} transactions from being cleaned up, which slows each call by about {}: {way_out}",
            in_words(slower)
        ));
    }
    if slower >= SLOWED {
        return line.warn(format!(
            "{who} keeps {age} transactions from being cleaned up, which slows each call by about {}: {way_out}",
            in_words(slower)
        ));
    }
    match with_snapshot().find(|seen| watched.stays(seen)) {
        Some(seen) => line.warn(format!(
            "{} held its snapshot all the while; in use that slows each call by {} per 1,000 calls: end it, or give \
             budgets an own database",
            named(&seen.application_name),
            format_args!("{:.2} ms", SLOWER.as_secs_f64() * 1e3)
        )),
        None => line.pass("nothing keeps old row versions for long"),
    }
}

/// `idle_in_transaction`: transactions that stay open and do nothing, or nothing that this role may see.
pub fn idle_in_transaction(watched: &Watched) -> Line {
    let staying: Vec<&Seen> =
        watched.transactions.iter().filter(|seen| seen.idle != Some(false) && watched.stays(seen)).collect();
    let line =
        Line::new("idle_in_transaction", format!("none open for all the {} of looking", in_words(watched.looked)))
            .figure("sessions", staying.len())
            .shown(format!("{} in {} looks", staying.len(), watched.looks));
    match staying.first() {
        Some(seen) => line.warn(format!(
            "{} leaves a transaction open{}: a lock it takes would stop all calls; end it, and set \
             idle_in_transaction_session_timeout for its role",
            named(&seen.application_name),
            if seen.idle.is_none() { " (this role may not see what it does)" } else { " and does nothing" }
        )),
        None => line.pass("no transaction is left open"),
    }
}

impl Watched {
    /// It was there from the beginning of the looking to its end, or is known to be old.
    fn stays(&self, seen: &Seen) -> bool {
        let whole = self.looks > 1 && seen.seen_for >= self.looked.mul_f64(0.8);
        whole || seen.age.is_some_and(|age| age >= LONG)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Fail, Pass, Warn};
    use super::super::tests::{MS, says};
    use super::*;

    fn watched(seen: Seen) -> Watched {
        let brief = Seen { seen_for: MS(100), snapshot: Some(0), idle: Some(true), ..Seen::default() };
        Watched { looked: MS(9_900), looks: 100, transactions: vec![brief, seen] }
    }

    fn job(seen: Seen) -> Watched {
        watched(Seen { application_name: "job".into(), ..seen })
    }

    fn asks(ms: &[u64]) -> Asks {
        Asks { times: Times::of(ms.iter().copied().map(MS).collect()), ..Asks::default() }
    }

    #[test]
    fn a_lock_that_is_waited_for_is_told_by_what_calls_take_and_by_who_waits() {
        let (quiet, bar) = (watched(Seen::default()), MS(25));
        says(&lock_waits(&asks(&[2, 3, 4]), &quiet, bar), Pass, "free");
        says(&lock_waits(&asks(&[[2; 97].as_slice(), &[90; 3]].concat()), &quiet, bar), Warn, "3.0 % of the calls");
        says(&lock_waits(&asks(&[2, 90]), &quiet, bar), Fail, "50.0 % of the calls");
        says(&lock_waits(&asks(&[2, 3]), &quiet, MS(1)), Fail, "more than the 1.0 ms of rtt_max: raise rtt_max");
        let waiting = job(Seen { waited: Some(MS(400)), ..Seen::default() });
        says(&lock_waits(&asks(&[2, 3]), &waiting, bar), Warn, "waited 400 ms");
        let failed = Asks { failures: 2, failure: Some("too long".into()), ..asks(&[2]) };
        says(&lock_waits(&failed, &quiet, bar), Fail, "2 calls that take the budget's lock failed (too long)");
    }

    #[test]
    fn a_lock_that_is_kept_is_told_with_its_holder() {
        says(&lock_holders(&job(Seen { held_for: MS(200), ..Seen::default() })), Pass, "at once");
        let kept = lock_holders(&job(Seen { held_for: MS(9_000), ..Seen::default() }));
        says(&kept, Fail, "\"job\" has kept a lock on the schema's tables for 9.0 s");
    }

    #[test]
    fn a_snapshot_is_told_by_its_age_in_transactions_and_by_its_staying() {
        let of = |seen: Seen, kept: Kept| oldest_snapshot(&job(seen), kept, MS(25));
        let young = Seen { snapshot: Some(100), seen_for: MS(200), ..Seen::default() };
        says(&of(young.clone(), Kept::default()), Pass, "nothing keeps");
        says(&of(Seen { snapshot: Some(10_000), ..young.clone() }, Kept::default()), Warn, "by about 1.4 ms");
        says(&of(Seen { snapshot: Some(200_000), ..young.clone() }, Kept::default()), Fail, "\"job\" keeps 200000");
        let stays = Seen { seen_for: MS(9_900), ..young.clone() };
        says(&of(stays, Kept::default()), Warn, "held its snapshot all the while");
        says(&of(Seen { age: Some(MS(90_000)), ..young.clone() }, Kept::default()), Warn, "0.14 ms per 1,000 calls");
        for (kept, who) in [
            (Kept { prepared: Some(300_000), ..Kept::default() }, "a prepared transaction keeps"),
            (Kept { slot: Some(300_000), ..Kept::default() }, "a replication slot keeps"),
            (Kept { feedback: Some(300_000), ..Kept::default() }, "a standby"),
        ] {
            says(&of(young.clone(), kept), Fail, who);
        }
    }

    #[test]
    fn a_transaction_that_is_left_open_is_told_and_one_that_works_is_not() {
        let stays = Seen { seen_for: MS(9_900), ..Seen::default() };
        says(&idle_in_transaction(&job(Seen { idle: Some(true), ..stays.clone() })), Warn, "and does nothing");
        says(&idle_in_transaction(&job(stays.clone())), Warn, "may not see");
        says(&idle_in_transaction(&job(Seen { idle: Some(false), ..stays })), Pass, "no transaction");
        says(&idle_in_transaction(&job(Seen { seen_for: MS(900), ..Seen::default() })), Pass, "no transaction");
    }
}
