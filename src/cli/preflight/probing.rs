//! The library's own way to the store, asked again and again: what it takes, and what the store's clock shows.
//!
//! Two kinds of question. A probe takes nothing, not even a lock. An ask is a real acquire that no budget can grant, since it
//! costs more than any limit: it goes through the row's lock and its own commit, and is refused before it changes anything.

use std::sync::Arc;
use std::time::Duration;

use super::judge::Times;
use super::judge::load::Asks;
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;
use crate::policy::store_clock::{Bracket, StoreClock};
use crate::store::{Ask, Failing, PostgresStore, Progress, Reply, Store, StoreError};

/// Between two probes: often enough for a p99, seldom enough to be no load.
const PAUSE: Duration = Duration::from_millis(20);
/// After a failure.
const LONG_PAUSE: Duration = Duration::from_millis(250);
/// More than the largest limit that a budget can have.
const COST: u32 = 1_000_000_000;

/// What the questions brought.
#[derive(Default)]
pub struct Probed {
    pub probes: Times,
    pub asks: Asks,
    /// The first probe that failed.
    pub failure: Option<String>,
    /// As an ask told it.
    pub timeline: Option<i64>,
    /// How far the store's wall clock is ahead of ours, in microseconds, and how exactly that is known.
    pub offset: Option<(i64, Duration)>,
    /// From the first answer to the last.
    pub looked: Duration,
    store_clock: StoreClock,
    /// This machine's wall clock, looked at as if it were a store's.
    own_clock: StoreClock,
    steps: (u64, u64),
}

impl Probed {
    /// Probes for `time`, and asks for the budget in between, no more often than every `interval` (never, where there is no
    /// budget). Each question ends within `longest`.
    pub async fn probe(
        store: &PostgresStore,
        budget: &str,
        interval: Option<Duration>,
        longest: Duration,
        time: Duration,
    ) -> Probed {
        let clock = SystemClock;
        let mut probed = Probed::default();
        let (mut probes, mut asks) = (Vec::new(), Vec::new());
        let began = clock.now();
        let end = began + time;
        let mut ask_at = interval.map(|_| began);
        while clock.now() < end {
            let progress = Arc::default();
            let outcome = bounded(&progress, longest, store.probe(&progress)).await;
            let mut pause = PAUSE;
            match outcome {
                Ok(reply) => probes.push(probed.note(&reply, false)),
                Err(error) => {
                    let stop = error.kind == Failing::Misconfigured;
                    probed.failure.get_or_insert_with(|| error.to_string());
                    if stop {
                        break;
                    }
                    pause = LONG_PAUSE;
                }
            }
            if ask_at.is_some_and(|at| at <= clock.now()) {
                ask_at = interval.map(|interval| clock.now() + interval);
                let progress = Arc::default();
                let ask = impossible(budget);
                match bounded(&progress, longest, store.acquire(&ask, &progress)).await {
                    Ok(reply) => asks.push(probed.note(&reply, true)),
                    Err(error) => {
                        probed.asks.failures += 1;
                        probed.asks.failure.get_or_insert_with(|| error.to_string());
                        pause = LONG_PAUSE;
                    }
                }
            }
            clock.sleep_until(clock.now() + pause).await;
        }
        probed.looked = clock.now().saturating_since(began);
        probed.probes = Times::of(probes);
        probed.asks.times = Times::of(asks);
        probed
    }

    /// How often the store's clock and this machine's wall clock were set.
    pub fn steps(&self) -> (u64, u64) {
        self.steps
    }

    /// Notes an answer; how long it took.
    fn note(&mut self, reply: &Reply, asked: bool) -> Duration {
        let (now, wall) = (SystemClock.now(), SystemClock.wall());
        let took = reply.answered.saturating_since(reply.asked);
        if asked {
            self.timeline = Some(reply.answer.timeline);
        }
        // One server answers all the while, as far as this is concerned: a promotion is as remarkable as a step.
        let bracket = Bracket { asked: reply.asked, answered: reply.answered, store_us: reply.answer.store_clock_us };
        self.steps.0 += u64::from(self.store_clock.answered(bracket, 0).is_some());
        let own = Bracket { asked: now, answered: now, store_us: wall.unix_us() };
        self.steps.1 += u64::from(self.own_clock.answered(own, 0).is_some());

        let wall_at = |moment: Instant| wall - now.saturating_since(moment);
        let least = bracket.store_us - wall_at(reply.answered).unix_us();
        let most = bracket.store_us - wall_at(reply.asked).unix_us();
        let uncertain = took / 2;
        if self.offset.is_none_or(|(_, known)| uncertain < known) {
            self.offset = Some((i64::midpoint(least, most), uncertain));
        }
        took
    }
}

/// A call that is refused whatever the budget's settings are.
fn impossible(budget: &str) -> Ask {
    Ask {
        budget: budget.into(),
        class: "".into(),
        lane: fastrand::i64(0..),
        costs: vec![COST],
        patience: Duration::ZERO,
        nonce: fastrand::i64(0..),
    }
}

async fn bounded(
    progress: &Arc<Progress>,
    longest: Duration,
    call: impl Future<Output = Result<Reply, StoreError>> + Send,
) -> Result<Reply, StoreError> {
    let began = SystemClock.now();
    let outcome = SystemClock.until(began + longest, call).await;
    let outcome = outcome.unwrap_or_else(|| Err(StoreError::out_of_time(progress)));
    outcome.map_err(|error| error.after(SystemClock.now().saturating_since(began)))
}
