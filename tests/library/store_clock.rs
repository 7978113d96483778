//! A store whose clock steps: nothing that it granted is used until the budget is fenced, and one step is judged once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::stage::Stage;
use call_budget::store::{Ask, Failing, PostgresStore, Progress, Reply, Store, StoreError};
use call_budget::test_util::{ManualClock, MemoryStore};
use call_budget::{CallBudget, Code, Counters, Settings};

use tokio::task::JoinSet;

use crate::books::balanced;
use crate::script::{Script, Step, standing};
use crate::support::{self, TestDatabase};
use crate::{Duration, all_ended, at, ended, in_memory, limit, ms, pass, send, settle, within};

/// A store whose clock the test moves, as far as its clients see it.
struct Moved<S> {
    store: S,
    ahead_us: Arc<AtomicI64>,
}

impl<S: Store> Moved<S> {
    fn told(&self, reply: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
        let mut reply = reply?;
        reply.answer.store_clock_us += self.ahead_us.load(Ordering::SeqCst);
        Ok(reply)
    }
}

impl<S: Store> Store for Moved<S> {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        self.told(self.store.acquire(ask, progress).await)
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        self.told(self.store.probe(progress).await)
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

type Process = CallBudget<SystemClock, Moved<PostgresStore>>;

/// A process on a database whose clock shows `ahead_us` more than it does.
fn process(database: &TestDatabase, ahead_us: &Arc<AtomicI64>) -> Process {
    let mut settings = Settings::default();
    (settings.enabled, settings.database_url) = (true, Some(database.url.as_str().into()));
    // A busy machine is not what these tests are about.
    settings.rtt_max = ms(190);
    let store = PostgresStore::new(&settings, SystemClock).unwrap();
    CallBudget::with_store(&settings, SystemClock, Moved { store, ahead_us: Arc::clone(ahead_us) }).unwrap()
}

/// A budget whose first fence, the one after its creation, is long ago.
async fn database() -> TestDatabase {
    let database = support::database().await;
    database
        .client
        .batch_execute(
            "SELECT call_budget.call_budget_set('kis-real', 100, 1000000, 200000, 50000, 1, 13000, 60000);
             SELECT call_budget.call_budget_class_set('kis-real', 'order', 0, 0)",
        )
        .await
        .unwrap();
    send(process(&database, &Arc::default()).acquire("kis-real", "order").await);
    let sql = "UPDATE call_budget.call_budget SET fenced_until_us = fenced_until_us - 20000000";
    database.client.batch_execute(sql).await.unwrap();
    database
}

async fn fences(database: &TestDatabase) -> i64 {
    let sql = "SELECT fences FROM call_budget.call_budget_status WHERE name = 'kis-real'";
    database.client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn fenced_for_us(database: &TestDatabase) -> i64 {
    let sql = "SELECT fenced_for_us FROM call_budget.call_budget_status WHERE name = 'kis-real'";
    database.client.query_one(sql, &[]).await.unwrap().get(0)
}

fn steps(counters: Counters) -> (u64, u64, u64) {
    (counters.clock_steps, counters.fence_requests, counters.dropped_clock_step)
}

#[tokio::test]
async fn after_a_step_forward_or_back_the_grant_is_dropped_the_budget_fenced_once_and_the_caller_served() {
    for by_us in [500_000, -500_000] {
        let database = database().await;
        let ahead_us = Arc::new(AtomicI64::new(0));
        let budget = process(&database, &ahead_us);
        send(budget.acquire("kis-real", "order").await);
        let before = fences(&database).await;
        ahead_us.fetch_add(by_us, Ordering::SeqCst);
        let permit = budget.acquire("kis-real", "order").await;
        assert_eq!(fences(&database).await, before + 1);
        assert_eq!(fenced_for_us(&database).await, 0, "no permit within the quiet moment");
        send(permit);
        let counters = budget.counters();
        assert_eq!(steps(counters), (1, 1, 1), "{counters:?}");
        assert!(balanced(&counters), "{counters:?}");

        for _ in 0..5 {
            send(budget.acquire("kis-real", "order").await);
        }
        assert_eq!((steps(budget.counters()), fences(&database).await), ((1, 1, 1), before + 1), "judged once");
    }
}

#[tokio::test]
async fn a_second_process_sees_that_the_first_has_fenced_and_does_not_fence_again() {
    let database = database().await;
    let ahead_us = Arc::new(AtomicI64::new(0));
    let (first, second) = (process(&database, &ahead_us), process(&database, &ahead_us));
    for budget in [&first, &second] {
        send(budget.acquire("kis-real", "order").await);
    }
    let before = fences(&database).await;
    ahead_us.fetch_add(3_000_000, Ordering::SeqCst);
    for budget in [&first, &second] {
        send(budget.acquire("kis-real", "order").await);
    }
    assert_eq!(steps(first.counters()), (1, 1, 1));
    assert_eq!(steps(second.counters()), (1, 0, 1), "its grant is dropped all the same");
    assert_eq!(fences(&database).await, before + 1);
}

/// The cap of the schema: a fence 9 s ago, which may have been before the step.
#[tokio::test]
async fn where_the_cap_refuses_the_fence_the_process_keeps_the_quiet_moment_alone_and_the_caller_is_served() {
    let database = database().await;
    let ahead_us = Arc::new(AtomicI64::new(0));
    let budget = process(&database, &ahead_us);
    send(budget.acquire("kis-real", "order").await);
    let sql = "UPDATE call_budget.call_budget SET fenced_until_us = fenced_until_us + 15000000";
    database.client.batch_execute(sql).await.unwrap();
    let before = fences(&database).await;
    ahead_us.fetch_add(3_000_000, Ordering::SeqCst);
    let began = SystemClock.now();
    send(budget.acquire("kis-real", "order").await);
    let took = SystemClock.now().saturating_since(began);
    assert!(took >= ms(60 + 13), "a lookahead and an interval, not {took:?}");
    assert_eq!((steps(budget.counters()), fences(&database).await), ((1, 1, 1), before));
}

#[tokio::test]
async fn both_stores_fence_for_a_caller_at_most_once_in_10_s() {
    let database = database().await;
    let mut settings = Settings::default();
    settings.database_url = Some(database.url.as_str().into());
    let store = PostgresStore::new(&settings, SystemClock).unwrap();
    let before = fences(&database).await;
    let fence = async |budget: &str| store.fence(budget, &Arc::default()).await;
    assert!(fence("kis-real").await.unwrap());
    assert!(!fence("kis-real").await.unwrap());
    assert_eq!(fences(&database).await, before + 1);
    assert_eq!(fence("nobody's").await.unwrap_err().kind, Failing::Unavailable);

    let (_, store, clock) = in_memory(limit(18, 1));
    let fence = async |budget: &str| store.fence(budget, &Arc::default()).await;
    assert!(fence("kis-real").await.unwrap());
    clock.advance(ms(10_000));
    assert!(!fence("kis-real").await.unwrap(), "10 s after its end");
    clock.advance(ms(200));
    assert!(fence("kis-real").await.unwrap());
    assert_eq!(fence("nobody's").await.unwrap_err().kind, Failing::Unavailable);
}

/// A store whose clock really is another one.
struct Apart {
    store: MemoryStore<ManualClock>,
    here: ManualClock,
}

impl Apart {
    fn told(&self, reply: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
        Ok(Reply { asked: self.here.now(), answered: self.here.now(), ..reply? })
    }
}

impl Store for Apart {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        self.told(self.store.acquire(ask, progress).await)
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        self.told(self.store.probe(progress).await)
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

/// What it is all for. The lookahead holds five slots when the clock steps.
#[tokio::test]
async fn slots_keep_their_distance_in_true_time_when_the_stores_clock_steps_forward() {
    let limit = limit(100, 1);
    // Where a fence shortly before the step lets the cap refuse another, each process keeps quiet on its own.
    for (by, capped) in [30, 200, 5000, 3_600_000].into_iter().flat_map(|by| [(ms(by), false), (ms(by), true)]) {
        let (here, there) = (ManualClock::at(at(ms(0))), ManualClock::at(at(ms(0))));
        let store = MemoryStore::new(there.clone());
        store.set_budget("kis-real", limit);
        store.set_class("kis-real", "order", 0, 0.0);
        let process = || {
            let store = Apart { store: store.clone(), here: here.clone() };
            CallBudget::with_store(&Settings::default(), here.clone(), store).unwrap()
        };
        if capped {
            assert!(store.fence("kis-real", &Arc::default()).await.unwrap());
        }
        let processes = [process(), process()];
        let pass = async |time_ms: u64| {
            for _ in 0..time_ms {
                here.advance(ms(1));
                there.advance(ms(1));
                settle().await;
            }
        };
        let mut permits = JoinSet::new();
        let mut acquire = |process: &CallBudget<ManualClock, Apart>| {
            let process = process.clone();
            permits.spawn(async move { process.acquire("kis-real", "order").await.unwrap().closes_at().unwrap() });
        };
        processes.iter().for_each(&mut acquire);
        pass(200).await;
        for _ in 0..6 {
            acquire(&processes[0]);
        }
        settle().await;
        there.advance(by);
        for process in [1, 0, 1, 1, 0, 1, 0, 0] {
            acquire(&processes[process]);
            settle().await;
        }
        pass(600).await;
        let mut closes = all_ended(permits).await;
        closes.sort_unstable();
        assert_eq!(closes.len(), 16);
        for pair in closes.windows(2) {
            let apart = pair[1].saturating_since(pair[0]);
            assert!(apart >= limit.interval().unwrap(), "{apart:?} after a step of {by:?}, capped: {capped}");
        }
        let counters = processes.each_ref().map(|process| process.counters());
        assert!(counters.iter().all(|counters| counters.clock_steps == 1 && balanced(counters)), "{counters:?}");
    }
}

/// Each lane of a budget hears of the step by its own answer, or from another lane that has.
#[tokio::test]
async fn a_step_that_one_lane_found_is_known_to_the_lanes_of_other_budgets() {
    let (clock, script) = standing(|_, _| Step::GrantAll);
    let budget = script.budget(&Settings::default());
    for name in ["kis-real", "kis-paper"] {
        send(budget.acquire(name, "order").await);
    }
    script.step_by_us(400_000);
    clock.advance(ms(1000));
    send(budget.acquire("kis-real", "order").await);
    assert_eq!((steps(budget.counters()), script.fenced_at().len()), ((1, 1, 1), 1));
    script.fences_are(|| Ok(true));
    clock.advance(ms(1000));
    // The script counts fences for all budgets: this one's counter has grown. That fence may have been over before the step.
    let waiting = {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire("kis-paper", "order").await.unwrap().start().is_ok() })
    };
    settle().await;
    assert!(!waiting.is_finished());
    pass(&clock, ms(2000)).await;
    assert!(ended(waiting).await);
    assert_eq!((steps(budget.counters()), script.fenced_at().len()), ((1, 1, 2), 1));
    send(budget.acquire("kis-paper", "order").await);
    send(budget.acquire("kis-new", "order").await);
    send(budget.acquire("kis-new", "order").await);
    assert_eq!(steps(budget.counters()), (1, 2, 3), "a budget first asked after the step is fenced too");
}

/// It is not forgotten that the budget still needs its fence.
#[tokio::test]
async fn a_request_for_a_fence_that_fails_is_made_again_before_anything_is_granted() {
    let (clock, script) = standing(|_, _| Step::GrantAll);
    let mut failures = [Failing::Unavailable, Failing::Uncertain].into_iter();
    script.fences_are(move || failures.next().map_or(Ok(true), Err));
    let budget = script.budget(&Settings::default());
    send(budget.acquire("a", "b").await);
    script.step_by_us(400_000);
    let waiting = {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire("a", "b").await.unwrap().start().is_ok() })
    };
    settle().await;
    assert!(!waiting.is_finished());
    pass(&clock, ms(600)).await;
    assert!(ended(waiting).await);
    let counters = budget.counters();
    assert_eq!((steps(counters), counters.store_failures, counters.lost), ((1, 3, 1), 2, 0));
    assert_eq!((script.calls(), script.fenced_at().len()), (3, 3));
}

