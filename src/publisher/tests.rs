use std::collections::VecDeque;
use std::future::pending;

use super::{Arc, Clock, Duration, Failing, Instant, Mutex, Progress, Publisher, Snapshot, Store, StoreError};
use crate::clock::ManualClock;
use crate::policy::breaker::Shown;
use crate::policy::stage::Stage;
use crate::store::{Ask, Reply};

#[tokio::test]
async fn a_change_is_told_at_once_and_no_two_within_a_second() {
    let desk = Desk::new();
    desk.show(Shown::Open);
    desk.publisher.changed();
    settle().await;
    assert_eq!(desk.told(), [(0, Shown::Open)]);
    for (after, shown) in [(300, Shown::ProbeDue), (300, Shown::Probing), (300, Shown::Closed)] {
        desk.pass(after).await;
        desk.show(shown);
        desk.publisher.changed();
        settle().await;
    }
    assert_eq!(desk.told().len(), 1);
    desk.pass(99).await;
    assert_eq!(desk.told().len(), 1);
    desk.pass(1).await;
    assert_eq!(desk.told(), [(0, Shown::Open), (1000, Shown::Closed)], "what is to be seen then, once");
}

#[tokio::test]
async fn what_is_not_calm_is_told_every_ten_seconds_and_what_is_never_again() {
    let desk = Desk::new();
    desk.show(Shown::Open);
    desk.publisher.changed();
    desk.pass(25_000).await;
    assert_eq!(desk.told_at(), [0, 10_000, 20_000]);
    desk.show(Shown::Closed);
    desk.publisher.changed();
    desk.pass(100_000).await;
    assert_eq!(desk.told_at(), [0, 10_000, 20_000, 25_000]);
    assert!(desk.is_idle(), "a task is left although nothing is to be told");
    desk.show(Shown::Open);
    desk.publisher.changed();
    desk.pass(1).await;
    assert_eq!(desk.told_at().last(), Some(&125_000));
}

#[tokio::test]
async fn a_held_surface_behind_a_closed_breaker_is_told_until_it_is_free() {
    let desk = Desk::new();
    let mut held = Snapshot::without_figures("a", Shown::Closed);
    held.holds = vec![("surface a".into(), Duration::from_secs(15), "EGW00215".into())];
    *desk.shown.lock().unwrap() = vec![held];
    desk.publisher.changed();
    desk.pass(11_000).await;
    desk.show(Shown::Closed);
    desk.pass(100_000).await;
    assert_eq!(desk.told_at(), [0, 10_000, 20_000]);
    assert!(desk.is_idle());
}

#[tokio::test]
async fn a_store_that_is_out_is_asked_again_with_what_is_to_be_seen_then() {
    let desk = Desk::new();
    desk.answer([Err(Failing::Unavailable), Err(Failing::Uncertain), Err(Failing::Unavailable)]);
    desk.show(Shown::Open);
    desk.publisher.changed();
    desk.pass(15_000).await;
    desk.show(Shown::Closed);
    desk.publisher.changed();
    desk.pass(60_000).await;
    assert_eq!(
        desk.told(),
        [(0, Shown::Open), (10_000, Shown::Open), (15_000, Shown::Closed), (25_000, Shown::Closed)],
        "nothing queued, and the last state is told in the end"
    );
    assert!(desk.is_idle());
}

#[tokio::test]
async fn a_store_that_hangs_is_given_up_at_the_deadline_of_a_store_call() {
    let desk = Desk::new();
    desk.store.hangs.lock().unwrap().push_back(());
    desk.show(Shown::Open);
    desk.publisher.changed();
    desk.pass(1_500).await;
    desk.publisher.changed();
    desk.pass(499).await;
    assert_eq!(desk.told_at(), [0]);
    desk.pass(1).await;
    assert_eq!(desk.told_at(), [0, 2_000]);
}

#[tokio::test]
async fn a_store_whose_second_is_not_over_is_told_when_it_is() {
    let desk = Desk::new();
    desk.answer([Ok(ms(0)), Ok(ms(700))]);
    desk.show(Shown::Open);
    desk.publisher.changed();
    desk.pass(1_000).await;
    desk.show(Shown::Closed);
    desk.publisher.changed();
    desk.pass(20_000).await;
    assert_eq!(desk.told_at(), [0, 1_000, 2_000]);
    assert!(desk.is_idle());
}

