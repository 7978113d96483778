//! Forgotten commits and clocks that step back: nothing that was promised is promised again.

use call_budget::store::memory::scheduler::{Answer, Budget, Call, Scheduler, Settings};
use fastrand::Rng;

use crate::store::{BUDGET, KIS, START_US, Store};

const FAR: Settings = Settings { interval_us: 61_174, lookahead_us: 1_000_000, send_window_us: 50_000, max_cost: 3 };

#[tokio::test]
async fn a_restart_that_forgets_commits_is_fenced() {
    let store = Store::with_classes(FAR, &[("order", 0, 300_000), ("eod", 1, 0)]).await;
    let mut promised = Promised::default();
    promised.take(&store, &[1; 5], START_US, 0).await;
    let survived = store.rows().await;
    promised.take(&store, &[1, 1, 1, 3, 3], START_US + 200_000, 0).await;
    store.restore(&Scheduler { remembered: false, ..survived }).await;
    let fences = store.rows().await.budget.fences;
    // As soon as the server is back, and until the schedule goes on.
    for after_us in (0..3_000_000).step_by(20_000) {
        promised.take(&store, &[1], START_US + 200_001 + after_us, 0).await;
    }
    promised.assert_spaced(FAR.interval_us);
    assert!(promised.slots.len() > 20, "the schedule goes on");
    assert_eq!(store.rows().await.budget.fences, fences + 1, "one restart, one quiet moment");
}

/// The last commits are forgotten and the clock of the machine that takes over is behind, all by chance; the slots are
/// compared in true time.
#[tokio::test]
async fn a_failover_to_a_clock_behind_keeps_the_spacing() {
    let store = Store::with_classes(FAR, &[("order", 0, 300_000), ("eod", 1, 0)]).await;
    let fresh = store.rows().await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let mut slots = 0;
    for round in 0..40 {
        store.restore(&fresh).await;
        let mut promised = Promised::default();
        let (mut now_us, mut offset_us) = (START_US, 0);
        for _ in 0..3 {
            promised.take(&store, &[1, 3, 1], now_us, offset_us).await;
            let mut survived = store.rows().await;
            for _ in 0..rng.usize(1..8) {
                if rng.u32(..4) == 0 {
                    survived = store.rows().await;
                }
                promised.take(&store, &[1; 20], now_us, offset_us).await;
                now_us += rng.i64(0..20_000);
            }
            store.restore(&Scheduler { remembered: false, ..survived }).await;
            offset_us -= rng.i64(0..400_000);
            for _ in 0..rng.usize(1..40) {
                promised.take(&store, &[1, 2], now_us, offset_us).await;
                now_us += rng.i64(0..100_000);
            }
        }
        promised.assert_spaced_in(FAR.interval_us, &format!("seed {seed}, round {round}"));
        slots += promised.slots.len();
    }
    assert!(slots >= 40 * 30, "{slots} slots are too few to mean something");
}

#[tokio::test]
async fn a_clock_that_steps_back_by_an_hour_neither_stops_the_budget_nor_brings_slots_together() {
    let store = Store::with_classes(FAR, &[("order", 0, 300_000), ("eod", 1, 0)]).await;
    let mut promised = Promised::default();
    promised.take(&store, &[1; 10], START_US, 0).await;
    let hour_us = 3_600_000_000;
    for after_us in (0..5_000_000).step_by(20_000) {
        promised.take(&store, &[1], START_US + after_us, -hour_us).await;
    }
    promised.assert_spaced(FAR.interval_us);
    assert!(promised.slots.len() >= 80, "{} slots in 5 s", promised.slots.len());
}

#[tokio::test]
async fn a_fence_by_hand_steps_back_with_the_clock() {
    let store = Store::with_classes(FAR, &[("order", 0, 0)]).await;
    store.reserve(ask(&[1]), START_US - 86_400_000_000).await;
    store.at(START_US).await;
    let quiet_us = store.number("SELECT call_budget.call_budget_fence($1)").await;
    assert_eq!(quiet_us, 1_000_000 + 3 * 61_174);
    let hour_back_us = START_US - 3_600_000_000;
    assert_eq!(store.reserve(ask(&[1]), hour_back_us).await.waits_us, [0; 0]);
    assert_eq!(
        store.reserve(ask(&[1]), hour_back_us + quiet_us).await.waits_us,
        [0],
        "the fence did not stay an hour ahead"
    );
}

