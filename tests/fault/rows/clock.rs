//! Wall clocks that are set: the store's, and a caller's own.
//!
//! The receiver judges in the machine's own time: slots that keep their distance show in when requests arrive.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use call_budget::store::admin;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::server::books;
use crate::suite::judge::{JITTER_US, Spread};
use crate::suite::vendor::now_us;
use crate::suite::{Caller, Case, Database, Ended, How, Length, Round, Sent};
use crate::tools::faketime::{Offset, SteppedClock, SteppedServer, available};
use crate::tools::kept::told;

pub const CASES: &[Case] = &[
    Case {
        row: 22,
        id: "22.back",
        name: "the store's clock steps back by 8 s",
        run: |round| Box::pin(back(round)),
        ..STEP
    },
    Case {
        row: 22,
        id: "22.forward",
        name: "the store's clock steps forward by an hour",
        run: |round| Box::pin(forward(round)),
        ..STEP
    },
    Case {
        row: 23,
        id: "23.caller",
        name: "the caller's wall clock steps by an hour, forward and back",
        deadline: Duration::from_secs(1),
        heals: None,
        run: |round| Box::pin(callers_own(round)),
        ..STEP
    },
];

const STEP: Case = Case {
    row: 22,
    id: "",
    name: "",
    how: How::Clock,
    // Less than the step back: nobody stands still for as long as that.
    deadline: Duration::from_secs(3),
    length: Length::Long,
    heals: Some(Spread { median: after_quiet(700), worst: after_quiet(1300) }),
    needs: available,
    own_process: None,
    run: |_| Box::pin(async {}),
};

/// Wide enough that a send window is shorter than the distance of two slots, so that one request too many shows.
const SLOW: admin::Settings = admin::Settings {
    limit: 7,
    window_us: 1_000_000,
    send_window_us: 80_000,
    arrival_jitter_us: 10_000,
    max_cost: 1,
    interval_us: 160_000,
    lookahead_us: 480_000,
};
/// As many slots are out at most: what a step forward can double.
const OUT: usize = (SLOW.lookahead_us / SLOW.interval_us) as usize + 1;
const PATIENCE: Duration = Duration::from_secs(10);

/// The budget is quiet for this long after a step; it heals after that.
const fn after_quiet(ms: u64) -> Duration {
    Duration::from_micros((SLOW.lookahead_us + SLOW.interval_us) as u64 + 1000 * ms)
}

async fn back(round: &mut Round) {
    let mut stepped = Stepped::prepare(round).await;
    let [first, second] = [stepped.caller(round).await, stepped.caller(round).await];
    stepped.all_promised_is_over().await;
    stepped.step_is_seen(round, &first, &second, Offset::Behind(Duration::from_secs(8))).await;
}

async fn forward(round: &mut Round) {
    let mut stepped = Stepped::prepare(round).await;
    let [first, second] = [stepped.caller(round).await, stepped.caller(round).await];
    stepped.all_promised_is_over().await;
    stepped.step_is_seen(round, &first, &second, Offset::Ahead(Duration::from_secs(3600))).await;

    // A process whose first call falls between the step and the fence has nothing to compare with.
    let newcomer = stepped.new_caller(round).await;
    stepped.all_promised_is_over().await;
    stepped.forget_the_last_fence(round).await;
    let fences = fences_of(round).await;
    let from = round.arrivals().len();
    let promised = promised(&first).await;
    stepped.server.step(Offset::Ahead(Duration::from_secs(2 * 3600)));
    let sent = ended(burst(&newcomer)).await;
    let sees = ended(burst(&first)).await;
    for ended in ended(promised).await.iter().chain(&sent).chain(&sees) {
        assert!(ended.result.is_ok(), "{ended:?}");
    }
    assert_eq!(first.counters().clock_steps, 2, "{:?}", first.counters());
    assert_eq!(fences_of(round).await, fences + 1);
    let early = early(&arrived(round, from).await);
    assert!(early <= OUT, "{early} came early, {OUT} may");
    round.note(format!(
        "a step forward is seen by whoever has called before, and nothing comes early; of a process whose first call falls \
         between the step and the fence {early} came early, {OUT} at most (floor(lookahead / interval) + 1)"
    ));
}