#[tokio::test]
async fn a_store_that_cannot_take_it_is_left_alone_for_ten_minutes() {
    let desk = Desk::new();
    desk.answer([Err(Failing::Misconfigured), Err(Failing::Misconfigured)]);
    desk.show(Shown::Open);
    desk.publisher.changed();
    desk.pass(60_000).await;
    desk.publisher.changed();
    desk.pass(539_999).await;
    assert_eq!(desk.told_at(), [0]);
    desk.pass(1).await;
    assert_eq!(desk.told_at(), [0, 600_000]);
    desk.show(Shown::Closed);
    desk.pass(600_000).await;
    assert_eq!(desk.told_at(), [0, 600_000, 1_200_000]);
    assert!(desk.is_idle());
}

#[test]
fn whoever_is_told_of_a_refusal_may_change_a_breaker() {
    let (told, finished) = std::sync::mpsc::channel();
    // On a thread of its own: where it hangs, the test has to end.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let desk = Desk::new();
        let listener = Listener(desk.publisher.clone());
        tracing::subscriber::with_default(listener, || {
            runtime.block_on(async {
                desk.answer([Err(Failing::Misconfigured), Err(Failing::Unavailable)]);
                desk.show(Shown::Open);
                desk.publisher.changed();
                desk.pass(601_000).await;
            });
        });
        told.send(desk.told_at()).unwrap();
    });
    let told = finished.recv_timeout(Duration::from_secs(60)).expect("it waits for its own lock");
    assert_eq!(told, [0, 600_000, 601_000]);
}

/// Changes a breaker with all that it hears.
struct Listener(Publisher);

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("call_budget::publisher")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.changed();
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_calm_process_whose_store_cannot_take_it_keeps_no_task() {
    let desk = Desk::new();
    desk.answer([Err(Failing::Misconfigured)]);
    desk.show(Shown::Closed);
    desk.publisher.changed();
    desk.pass(1).await;
    assert!(desk.is_idle());
    desk.publisher.changed();
    desk.pass(1).await;
    assert_eq!(desk.told_at(), [0]);
    assert!(desk.is_idle());
}

#[tokio::test]
async fn a_process_without_breakers_asks_no_store() {
    let desk = Desk::new();
    desk.publisher.changed();
    desk.pass(100_000).await;
    assert_eq!(desk.told_at(), [0; 0]);
    assert!(desk.is_idle());
}

#[tokio::test]
async fn a_process_that_has_nothing_left_to_show_takes_away_what_it_showed() {
    let desk = Desk::new();
    desk.answer([Ok(ms(0)), Err(Failing::Unavailable)]);
    desk.show(Shown::Held);
    desk.publisher.changed();
    desk.pass(5_000).await;
    desk.shown.lock().unwrap().clear();
    desk.pass(100_000).await;
    assert_eq!(desk.told(), [(0, Shown::Held), (10_000, Shown::Closed), (20_000, Shown::Closed)]);
    assert!(desk.is_idle());
    desk.publisher.changed();
    desk.pass(1_000).await;
    assert_eq!(desk.told().len(), 3, "once is enough");
}

#[tokio::test]
async fn with_the_last_publisher_the_task_ends() {
    let desk = Desk::new();
    desk.show(Shown::Open);
    let clone = desk.publisher.clone();
    clone.changed();
    drop(clone);
    desk.pass(10_000).await;
    assert_eq!(desk.told_at(), [0, 10_000]);
    let Desk { clock, store, publisher, shown } = desk;
    assert_eq!(Arc::strong_count(&shown), 2, "the publisher looks at it");
    drop(publisher);
    settle().await;
    assert_eq!(Arc::strong_count(&shown), 1, "the task is left");
    clock.advance(ms(100_000));
    settle().await;
    assert_eq!(store.told.lock().unwrap().len(), 2);
}

#[test]
fn a_change_outside_a_runtime_or_after_the_end_of_one_is_told_by_the_next_inside() {
    let desk = Desk::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    desk.show(Shown::Open);
    desk.publisher.changed();
    assert!(desk.is_idle());
    let first = runtime();
    first.block_on(async {
        desk.publisher.changed();
        settle().await;
    });
    drop(first);
    assert!(desk.is_idle(), "its runtime has ended");
    runtime().block_on(async {
        desk.publisher.changed();
        desk.pass(1_000).await;
    });
    assert_eq!(desk.told_at(), [0, 1_000]);
}