#[tokio::test]
async fn a_caller_without_the_right_to_a_fence_is_told_so_and_gets_nothing() {
    let (_, script) = standing(|_, _| Step::GrantAll);
    script.fences_are(|| Err(Failing::Misconfigured));
    let budget = script.budget(&Settings::default());
    send(budget.acquire("a", "b").await);
    script.step_by_us(-400_000);
    for _ in 0..3 {
        assert_eq!(budget.acquire("a", "b").await.unwrap_err().code(), Code::Misconfigured);
    }
    assert_eq!(script.calls(), 2, "nothing more was asked for, and so nothing wasted");
}

#[tokio::test]
async fn a_promotion_is_no_step() {
    let (clock, script) = standing(|_, _| Step::GrantAll);
    let budget = script.budget(&Settings::default());
    send(budget.acquire("a", "b").await);
    script.step_by_us(30_000_000);
    script.promote();
    script.fence_by_another();
    clock.advance(ms(1000));
    send(budget.acquire("a", "b").await);
    assert_eq!(steps(budget.counters()), (0, 0, 0));
}

#[tokio::test]
async fn an_hour_of_drift_by_500_ppm_raises_no_alarm() {
    for ppm in [500, -500] {
        let (clock, script) = standing(|_, _| Step::After(ms(1), Box::new(Step::GrantAll)));
        let budget = script.budget(&Settings::default());
        // Every 10 s at the most, by a call or a probe.
        for second in 0..3600 {
            if second % 7 == 0 || (600..900).contains(&second) {
                let budget = budget.clone();
                let sent = tokio::spawn(async move { send(budget.acquire("a", "b").await) });
                settle().await;
                clock.advance(ms(1));
                ended(sent).await;
            }
            clock.advance(ms(1000));
            script.step_by_us(ppm);
            settle().await;
        }
        let counters = budget.counters();
        assert_eq!(steps(counters), (0, 0, 0), "{ppm} ppm: {counters:?}");
        script.step_by_us(50_000);
        send_after(&budget, &clock, ms(1)).await;
        assert_eq!(budget.counters().clock_steps, 1, "and it would have been raised");
    }
}

