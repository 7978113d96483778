//! Faults while the server works on the call, or while its answer is on the way.

use std::time::Duration;

use call_budget::Settings;
use call_budget::policy::stage::Stage;

use super::startup;
use crate::suite::error::{judged, says, uncertain};
use crate::suite::ground::PASSWORD;
use crate::suite::{Caller, Case, Ended, HEALS, HEALS_SOON, How, Length, Proxied, Round, Sent, nothing};
use crate::tools::proxy::{Action, Stream, Toxic, Trigger};

/// One store call: the default `statement_timeout` and half a second.
const STORE_CALL: Duration = Duration::from_secs(1);

pub const CASES: &[Case] = &[
    Case {
        row: 4,
        id: "4.answer_lost",
        name: "the request commits and its answer never comes",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(answer_lost(round)),
    },
    Case {
        row: 5,
        id: "5.stalled",
        name: "the answer stalls after its first bytes",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(stalled(round)),
    },
    Case {
        row: 6,
        id: "6.sending_stalls",
        name: "the request does not get through",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(sending_stalls(round)),
    },
    Case {
        row: 7,
        id: "7.idle",
        name: "the session is reset while nobody uses it",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS_SOON,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(reset_while_idle(round)),
    },
    Case {
        row: 7,
        id: "7.before",
        name: "every connection is reset at its first byte",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS_SOON,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(reset_before(round)),
    },
    Case {
        row: 7,
        id: "7.during",
        name: "the connection is reset while the server works on the request",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS_SOON,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(reset_during(round)),
    },
    Case {
        row: 7,
        id: "7.after",
        name: "the connection is reset with the first byte of the answer",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS_SOON,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(reset_after(round)),
    },
    Case {
        row: 14,
        id: "14.row_locked",
        name: "somebody holds the budget's row locked for longer than the deadline",
        how: How::Server,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(row_locked(round)),
    },
    Case {
        row: 14,
        id: "14.row_locked_bare",
        name: "the same, and the caller's role has no timeouts at the server",
        how: How::Server,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(row_locked_bare(round)),
    },
];

/// There are two ways to the database, and the answer is lost on the first. It stays like that: if the session on it came
/// back from the pool, the next call would wait behind the lost answer.
async fn answer_lost(round: &mut Round) {
    let (first, second) = (Proxied::start(round).await, Proxied::start(round).await);
    let mut settings = settings(round, &first);
    settings.host = Some(format!("{},{}", first.address().ip(), second.address().ip()));
    settings.port = Some(format!("{},{}", first.address().port(), second.address().port()));
    let caller = round.caller(&settings).await;
    caller.send().await;
    let (granted, doubtful) = (round.slots_granted().await, round.sessions_open().await);
    first.poison(Stream::Downstream, Toxic::Timeout { timeout: 0 }).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    uncertain(&error);
    says(&error, &["a slot may have been spent"]);
    assert_eq!(round.slots_granted().await, granted + 1, "the request has committed");

    round.heal();
    round.recover(&caller).await;
    let counters = caller.counters();
    assert_eq!((counters.lost, counters.store_failures), (1, 1), "the next call was served at once: {counters:?}");
    let sessions = round.sessions_open().await;
    assert!(sessions.iter().all(|session| !doubtful.contains(session)), "a session in doubt was used again");
}

async fn stalled(round: &mut Round) {
    let proxy = Proxied::start_own(round).await;
    let caller = round.caller(&settings(round, &proxy)).await;
    caller.send().await;
    let granted = round.slots_granted().await;
    let trigger = proxy.own().arm(Trigger::new(Stream::Downstream, 40, Action::Hold).since_armed());

    round.fault();
    round.no_send_is_allowed();
    uncertain(&caller.try_send().await.refused());
    assert_eq!(trigger.fired(), 1);
    assert_eq!(round.slots_granted().await, granted + 1, "the request has committed");

    round.healing(&caller, async { trigger.disarm() }).await;
    // The stall is over, the answer that was held has come to nobody.
    assert!(caller.counters().lost >= 1);
}