#[test]
fn a_runtime_that_stands_still_is_replaced() {
    let desk = Desk::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stands_still, other) = (runtime(), runtime());
    desk.show(Shown::Open);
    stands_still.block_on(async {
        desk.publisher.changed();
        settle().await;
    });
    desk.clock.advance(ms(15_001));
    other.block_on(async {
        desk.publisher.changed();
        settle().await;
    });
    assert_eq!(desk.told_at(), [0, 15_001]);
    drop(stands_still);
    other.block_on(desk.pass(10_000));
    assert_eq!(desk.told_at(), [0, 15_001, 25_001]);
}

/// A publisher on a clock that stands, of one process with one breaker.
struct Desk {
    clock: ManualClock,
    store: Arc<Script>,
    publisher: Publisher,
    shown: Arc<Mutex<Vec<Snapshot>>>,
}

impl Desk {
    fn new() -> Self {
        let clock = ManualClock::at(Instant::default());
        let store = Arc::new(Script::new(clock.clone()));
        let shown: Arc<Mutex<Vec<Snapshot>>> = Arc::default();
        let look = {
            let shown = Arc::clone(&shown);
            move || shown.lock().unwrap().clone()
        };
        let publisher = Publisher::new(clock.clone(), Arc::clone(&store), ms(2_000), look);
        Self { clock, store, publisher, shown }
    }

    fn show(&self, shown: Shown) {
        *self.shown.lock().unwrap() = vec![Snapshot::without_figures("a", shown)];
    }

    fn answer<const N: usize>(&self, answers: [Result<Duration, Failing>; N]) {
        self.store.answers.lock().unwrap().extend(answers);
    }

    /// When the store was told what.
    fn told(&self) -> Vec<(u64, Shown)> {
        self.store.told.lock().unwrap().clone()
    }

    fn told_at(&self) -> Vec<u64> {
        self.told().iter().map(|(at, _)| *at).collect()
    }

    /// No task is left: the publisher alone looks at what is shown.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.publisher.0.0) == 1
    }

    /// Lets the time pass, in steps that end at each whole tenth of a second.
    async fn pass(&self, milliseconds: u64) {
        settle().await;
        let end = now(&self.clock) + milliseconds;
        while now(&self.clock) < end {
            let step = (100 - now(&self.clock) % 100).min(end - now(&self.clock));
            self.clock.advance(ms(step));
            settle().await;
        }
    }
}

/// A store that takes everything unless it is to say something else, in order.
struct Script {
    clock: ManualClock,
    answers: Mutex<VecDeque<Result<Duration, Failing>>>,
    hangs: Mutex<VecDeque<()>>,
    told: Mutex<Vec<(u64, Shown)>>,
}

impl Script {
    fn new(clock: ManualClock) -> Self {
        Self { clock, answers: Mutex::default(), hangs: Mutex::default(), told: Mutex::default() }
    }
}

impl Store for Script {
    async fn acquire(&self, _: &Ask, _: &Arc<Progress>) -> Result<Reply, StoreError> {
        unreachable!("a publisher acquires nothing")
    }

    async fn probe(&self, _: &Arc<Progress>) -> Result<Reply, StoreError> {
        unreachable!("a publisher probes nothing")
    }

    async fn fence(&self, _: &str, _: &Arc<Progress>) -> Result<bool, StoreError> {
        unreachable!("a publisher fences nothing")
    }

    async fn report_pushback(&self, _: &str, _: Duration, _: &str, _: &Arc<Progress>) -> Result<Duration, StoreError> {
        unreachable!("a publisher reports nothing")
    }

    async fn publish(&self, _: i64, told: &[Snapshot], _: &Arc<Progress>) -> Result<Duration, StoreError> {
        let entry = (now(&self.clock), told.first().map_or(Shown::Closed, |breaker| breaker.view.shown));
        self.told.lock().unwrap().push(entry);
        if self.hangs.lock().unwrap().pop_front().is_some() {
            pending::<()>().await;
        }
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Ok(Duration::ZERO));
        answer.map_err(|kind| StoreError::new(Stage::Query, kind, "as the script says"))
    }
}

fn now(clock: &ManualClock) -> u64 {
    u64::try_from(clock.now().since_boot().as_millis()).unwrap()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lets the task run until it waits for something.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}
