//! A session whose packets nobody carries any more, in either direction: a NAT that forgot it. New connections work.
//!
//! What the server keeps of such a session is ended by the server's own keepalives; the client cannot tell it anything.

use std::fs;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::suite::error::uncertain;
use crate::suite::sight::SessionSeen;
use crate::suite::{Caller, Case, HEALS, How, Length, Round, Sent};
use crate::tools::namespace::{self, Firewall};

/// One store call: the default `statement_timeout` and half a second.
const STORE_CALL: Duration = Duration::from_secs(1);

pub const CASES: &[Case] = &[
    Case {
        row: 20,
        id: "20.idle",
        name: "packets are dropped both ways while the session is idle",
        how: How::Namespace,
        deadline: STORE_CALL,
        length: Length::Long,
        heals: HEALS,
        needs: namespace::available,
        own_process: Some(namespace::WORDS),
        run: |round| Box::pin(idle(round)),
    },
    Case {
        row: 20,
        id: "20.noticed",
        name: "the same for longer: the kernel notices, and no call is lost",
        how: How::Namespace,
        deadline: STORE_CALL,
        length: Length::Long,
        heals: HEALS,
        needs: namespace::available,
        own_process: Some(namespace::WORDS),
        run: |round| Box::pin(noticed(round)),
    },
    Case {
        row: 20,
        id: "20.waiting",
        name: "packets are dropped both ways while the call waits for its answer",
        how: How::Namespace,
        deadline: STORE_CALL,
        length: Length::Long,
        heals: HEALS,
        needs: namespace::available,
        own_process: Some(namespace::WORDS),
        run: |round| Box::pin(waiting(round)),
    },
];

async fn idle(round: &mut Round) {
    let (caller, session, firewall) = prepared(round).await;
    firewall.drop_port(session.client_port);

    round.fault();
    round.no_send_is_allowed();
    uncertain(&caller.try_send().await.refused());

    recovers_without(round, &caller, session).await;
}

/// Keepalives after 1 s of silence find it out within 2 s more.
async fn noticed(round: &mut Round) {
    let (caller, session, firewall) = prepared(round).await;
    firewall.drop_port(session.client_port);
    timeout(Duration::from_millis(2600), socket_is_gone(session.client_port)).await.expect("the kernel notices");

    round.fault();
    let ended = caller.try_send().await;
    assert_eq!(ended.result.expect("served on a new session"), Sent::Left);
    let counters = caller.counters();
    assert_eq!((counters.lost, counters.store_failures), (0, 0), "{counters:?}");

    recovers_without(round, &caller, session).await;
}

async fn waiting(round: &mut Round) {
    let (caller, session, firewall) = prepared(round).await;
    let granted = round.slots_granted().await;
    let mut somebody = round.database().admin().await.expect("a session");
    let lock = round.lock(&mut somebody).await;

    round.fault();
    round.no_send_is_allowed();
    let call = tokio::spawn({
        let caller = caller.clone();
        async move { caller.try_send().await }
    });
    round.somebody_waits_for_a_lock().await;
    firewall.drop_port(session.client_port);
    lock.rollback().await.expect("the server answers");
    uncertain(&call.await.expect("no panic").refused());
    assert_eq!(round.slots_granted().await, granted + 1, "the request has committed");

    recovers_without(round, &caller, session).await;
}

/// A caller with one session, of a server that gives up the unreachable, and the means to make it so. (The server is of
/// this case's own process.)
async fn prepared(round: &mut Round) -> (Caller, SessionSeen, Firewall) {
    const GIVE_UP: [&str; 4] = [
        "tcp_keepalives_idle = 1",
        "tcp_keepalives_interval = 1",
        "tcp_keepalives_count = 2",
        "tcp_user_timeout = 2000",
    ];
    for setting in GIVE_UP {
        let sql = format!("ALTER DATABASE postgres SET {setting}");
        round.admin().await.batch_execute(&sql).await.expect("the server answers");
    }
    let mut settings = round.settings(round.database().url_by_way_of(round.database().address()));
    settings.max_wait = STORE_CALL;
    let caller = round.caller(&settings).await;
    caller.send().await;
    let [session] = round.sessions_open().await[..] else { panic!("one call opens one session") };
    let firewall = Firewall::new().unwrap_or_else(|why| panic!("{why}"));
    (caller, session, firewall)
}

/// The NAT does not remember: it heals by a new session, at once.
async fn recovers_without(round: &mut Round, caller: &Caller, session: SessionSeen) {
    round.heal();
    round.recover(caller).await;
    let sessions = round.sessions_open().await;
    assert!(sessions.iter().any(|open| *open != session), "nobody was served on a new session: {sessions:?}");
}

/// Returns when no socket of this system has the local port in a connection.
async fn socket_is_gone(port: u16) {
    const ESTABLISHED: &str = "01";
    let local = format!(":{port:04X}");
    let is_there = || {
        let table = fs::read_to_string("/proc/net/tcp").expect("namespaces need Linux");
        table.lines().skip(1).any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let (from, state) = (columns.next(), columns.nth(1));
            from.is_some_and(|from| from.ends_with(&local)) && state == Some(ESTABLISHED)
        })
    };
    while is_there() {
        sleep(Duration::from_millis(20)).await;
    }
}