/// The request fits into the kernel's buffers: to the caller it has left. What is held goes on its way when the stall is
/// over, and may be granted then; it counts as lost.
async fn sending_stalls(round: &mut Round) {
    let proxy = Proxied::start(round).await;
    let mut settings = settings(round, &proxy);
    let caller = round.caller(&settings).await;
    settings.store_outage_max = Duration::ZERO;
    settings.max_wait = 2 * STORE_CALL;
    let newcomer = round.caller(&settings).await;
    caller.send().await;
    let toxic = proxy.poison(Stream::Upstream, Toxic::Bandwidth { rate: 0 }).await;

    round.fault();
    round.no_send_is_allowed();
    let (waiting, new) = tokio::join!(caller.try_send(), newcomer.try_send());
    uncertain(&waiting.refused());
    let error = new.refused();
    judged(&error, Stage::Tls, 0);
    says(&error, &[&proxy.address().to_string(), "does not answer the TLS handshake"]);

    round.healing(&caller, proxy.cure(&toxic)).await;
}

/// Nothing was under way, so nothing is lost and nobody hears of it.
async fn reset_while_idle(round: &mut Round) {
    let proxy = Proxied::start_own(round).await;
    let caller = round.caller(&settings(round, &proxy)).await;
    caller.send().await;

    round.fault();
    proxy.own().drop_connections(true).await.expect("the session ends");
    // The server has heard of it, and so has the caller.
    while !round.sessions_open().await.is_empty() {}
    let ended = caller.try_send().await;
    assert_eq!(ended.result.expect("served on a new session"), Sent::Left);
    let counters = caller.counters();
    assert_eq!((counters.lost, counters.store_failures), (0, 0), "{counters:?}");

    // And in the same instant: he may ask before he hears.
    proxy.own().drop_connections(true).await.expect("the session ends");
    round.heal();
    round.recover(&caller).await;
}

async fn reset_before(round: &mut Round) {
    let proxy = Proxied::start(round).await;
    let caller = round.caller(&judging_at_once(round, &proxy)).await;
    let toxic = proxy.poison(Stream::Upstream, Toxic::ResetPeer { timeout: 0 }).await;

    round.fault();
    round.no_send_is_allowed();
    let ended = caller.try_send().await;
    assert!(ended.took < STORE_CALL / 2, "a reset needs no timeout: {:?}", ended.took);
    let error = ended.refused();
    judged(&error, Stage::Tls, 0);
    says(&error, &[&proxy.address().to_string(), "ended the connection", "see the server's log"]);

    round.healing(&caller, proxy.cure(&toxic)).await;
}

async fn reset_during(round: &mut Round) {
    let proxy = Proxied::start_own(round).await;
    let caller = round.caller(&judging_at_once(round, &proxy)).await;
    caller.send().await;
    let mut somebody = round.database().admin().await.expect("a session");
    let lock = round.lock(&mut somebody).await;

    round.fault();
    round.no_send_is_allowed();
    let call = tokio::spawn({
        let caller = caller.clone();
        async move { caller.try_send().await }
    });
    round.somebody_waits_for_a_lock().await;
    proxy.own().drop_connections(true).await.expect("the session ends");
    let ended = call.await.expect("no panic");
    assert!(ended.took < STORE_CALL, "a reset needs no timeout: {:?}", ended.took);
    broke(&caller, &proxy, ended);

    round.healing(&caller, lock.rollback()).await.unwrap();
}