/// One acquire on a store that takes `way`, on a clock that goes on until it is served.
async fn send_after<S: Store>(budget: &CallBudget<ManualClock, S>, clock: &ManualClock, way: Duration) {
    let budget = budget.clone();
    let sent = tokio::spawn(async move { send(budget.acquire("a", "b").await) });
    for _ in 0..1000 {
        settle().await;
        if sent.is_finished() {
            break;
        }
        clock.advance(way);
    }
    ended(sent).await;
}

#[tokio::test]
async fn a_process_that_rests_reads_the_stores_clock_every_10_s_for_a_minute_and_then_no_more() {
    let before = alive_tasks();
    let (clock, script) = standing(|_, _| Step::GrantAll);
    let budget = script.budget(&Settings::default());
    send(budget.acquire("a", "b").await);
    settle().await;
    assert_eq!(alive_tasks(), before + 1);
    pass_seconds(&clock, 4).await;
    send(budget.acquire("a", "b").await);
    pass_seconds(&clock, 120).await;
    assert_eq!(script.probed_at(), [14, 24, 34, 44, 54].map(|second| at(ms(second * 1000))));
    assert_eq!(budget.counters().probes, 5);
    assert_eq!(alive_tasks(), before, "nobody has acquired for 60 s");

    send(budget.acquire("a", "b").await);
    pass_seconds(&clock, 30).await;
    assert_eq!(script.probed_at().len(), 8, "the next acquire begins anew");
    drop(budget);
    settle().await;
    assert_eq!(alive_tasks(), before, "the last CallBudget is gone");
}