#[tokio::test]
async fn a_fence_covers_the_widest_promise_since_the_last_one() {
    let store = Store::with_classes(FAR, &[("order", 0, 0)]).await;
    let mut promised = Promised::default();
    promised.take(&store, &[1], START_US, 0).await;
    store.set(KIS).await;
    let survived = store.rows().await;
    store.set(FAR).await;
    promised.take(&store, &[1, 1, 1, 1, 3, 3, 3], START_US + 1, 0).await;
    store.set(KIS).await;
    let widest = store.rows().await.budget;
    // The grants are forgotten, the settings (which commit durably) are not.
    let budget = Budget {
        widest_lookahead_us: widest.widest_lookahead_us,
        widest_max_cost: widest.widest_max_cost,
        ..survived.budget.clone()
    };
    store.restore(&Scheduler { budget, remembered: false, ..survived }).await;
    for after_us in (0..4_000_000).step_by(20_000) {
        promised.take(&store, &[1], START_US + 2 + after_us, 0).await;
    }
    promised.assert_spaced(KIS.interval_us);
}

#[tokio::test]
async fn a_fence_after_the_settings_narrowed_does_not_end_before_the_earlier_one() {
    let store = Store::with_classes(FAR, &[("order", 0, 0)]).await;
    store.forget().await;
    store.reserve(ask(&[1]), START_US).await;
    let first_end_us = store.rows().await.budget.fenced_until_us;
    assert_eq!(first_end_us, START_US + 1_000_000 + 3 * 61_174);
    store.set(KIS).await;
    for after_us in [1, 2] {
        store.forget().await;
        store.reserve(ask(&[1]), START_US + after_us).await;
    }
    let end_us = store.rows().await.budget.fenced_until_us;
    assert!((first_end_us..=first_end_us + 2).contains(&end_us), "ends {} us after the first", end_us - first_end_us);
}

/// What tells a copy from the original, each by itself.
#[tokio::test]
async fn a_marker_of_another_server_life_is_no_marker() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let tampered = [
        ("another start of the server", "started_at = started_at - interval '1 second'"),
        ("another timeline", "timeline = 65535"),
        ("another table", "table_oid = 1"),
        ("another database", "file_path = 'base/1/2'"),
    ];
    let mut fences = store.reserve(ask(&[1]), START_US).await.fences;
    for (what, change) in tampered {
        let sql = format!("UPDATE call_budget.call_budget_marker SET {change}");
        assert_eq!(store.client().execute(&sql, &[]).await.unwrap(), 1);
        fences += 1;
        assert_eq!(store.reserve(ask(&[1]), START_US).await.fences, fences, "{what} must fence");
        assert_eq!(store.reserve(ask(&[1]), START_US).await.fences, fences, "and only once");
    }
    let sql = "SELECT relpersistence::text FROM pg_class WHERE oid = 'call_budget.call_budget_marker'::regclass";
    let persistence: String = store.client().query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(persistence, "u", "an unlogged table is what a crash empties");
}

#[tokio::test]
async fn a_fence_forgets_the_queue() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    store.reserve(ask(&[1]), START_US).await;
    store.reserve(Call { lane: 2, ..ask(&[1]) }, START_US).await;
    assert_eq!(store.rows().await.waiters.len(), 1);
    store.forget().await;
    store.reserve(Call { lane: 3, ..ask(&[1]) }, START_US + 1).await;
    let rows = store.rows().await;
    assert_eq!(rows.waiters.keys().copied().collect::<Vec<_>>(), [3]);
}

#[tokio::test]
async fn callers_may_ask_for_a_fence_once_in_ten_seconds() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let request = async |now_us| {
        store.at(now_us).await;
        let sql = "SELECT call_budget.call_budget_request_fence($1)";
        store.client().query_one(sql, &[&BUDGET]).await.unwrap().get::<_, bool>(0)
    };
    assert!(request(START_US).await);
    assert!(!request(START_US + 1).await);
    assert!(!request(START_US + 10_000_000).await);
    assert!(request(START_US + 10_200_000).await);
}

/// Every slot that was ever promised, forgotten or not, in true time.
#[derive(Default)]
struct Promised {
    slots: Vec<(i64, i32)>,
}

impl Promised {
    /// One call at the true time `now_us`, on a store whose clock is off by `offset_us`.
    async fn take(&mut self, store: &Store, costs: &[i32], now_us: i64, offset_us: i64) -> Answer {
        let answer = store.reserve(ask(costs), now_us + offset_us).await;
        self.slots.extend(answer.waits_us.iter().zip(costs).map(|(wait_us, cost)| (now_us + wait_us, *cost)));
        answer
    }

    fn assert_spaced(&self, interval_us: i64) {
        self.assert_spaced_in(interval_us, "");
    }

    fn assert_spaced_in(&self, interval_us: i64, context: &str) {
        let mut slots = self.slots.clone();
        slots.sort_unstable();
        for pair in slots.windows(2) {
            let ((earlier_us, cost), (later_us, _)) = (pair[0], pair[1]);
            let (gap_us, least_us) = (later_us - earlier_us, i64::from(cost) * interval_us);
            assert!(gap_us >= least_us, "{context}: two slots are {gap_us} us apart and not {least_us}");
        }
    }
}

fn ask(costs: &[i32]) -> Call<'_> {
    Call { class: "order", lane: 1, costs, patience_us: 86_400_000_000 }
}
