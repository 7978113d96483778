//! How late a permit wakes its task: from the moment at which its slot opens on the caller's clock to the moment at which
//! `acquire` has returned.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;
use call_budget::store::{Ask, PostgresStore, Progress, Reply, Store, StoreError};
use call_budget::{AcquireError, CallBudget};
use serde::Serialize;
use tokio::task::JoinSet;

use super::SETTLED;
use crate::Outcome;
use crate::ground::{CLASS, Ground};
use crate::measure::Took;
use crate::options::Options;
use crate::report::Report;

/// Slots a second, and tasks that want them: enough that somebody always waits.
const RATES: [(u32, usize); 2] = [(16, 2), (1000, 200)];
/// On an idle machine of two cores.
const MOST_P99_MS: f64 = 2.0;
/// As many times the time of a figure: 16 a second are few.
const LONGER: u32 = 3;

#[derive(Serialize)]
struct Lateness {
    slots_per_s: u32,
    permits: usize,
    late_p50_ms: f64,
    late_p99_ms: f64,
    late_max_ms: f64,
    /// The most that the p99 may be on an idle machine.
    most_p99_ms: f64,
    met: &'static str,
}

/// The real store, and what it promised: the slot that opens then, by the moment at which its window closes.
struct Noting {
    store: PostgresStore,
    opens: Arc<Mutex<HashMap<Instant, Instant>>>,
}

pub async fn run(ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    let mut rows = Vec::new();
    for (rate, tasks) in RATES {
        rows.push(lateness(ground, options.time() * LONGER, rate, tasks).await?);
    }
    let columns = ["slots_per_s", "permits", "late_p50_ms", "late_p99_ms", "late_max_ms", "most_p99_ms", "met"];
    report.table("client_wake", "From the moment at which a slot opens until its task has the permit:", &columns, &rows)
}

async fn lateness(ground: &Ground, time: Duration, rate: u32, tasks: usize) -> Outcome<Lateness> {
    let budget = format!("wake-{rate}");
    ground.set_budget(&budget, rate).await?;
    let settings = ground.settings(&ground.url(), 1);
    let opens = Arc::<Mutex<HashMap<Instant, Instant>>>::default();
    let store = Noting { store: PostgresStore::new(&settings, SystemClock)?, opens: Arc::clone(&opens) };
    let caller = CallBudget::with_store(&settings, SystemClock, store)?;
    let begin = SystemClock.now() + SETTLED;
    let end = begin + time;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (caller, opens, budget) = (caller.clone(), Arc::clone(&opens), budget.clone());
        running.spawn(async move {
            let (mut late, mut early) = (Took::default(), 0);
            loop {
                let permit = caller.acquire(&budget, CLASS).await?;
                let woken = SystemClock.now();
                let closes = permit.closes_at().expect("the budget stands behind it");
                drop(permit);
                let opens = opens.lock().unwrap_or_else(PoisonError::into_inner).remove(&closes);
                match opens.expect("every permit is one of a slot") {
                    opens if opens > woken => early += 1,
                    opens if opens > begin => late.add(woken.saturating_since(opens)),
                    _ => {}
                }
                if woken > end {
                    return Ok::<_, AcquireError>((late, early));
                }
            }
        });
    }
    let (mut late, mut early) = (Took::default(), 0);
    while let Some(ended) = running.join_next().await {
        let (its_late, its_early) = ended??;
        late.append(its_late);
        early += its_early;
    }
    // A late permit is a figure; one before its slot is a fault, and of no permit nothing is known.
    if early > 0 || late.count() == 0 {
        return Err(
            format!("{budget}: {early} permits before their slots, {} after: not measured", late.count()).into()
        );
    }
    let late_p99_ms = late.percentile_us(0.99) / 1000.0;
    Ok(Lateness {
        slots_per_s: rate,
        permits: late.count(),
        late_p50_ms: late.percentile_us(0.5) / 1000.0,
        late_p99_ms,
        late_max_ms: late.percentile_us(1.0) / 1000.0,
        most_p99_ms: MOST_P99_MS,
        met: if late_p99_ms <= MOST_P99_MS { "yes" } else { "NO" },
    })
}

impl Store for Noting {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        let reply = self.store.acquire(ask, progress).await?;
        let Reply { asked, answered, answer } = &reply;
        let slots = answer.slots.iter().map(|wait| (*asked + *wait + answer.send_window, *answered + *wait));
        self.opens.lock().unwrap_or_else(PoisonError::into_inner).extend(slots);
        Ok(reply)
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        self.store.probe(progress).await
    }

    async fn fence(&self, budget: &str, progress: &Arc<Progress>) -> Result<bool, StoreError> {
        self.store.fence(budget, progress).await
    }

    async fn report_pushback(
        &self,
        budget: &str,
        duration: Duration,
        reason: &str,
        progress: &Arc<Progress>,
    ) -> Result<Duration, StoreError> {
        self.store.report_pushback(budget, duration, reason, progress).await
    }
}