#[tokio::test]
async fn a_small_step_while_the_process_rests_is_found_by_its_next_acquire() {
    let (clock, script) = standing(|_, _| Step::GrantAll);
    let budget = script.budget(&Settings::default());
    send(budget.acquire("a", "b").await);
    pass_seconds(&clock, 55).await;
    // A bracket that is 55 s old would be widened by 56 ms.
    script.step_by_us(20_000);
    send(budget.acquire("a", "b").await);
    assert_eq!(steps(budget.counters()), (1, 1, 1));
}

#[tokio::test]
async fn a_probe_waits_while_a_lanes_call_is_in_flight() {
    let clock = ManualClock::at(at(ms(0)));
    let script = Script::new(clock.clone(), ms(60_000), |before, _| match before {
        0 => Step::GrantAll,
        _ => Step::After(ms(25_000), Box::new(Step::GrantAll)),
    });
    let mut settings = Settings::default();
    (settings.statement_timeout, settings.rtt_max) = (ms(60_000), ms(60_000));
    let budget = script.budget(&settings);
    send(budget.acquire("a", "b").await);
    let waiting = {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire("a", "b").await.map(drop) })
    };
    settle().await;
    pass_seconds(&clock, 24).await;
    assert_eq!((script.most_in_flight(), script.probed_at().len()), (1, 0));
    pass_seconds(&clock, 15).await;
    ended(waiting).await.unwrap();
    assert_eq!(script.most_in_flight(), 1);
    assert_eq!(script.probed_at(), [at(ms(35_000))], "10 s after the answer");
}