async fn callers_own(round: &mut Round) {
    const HOUR: Duration = Duration::from_secs(3600);
    const CALLS: usize = 20;
    let clock = SteppedClock::new().unwrap_or_else(|error| panic!("{error}"));
    let variables: Vec<String> = clock.environment().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let under_it: Vec<&str> = ["env"].into_iter().chain(variables.iter().map(String::as_str)).collect();
    let mut settings = round.settings(round.database().url_by_way_of(round.database().address()));
    settings.max_wait = Duration::from_secs(1);
    let mut member = round.member(&under_it, &settings, Duration::from_millis(5)).await;
    member.call(PATIENCE, |call| call.sent).await;
    let maps = fs::read_to_string(format!("/proc/{}/maps", member.pid())).expect("it runs");
    assert!(maps.contains("libfaketime"), "the member's clock is not the stepped one");

    let began_us = now_us();
    round.fault();
    for (offset, ahead_s) in [(Offset::Ahead(HOUR), 3600), (Offset::Behind(HOUR), -3600), (Offset::None, 0)] {
        clock.step(offset);
        let stepped_us = now_us();
        let before = wall_s(&[]);
        let shown = wall_s(&under_it[1..]);
        let after = wall_s(&[]);
        assert!(
            (before + ahead_s..=after + ahead_s).contains(&shown),
            "the wall clock shows {shown}, {before} is true"
        );
        let before = member.calls().len();
        member.call(PATIENCE, |call| call.ended_us > stepped_us).await;
        let more = async {
            while member.calls().len() < before + CALLS {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, more).await.expect("it goes on calling");
    }
    round.heal();
    let calls = member.calls();
    for (call, next) in calls.iter().zip(&calls[1..]) {
        assert!(call.sent, "{call:?}");
        // Its own clock is the machine's.
        assert!(call.ended_us <= next.ended_us && next.ended_us <= now_us(), "{call:?} {next:?}");
        if next.ended_us > began_us {
            round.ended(next.took);
        }
    }
    let account = member.stop().await;
    assert_eq!(account.lost + account.dropped, 0, "{account:?}");
    round.account(account);
    round.note(
        "the library reads CLOCK_BOOTTIME past the C library; with DONT_FAKE_MONOTONIC libfaketime leaves CLOCK_MONOTONIC \
         (tokio's timers) and CLOCK_BOOTTIME alone, without it it steps both",
    );
}

/// A server whose clock can be stepped, with the round's budget.
struct Stepped {
    server: Arc<SteppedServer>,
}

impl Stepped {
    async fn prepare(round: &mut Round) -> Self {
        let start = || SteppedServer::start(&[]).unwrap_or_else(|error| panic!("{error}"));
        let server = Arc::new(tokio::task::spawn_blocking(start).await.expect("a server with a clock of its own"));
        let database = Database::on(&server.postgres).await;
        round.keep(Arc::clone(&server));
        round.judge_at(Arc::new(database)).await;
        round.budget_with(&SLOW).await;
        round.prepared().await;
        Self { server }
    }

    async fn new_caller(&self, round: &mut Round) -> Caller {
        let mut settings = round.settings(round.database().url_by_way_of(round.database().address()));
        settings.max_wait = Duration::from_secs(3);
        settings.rtt_max = Duration::from_millis(75);
        round.caller(&settings).await
    }

    /// One that has called before.
    async fn caller(&self, round: &mut Round) -> Caller {
        let caller = self.new_caller(round).await;
        caller.send().await;
        caller
    }

    async fn all_promised_is_over(&self) {
        sleep(Duration::from_micros((SLOW.lookahead_us + SLOW.interval_us) as u64)).await;
    }

    /// A store that has fenced within 10 s will not do it again: the budget's first fence becomes older.
    async fn forget_the_last_fence(&self, round: &mut Round) {
        let budget = round.budget().await;
        let sql = "UPDATE call_budget.call_budget SET fenced_until_us = fenced_until_us - 20000000 WHERE name = $1";
        round.admin().await.execute(sql, &[&budget]).await.unwrap();
    }

    /// Every slot is promised to `first`, the clock steps, and `second` asks for as many.
    async fn step_is_seen(&mut self, round: &mut Round, first: &Caller, second: &Caller, offset: Offset) {
        self.forget_the_last_fence(round).await;
        let fences = fences_of(round).await;
        let from = round.arrivals().len();
        round.fault();
        let promised = promised(first).await;
        self.server.step(offset);
        let after = ended(burst(second)).await;
        round.heal();
        for ended in ended(promised).await.iter().chain(&after) {
            assert_eq!(ended.result.as_ref().ok(), Some(&Sent::Left), "{ended:?}");
        }
        let arrived = arrived(round, from).await;
        assert_eq!(early(&arrived), 0, "requests came early, at {arrived:?}");
        let counters = second.counters();
        assert_eq!((counters.clock_steps, counters.fence_requests), (1, 1), "{counters:?}");
        if let Offset::Ahead(_) = offset {
            // As if all that was promised were over. (A step back promises nothing anew.)
            assert!(counters.dropped_clock_step >= 1, "what came with the step does not count: {counters:?}");
        }
        let fenced = fences_of(round).await;
        assert_eq!(fenced, fences + 1, "the budget was fenced");
        round.recovered_in(after.iter().map(|ended| ended.took).min().expect("they called"));
    }
}

/// As many calls at once as slots can be promised.
fn burst(caller: &Caller) -> Vec<JoinHandle<Ended>> {
    (0..OUT)
        .map(|_| {
            let caller = caller.clone();
            tokio::spawn(async move { caller.try_send().await })
        })
        .collect()
}

/// The same, once every one of them has been promised a slot.
async fn promised(caller: &Caller) -> Vec<JoinHandle<Ended>> {
    let wanted = caller.counters().granted + OUT as u64;
    let calls = burst(caller);
    let granted = async {
        while caller.counters().granted < wanted {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, granted).await.expect("slots are promised");
    calls
}

async fn ended(calls: Vec<JoinHandle<Ended>>) -> Vec<Ended> {
    join_all(calls).await.into_iter().map(|ended| ended.expect("calling does not panic")).collect()
}

/// When requests came, those before left out, once all have come.
async fn arrived(round: &Round, from: usize) -> Vec<u64> {
    // What left is there within its send window.
    sleep(Duration::from_micros(SLOW.send_window_us as u64)).await;
    let mut at_us: Vec<u64> = round.arrivals()[from..].iter().map(|arrival| arrival.at_us).collect();
    at_us.sort_unstable();
    at_us
}

/// How many requests came that slots at their distance do not allow, in the worst span of any length.
fn early(at_us: &[u64]) -> usize {
    let blur_us = SLOW.send_window_us as u64 + JITTER_US;
    let excess = |first: usize, last: usize| {
        let allowed = (at_us[last] - at_us[first] + blur_us) / SLOW.interval_us as u64 + 1;
        (last - first + 1).saturating_sub(allowed as usize)
    };
    let spans = (0..at_us.len()).flat_map(|first| (first..at_us.len()).map(move |last| (first, last)));
    spans.map(|(first, last)| excess(first, last)).max().unwrap_or_default()
}

async fn fences_of(round: &mut Round) -> i64 {
    let budget = round.budget().await;
    books(round.database(), &budget).await.fences
}

/// What the wall clock shows to a process with these variables, in seconds since 1970.
fn wall_s(variables: &[&str]) -> i64 {
    let shown = told(Command::new("env").args(variables).args(["date", "+%s"]), PATIENCE);
    shown.unwrap_or_else(|error| panic!("{error}")).parse().expect("a number")
}