async fn reset_after(round: &mut Round) {
    let proxy = Proxied::start_own(round).await;
    let caller = round.caller(&judging_at_once(round, &proxy)).await;
    caller.send().await;
    let granted = round.slots_granted().await;
    let trigger = proxy.own().arm(Trigger::new(Stream::Downstream, 1, Action::Reset).since_armed());

    round.fault();
    round.no_send_is_allowed();
    let ended = caller.try_send().await;
    assert!(ended.took < STORE_CALL / 2, "a reset needs no timeout: {:?}", ended.took);
    broke(&caller, &proxy, ended);
    assert_eq!(round.slots_granted().await, granted + 1, "the request has committed");

    round.healing(&caller, async { trigger.disarm() }).await;
}

/// The server itself gives up, and rolls back. With the timeouts that `call-budget access --set-timeouts` gives a role it is
/// the `statement_timeout` that does it: `lock_timeout` is as long, and begins later. Where it is shorter, it is that.
async fn row_locked(round: &mut Round) {
    let role = startup::role(round, PASSWORD, true).await;
    let shorter = format!("ALTER ROLE \"{role}\" SET lock_timeout = '200ms'");
    round.admin().await.batch_execute(&shorter).await.expect("a superuser may");
    let url = round.database().url_by_way_of(round.database().address());
    let mut settings = round.settings(url);
    settings.max_wait = STORE_CALL;
    settings.store_outage_max = Duration::ZERO;
    let as_given = round.caller(&settings).await;
    settings.user = Some(role.clone());
    let shorter = round.caller(&settings).await;
    as_given.send().await;
    shorter.send().await;

    let mut somebody = round.database().admin().await.expect("a session");
    let lock = round.lock(&mut somebody).await;

    round.fault();
    round.no_send_is_allowed();
    for (caller, sqlstate) in [(&as_given, "57014"), (&shorter, "55P03")] {
        let error = caller.try_send().await.refused();
        judged(&error, Stage::Query, 0);
        says(&error, &[&format!("SQLSTATE {sqlstate}"), "somebody else held the row for too long"]);
        assert_eq!(caller.counters().lost, 0, "what the server rolled back is not lost");
    }

    round.healing(&as_given, lock.rollback()).await.unwrap();
    startup::drop_role(round, &role).await;
}

/// Only the caller's own deadline is left. Its request goes on waiting at the server, and takes a slot when the row is free.
async fn row_locked_bare(round: &mut Round) {
    let role = startup::role(round, PASSWORD, true).await;
    round.admin().await.batch_execute(&format!("ALTER ROLE \"{role}\" RESET ALL")).await.expect("a superuser may");
    let url = round.database().url_by_way_of(round.database().address());
    let mut settings = round.settings(url);
    settings.user = Some(role.clone());
    settings.max_wait = STORE_CALL;
    let caller = round.caller(&settings).await;
    caller.send().await;

    let mut somebody = round.database().admin().await.expect("a session");
    let lock = round.lock(&mut somebody).await;
    let granted = round.slots_granted().await;

    round.fault();
    round.no_send_is_allowed();
    uncertain(&caller.try_send().await.refused());
    assert_eq!(round.slots_granted().await, granted, "nobody gets past the lock");

    round.healing(&caller, lock.rollback()).await.unwrap();
    assert_eq!(caller.counters().lost, 1, "the one that was given up");
    startup::drop_role(round, &role).await;
}

/// Callers by way of the proxy, each as patient as one store call.
fn settings(round: &Round, proxy: &Proxied) -> Settings {
    let mut settings = round.settings(proxy.url(round));
    settings.max_wait = STORE_CALL;
    settings
}

/// As [`settings`], but the first failure is the judgement: it is told as it is, and not tried again.
fn judging_at_once(round: &Round, proxy: &Proxied) -> Settings {
    let mut settings = settings(round, proxy);
    settings.store_outage_max = Duration::ZERO;
    settings
}

/// The request had left when the connection broke.
#[track_caller]
fn broke(caller: &Caller, proxy: &Proxied, ended: Ended) {
    let error = ended.refused();
    judged(&error, Stage::Query, 1);
    says(&error, &[&proxy.address().to_string(), "broke"]);
    assert_eq!(caller.counters().lost, 1);
}
