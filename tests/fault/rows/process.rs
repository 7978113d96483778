//! Callers that stand still, and callers that go away.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use call_budget::Settings;
use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::stage::Stage;
use call_budget::store::{Ask, PostgresStore, Store};
use tokio::time::{sleep, timeout};

use crate::suite::vendor::now_us;
use crate::suite::{Account, CLASS, Case, HEALS, How, Length, Round, Sent, nothing};
use crate::tools::kept::signal;

pub const CASES: &[Case] = &[
    Case {
        row: 21,
        id: "21.stopped",
        name: "a process is stopped with a permit in hand, until its window has closed",
        how: How::Process,
        deadline: MAX_WAIT,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(stopped(round)),
    },
    Case {
        row: 21,
        id: "21.stopped_anywhere",
        name: "a process that calls without a pause is stopped at any moment, for longer than the window",
        how: How::Process,
        deadline: MAX_WAIT,
        length: Length::Long,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(stopped_anywhere(round)),
    },
    Case {
        row: 27,
        id: "27.cancelled",
        name: "an acquire is dropped after n polls, for every n, with a pool of one",
        how: How::Process,
        deadline: MAX_WAIT,
        length: Length::Short,
        heals: None,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(cancelled(round)),
    },
    Case {
        row: 27,
        id: "27.call_cancelled",
        name: "a store call is dropped after n polls, for every n from DNS to the answer, with a pool of one",
        how: How::Process,
        deadline: MAX_WAIT,
        length: Length::Long,
        heals: None,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(call_cancelled(round)),
    },
];

const MAX_WAIT: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
/// The budget's window is 200 ms.
const STOPPED: Duration = Duration::from_millis(300);

async fn stopped(round: &mut Round) {
    let url = round.database().url_by_way_of(round.database().address());
    let mut settings = round.settings(url);
    settings.max_wait = MAX_WAIT;
    let mut member = round.held_member(&settings).await;

    let leave = member.leave(1).await;
    round.fault();
    signal(member.pid(), "STOP");
    while now_us() <= leave.closes_us + 50_000 {
        sleep(Duration::from_millis(10)).await;
    }
    // It finds the word when it wakes up: the first thing that it does is to use its permit.
    member.go().await;
    signal(member.pid(), "CONT");
    let continued_us = round.heal();
    let call = member.call(PATIENCE, |_| true).await;
    assert!(!call.sent, "it sent after its window: {call:?}");
    assert_eq!(call.error, None, "a permit came, and had lapsed: {call:?}");
    round.ended(call.took);

    // It asks again by itself, and this permit is good.
    member.leave(2).await;
    member.go().await;
    let call = member.call(PATIENCE, |call| call.sent).await;
    round.recovered_in(Duration::from_micros(call.ended_us.saturating_sub(continued_us)));
    round.account(member.stop().await);
}

/// Where it stood each time is not known; that nothing left outside its window is.
async fn stopped_anywhere(round: &mut Round) {
    let url = round.database().url_by_way_of(round.database().address());
    let mut settings = round.settings(url);
    settings.max_wait = MAX_WAIT;
    let mut member = round.member(&[], &settings, Duration::ZERO).await;
    member.call(PATIENCE, |call| call.sent).await;
    for _ in 0..5 {
        sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
        round.fault();
        let stopped_us = now_us();
        signal(member.pid(), "STOP");
        sleep(STOPPED).await;
        signal(member.pid(), "CONT");
        let continued_us = round.heal();
        let call = member.call(PATIENCE, |call| call.sent && call.ended_us > continued_us).await;
        round.recovered_in(Duration::from_micros(call.ended_us - continued_us));
        for call in member.calls().iter().filter(|call| call.ended_us > stopped_us) {
            round.ended(call.took);
            assert_eq!(call.error, None, "a slot that has lapsed is asked for again: {call:?}");
        }
    }
    round.account(member.stop().await);
}

/// Enough for the slowest way there is: connect, log in, set up, warm, ask.
const MOST_POLLS: usize = 1000;

async fn cancelled(round: &mut Round) {
    let url = round.database().url_by_way_of(round.database().address());
    let mut settings = round.settings(url);
    settings.pool_size = 1;
    settings.max_wait = MAX_WAIT;
    for fresh in [true, false] {
        let mut caller = round.caller(&settings).await;
        let mut polls = 0;
        loop {
            let whole = {
                let (library, budget, class) = caller.library();
                dropped_after(polls, library.acquire(budget, class)).await
            };
            if let Some(permit) = whole {
                drop(permit.expect("nothing is wrong"));
                break;
            }
            round.fault();
            let next = caller.try_send().await;
            assert_eq!(next.result.expect("served at once"), Sent::Left, "after {polls} polls");
            round.heal();
            if fresh {
                caller = round.caller(&settings).await;
            }
            polls += 1;
            assert!(polls < MOST_POLLS);
        }
        assert!(polls >= 1, "it waited at least once");
    }
}

/// Below the lanes: what is dropped here is the store call itself, as its deadline does it.
async fn call_cancelled(round: &mut Round) {
    let url = round.database().url_by_name("localhost", round.database().address().port());
    let mut settings = round.settings(url);
    settings.pool_size = 1;
    let budget: Arc<str> = round.budget().await.into();
    let ask = || Ask {
        budget: Arc::clone(&budget),
        class: CLASS.into(),
        lane: fastrand::i64(0..),
        costs: vec![1],
        patience: MAX_WAIT,
        nonce: fastrand::i64(0..),
    };
    let mut account = Account { class: CLASS.into(), ..Account::default() };
    for fresh in [true, false] {
        let mut polls = 0;
        let mut store = a_store(&settings);
        account.dropped += served(&store, &ask()).await;
        loop {
            if fresh {
                store = a_store(&settings);
            }
            let progress = Arc::default();
            match dropped_after(polls, store.acquire(&ask(), &progress)).await {
                Some(reply) => {
                    account.dropped += reply.expect("nothing is wrong").answer.slots.len() as u64;
                    break;
                }
                // The request may have left.
                None => account.lost += u64::from(progress.stage() == Stage::Query),
            }
            let began = SystemClock.now();
            account.dropped += served(&store, &ask()).await;
            round.ended(SystemClock.now().saturating_since(began));
            polls += 1;
            assert!(polls < MOST_POLLS);
        }
        assert!(polls >= if fresh { 3 } else { 1 }, "it waits more often than {polls} times");
    }
    assert!(account.lost >= 1, "{account:?}");
    round.account(account);
}

fn a_store(settings: &Settings) -> PostgresStore {
    PostgresStore::new(settings, SystemClock).expect("settings that the library takes")
}

/// How many slots came with a call that is well.
async fn served(store: &PostgresStore, ask: &Ask) -> u64 {
    let reply = timeout(2 * MAX_WAIT, store.acquire(ask, &Arc::default())).await;
    reply.expect("an answer at once").expect("nothing is wrong").answer.slots.len() as u64
}

/// Polls `future` as often as it wakes, `polls` times at most, and drops it. Its output, if it came to one.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
