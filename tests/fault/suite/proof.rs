//! That a round can fail: cases that break one rule each, on the real ground, run before the others. Where one of them is
//! not noticed, no zero of the suite is worth anything.

use std::fs::File;
use std::sync::PoisonError;
use std::time::Duration;

use call_budget::service::scratch_postgres::Halt;
use futures_util::future::BoxFuture;

use super::case::{Case, How, Length, nothing};
use super::round::Round;

/// A case that must fail, and a word of each fault that must be found; no other may be.
pub struct Planted {
    pub case: Case,
    pub faults: &'static [&'static str],
}

pub static PLANTED: [Planted; 7] = [
    planted("0.no_leave", "a request without leave", &["sent in doubt: 1"], |round| Box::pin(no_leave(round))),
    planted("0.not_allowed", "a request while none is allowed", &["sent in doubt: 1"], |round| {
        Box::pin(not_allowed(round))
    }),
    planted(
        "0.crashed",
        "a slot that nobody knows of, at a crashed server of the round's own",
        &["do not balance"],
        |round| Box::pin(crashed(round)),
    ),
    planted("0.member", "a slot that only another process knows of", &["do not balance"], |round| {
        Box::pin(member(round))
    }),
    planted("0.invented", "a permit that was never granted", &["do not balance"], |round| Box::pin(booked(round, -1))),
    planted(
        "0.left_behind",
        "a thread, a task, a file and a session stay",
        &["threads", "tasks", "file descriptors", "sessions at the server"],
        |round| Box::pin(left_behind(round)),
    ),
    in_own_process(planted("0.panic", "a task panics, in a process of its own", &["planted panic"], |round| {
        Box::pin(panics(round))
    })),
];

const fn planted(
    id: &'static str,
    name: &'static str,
    faults: &'static [&'static str],
    run: for<'a> fn(&'a mut Round) -> BoxFuture<'a, ()>,
) -> Planted {
    let case = Case {
        row: 0,
        id,
        name,
        how: How::Process,
        deadline: Duration::from_secs(1),
        length: Length::Short,
        heals: None,
        needs: nothing,
        own_process: None,
        run,
    };
    Planted { case, faults }
}

const fn in_own_process(planted: Planted) -> Planted {
    Planted { case: Case { own_process: Some(&[]), ..planted.case }, ..planted }
}

impl Planted {
    /// What of `found` should not be, or is missing; nothing if the case failed as it must.
    pub fn missed(&self, found: &[String]) -> Option<String> {
        let as_planted = found.len() == self.faults.len()
            && self.faults.iter().all(|word| found.iter().any(|fault| fault.contains(word)));
        (!as_planted).then(|| {
            let Case { id, name, .. } = self.case;
            format!(
                "the suite cannot be trusted: {id} ({name}) must be found out as {:?}, it was {found:?}",
                self.faults
            )
        })
    }
}

async fn a_good_call(round: &mut Round) -> super::Caller {
    let url = round.database().url_by_way_of(round.database().address());
    let settings = round.settings(url);
    let caller = round.caller(&settings).await;
    caller.send().await;
    round.ended(Duration::ZERO);
    caller
}

async fn no_leave(round: &mut Round) {
    let caller = a_good_call(round).await;
    caller.wire.send(fastrand::u64(..)).expect("the vendor listens");
    // The vendor knows it before it knows the next one.
    caller.send().await;
}

async fn not_allowed(round: &mut Round) {
    let caller = a_good_call(round).await;
    round.no_send_is_allowed();
    caller.send().await;
}

async fn booked(round: &mut Round, more: i64) {
    let caller = a_good_call(round).await;
    let budget = round.budget().await;
    let sql = "UPDATE call_budget.call_budget_class SET granted = granted + $2 WHERE budget = $1";
    round.admin().await.execute(sql, &[&budget, &more]).await.unwrap();
    drop(caller);
}

async fn crashed(round: &mut Round) {
    let server = round.own_server(&[]).await;
    booked(round, 1).await;
    tokio::task::spawn_blocking(move || {
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.restart(Halt::Immediate).unwrap_or_else(|error| panic!("{error}"));
    })
    .await
    .expect("it starts again");
}

/// Its permit and its request are known; what is missing is its account.
async fn member(round: &mut Round) {
    let url = round.database().url_by_way_of(round.database().address());
    let settings = round.settings(url);
    let mut member = round.member(&[], &settings, Duration::from_secs(60)).await;
    let call = member.call(Duration::from_secs(10), |call| call.sent).await;
    round.ended(call.took.min(Duration::from_secs(1)));
    let account = member.stop().await;
    assert!(account.permits >= 1, "{account:?}");
}

/// Longer than the judge waits, and gone before long.
async fn left_behind(round: &mut Round) {
    const STAY: Duration = Duration::from_secs(9);
    let caller = a_good_call(round).await;
    let file = File::open(std::env::current_exe().expect("this program")).expect("it can be read");
    std::thread::spawn(move || {
        std::thread::park_timeout(STAY);
        drop(file);
    });
    tokio::spawn(async move {
        tokio::time::sleep(STAY).await;
        drop(caller);
    });
}

async fn panics(round: &mut Round) {
    a_good_call(round).await;
    let _ = tokio::spawn(async { panic!("planted panic") }).await;
}