/// A store that grants, and answers no probe.
struct Deaf(MemoryStore<ManualClock>);

impl Store for Deaf {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        self.0.acquire(ask, progress).await
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        progress.enter(Stage::Query);
        std::future::pending().await
    }

    async fn fence(&self, budget: &str, progress: &Arc<Progress>) -> Result<bool, StoreError> {
        self.0.fence(budget, progress).await
    }

    async fn report_pushback(
        &self,
        budget: &str,
        duration: Duration,
        reason: &str,
        progress: &Arc<Progress>,
    ) -> Result<Duration, StoreError> {
        self.0.report_pushback(budget, duration, reason, progress).await
    }
}

/// Behind a pooler two hundred processes would make four hundred attempts.
#[tokio::test]
async fn no_probe_is_added_to_the_attempts_of_a_lane_whose_store_is_failing() {
    let clock = ManualClock::at(at(ms(0)));
    let script = Script::new(clock.clone(), ms(1000), |before, _| match before {
        0 => Step::GrantAll,
        _ => Step::Fail(Stage::Connect, Failing::Unavailable),
    });
    let mut settings = Settings::default();
    settings.store_outage_max = ms(40_000);
    let budget = script.budget(&settings);
    send(budget.acquire_with("a", "b", within(ms(60_000))).await);
    let waiting = {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire_with("a", "b", within(ms(60_000))).await.map(drop) })
    };
    settle().await;
    pass_seconds(&clock, 38).await;
    assert!(budget.counters().store_failures > 20, "{:?}", budget.counters());
    assert_eq!(script.probed_at(), []);
    pass_seconds(&clock, 5).await;
    assert_eq!(ended(waiting).await.unwrap_err().code(), Code::StoreUnavailable);
}

#[tokio::test]
async fn a_probe_that_fails_while_the_process_rests_is_no_outage() {
    let (_, store, clock) = in_memory(limit(18, 1));
    let budget = CallBudget::with_store(&Settings::default(), clock.clone(), Deaf(store)).unwrap();
    send(budget.acquire("kis-real", "order").await);
    pass_seconds(&clock, 40).await;
    assert_eq!((budget.counters().probes, budget.counters().store_failures), (4, 0));
    send(budget.acquire("kis-real", "order").await);
}

async fn pass_seconds(clock: &ManualClock, seconds: u64) {
    for _ in 0..seconds {
        clock.advance(ms(1000));
        settle().await;
    }
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
