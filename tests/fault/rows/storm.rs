//! Many who ask at once while the store is away: none of them makes it worse for the others.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use call_budget::Code;
use call_budget::policy::stage::Stage;
use call_budget::service::scratch_postgres::Halt;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::pooler::Pooled;
use super::scripted_store::ScriptedStore;
use crate::suite::ground::ROLE;
use crate::suite::judge::Spread;
use crate::suite::vendor::now_us;
use crate::suite::{CLASS, Case, Database, Ended, HEALS, How, Length, Member, Proxied, Round, Sent, nothing};
use crate::tools::pgbouncer;
use crate::tools::proxy::{Stream, Toxic};
use crate::tools::scripted_postgres::{Act, Point, Script};

pub const CASES: &[Case] = &[
    Case {
        row: 24,
        id: "24.two_hundred",
        name: "200 processes behind PgBouncer with 20 connections, the server away for 3 s",
        how: How::Server,
        deadline: MEMBERS_WAIT,
        length: Length::Long,
        heals: Some(Spread { median: ANSWERED, worst: ANSWERED }),
        needs: pgbouncer::available,
        own_process: None,
        run: |round| Box::pin(two_hundred(round)),
    },
    Case {
        row: 25,
        id: "25.answers_lost",
        name: "four callers on one store, and all answers are lost",
        how: How::Proxy,
        // An attempt takes 1 s and its pause 0.25 s at most: the third ends after 2 s of outage.
        deadline: Duration::from_millis(4100),
        length: Length::Long,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(answers_lost(round)),
    },
    Case {
        row: 25,
        id: "25.thousand_tasks",
        name: "1,000 tasks of one process wait for a store that is silent",
        how: How::ScriptedServer,
        deadline: Duration::from_secs(1),
        length: Length::Long,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(thousand_tasks(round)),
    },
];

const PROCESSES: usize = 200;
const CONNECTIONS: usize = 20;
const AWAY: Duration = Duration::from_secs(3);
/// After healing every process has its answer within this. What takes the time is 200 processes that log in on the cores of
/// one machine: 2.8 s where those are free, 9.6 s were seen where they were not.
const ANSWERED: Duration = Duration::from_secs(20);
const MEMBERS_WAIT: Duration = Duration::from_secs(2);
/// Between two calls of a process: together they ask a quarter of what the budget gives.
const MEMBERS_PAUSE: Duration = Duration::from_millis(800);

async fn two_hundred(round: &mut Round) {
    round.note(
        "logins at the pooler are MD5: a SCRAM login costs it milliseconds, and 200 at a time measure the cores of this machine",
    );
    let pooled = Pooled::start(round, CONNECTIONS, &[("auth_type", "md5")]).await;
    let mut settings = round.settings(pooled.url(round));
    settings.max_wait = MEMBERS_WAIT;
    let mut members = Vec::new();
    for _ in 0..PROCESSES {
        members.push(round.member(&[], &settings, MEMBERS_PAUSE).await);
    }
    // Processes start slowly where there are few cores.
    let first = join_all(members.iter_mut().map(|member| member.call(Duration::from_secs(60), |call| call.sent)));
    first.await;

    let watch = Watch::start(round.database(), pooled.port(), members.iter().map(Member::pid).collect());
    pooled.with(|_, server| server.halt(Halt::Immediate).unwrap_or_else(|error| panic!("{error}"))).await;
    let away_us = now_us();
    round.fault();
    sleep(AWAY / 10).await;
    // What was granted before has been used.
    round.no_send_is_allowed();
    sleep(AWAY).await;
    round.sending_is_allowed();
    pooled.with(|_, server| server.resume().unwrap_or_else(|error| panic!("{error}"))).await;
    let healed_us = round.heal();

    let answered =
        members.iter_mut().map(|member| member.call(2 * ANSWERED, move |call| call.sent && call.ended_us > healed_us));
    for call in join_all(answered).await {
        round.recovered_in(Duration::from_micros(call.ended_us - healed_us));
    }
    // Still no storm a moment later.
    sleep(Duration::from_secs(1)).await;
    let seen = watch.end().await;
    for member in &members {
        for call in member.calls().iter().filter(|call| call.ended_us > away_us) {
            round.ended(call.took);
        }
    }
    for account in join_all(members.into_iter().map(Member::stop)).await {
        round.account(account);
    }
    assert!(seen.sessions > 0 && seen.looks > 20, "nothing was watched: {seen:?}");
    assert!(seen.sessions <= CONNECTIONS, "the server saw more sessions than the pooler has: {seen:?}");
    match seen.connections {
        Some(connections) => assert_eq!(connections, 1, "a process made more than one attempt at a time: {seen:?}"),
        None => round.note("connections are not counted by process on this system: only the server's sessions are"),
    }
}

/// Looks on, again and again.
struct Watch {
    end: Arc<AtomicBool>,
    looking: tokio::task::JoinHandle<Seen>,
}

/// The most that was seen at one time.
#[derive(Debug, Default)]
struct Seen {
    looks: usize,
    /// The callers' sessions at the server.
    sessions: usize,
    /// Connections of one process to the pooler, open or being opened; `None` where this system does not tell.
    connections: Option<usize>,
}

impl Watch {
    const PAUSE: Duration = Duration::from_millis(50);

    fn start(database: &Database, port: u16, processes: Vec<u32>) -> Self {
        let end: Arc<AtomicBool> = Arc::default();
        let database = database.clone();
        let looking = tokio::spawn({
            let end = Arc::clone(&end);
            async move {
                let mut seen = Seen::default();
                let mut admin = None;
                while !end.load(Ordering::SeqCst) {
                    if admin.is_none() {
                        admin = database.admin().await.ok();
                    }
                    // While the server is away nobody has a session there.
                    if let Some(client) = &admin {
                        match sessions(client).await {
                            Some(sessions) => seen.sessions = seen.sessions.max(sessions),
                            None => admin = None,
                        }
                    }
                    let processes = processes.clone();
                    let count = move || most_connections(port, &processes);
                    let connections = tokio::task::spawn_blocking(count).await.expect("it counts");
                    seen.connections = seen.connections.max(connections);
                    seen.looks += 1;
                    sleep(Self::PAUSE).await;
                }
                seen
            }
        });
        Self { end, looking }
    }

    async fn end(self) -> Seen {
        self.end.store(true, Ordering::SeqCst);
        self.looking.await.expect("it looks on")
    }
}

/// The callers' sessions at the server, seen past the pooler.
async fn sessions(admin: &tokio_postgres::Client) -> Option<usize> {
    const SQL: &str = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1";
    let row = timeout(Duration::from_secs(2), admin.query_one(SQL, &[&ROLE])).await.ok()?.ok()?;
    usize::try_from(row.get::<_, i64>(0)).ok()
}

/// How many connections to `port` the process has that has most of them, open or being opened.
fn most_connections(port: u16, processes: &[u32]) -> Option<usize> {
    const ESTABLISHED: &str = "01";
    const SYN_SENT: &str = "02";
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let to_port = format!(":{port:04X}");
    let sockets: HashSet<String> = table
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let (remote, state, inode) = (columns.get(2)?, columns.get(3)?, columns.get(9)?);
            let counts = remote.ends_with(&to_port) && (*state == ESTABLISHED || *state == SYN_SENT);
            counts.then(|| format!("socket:[{inode}]"))
        })
        .collect();
    let of_process = |process: &u32| {
        // What is closed meanwhile leads nowhere.
        let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
        let links = files.filter_map(|file| fs::read_link(file.path()).ok());
        Some(links.filter(|link| sockets.contains(&*link.to_string_lossy())).count())
    };
    processes.iter().filter_map(of_process).max()
}

async fn answers_lost(round: &mut Round) {
    let proxy = Proxied::start(round).await;
    let mut settings = round.settings(proxy.url(round));
    settings.store_outage_max = Duration::from_secs(2);
    let caller = round.caller(&settings).await;
    caller.send().await;

    let lost = proxy.poison(Stream::Downstream, Toxic::Timeout { timeout: 0 }).await;
    round.fault();
    round.no_send_is_allowed();
    let four = join_all((0..4).map(|_| caller.try_send())).await;
    let errors: Vec<_> = four.into_iter().map(Ended::refused).collect();
    for error in &errors {
        // The session's request was lost; then there are no answers to a handshake either.
        assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Tls)), "{error}");
        assert!(error.to_string().contains("the store has been out for"), "{error}");
    }
    let spent: u32 = errors.iter().map(|error| error.lost()).sum();
    assert!((1..=4).contains(&spent), "one call was lost, with those it asked for: {errors:?}");
    assert_eq!(caller.counters().lost, u64::from(spent));

    round.healing(&caller, proxy.cure(&lost)).await;
    for ended in join_all((0..4).map(|_| caller.try_send())).await {
        assert_eq!(ended.result.expect("all is well"), Sent::Left);
    }
    let name = round.application_name().to_owned();
    let one_is_left = async {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        while round.admin().await.query_one(sql, &[&name]).await.expect("an answer").get::<_, i64>(0) != 1 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(2), one_is_left).await.expect("exactly one session is left");
}

async fn thousand_tasks(round: &mut Round) {
    const TASKS: usize = 1000;
    /// Longer than it takes to make a call, so that two in flight would be seen.
    const SLOW: Duration = Duration::from_millis(20);
    let store = ScriptedStore::start();
    let mut settings = store.settings(round);
    settings.max_wait = Duration::from_secs(1);
    let caller = store.callers(round, &settings, &[CLASS]).await.remove(0);
    let all_ask = || {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let caller = caller.clone();
            tasks.spawn(async move { caller.try_send().await });
        }
        tasks.join_all()
    };
    let before = store.server.acquires().len();
    store.is(store.granting(Script::well().on_acquire(Point::Read, Act::Silence)));
    round.fault();
    round.no_send_is_allowed();
    for ended in all_ask().await {
        let error = ended.refused();
        assert!(matches!(error.code(), Code::Uncertain | Code::WaitExceeded), "{error}");
    }
    assert_eq!(store.server.acquires().len() - before, 1, "one call waits for all");
    assert_eq!(store.server.max_open_connections(), 1);
    let heal = async {
        store.is(store.granting(Script::well().on_acquire(Point::Read, Act::Wait(SLOW))));
        store.server.release();
    };
    round.healing(&caller, heal).await;

    let before = store.server.acquires().len();
    for ended in all_ask().await {
        ended.result.expect("the store is slow, and well");
    }
    let acquires = store.server.acquires().split_off(before);
    assert!((1..=TASKS / 10).contains(&acquires.len()), "{} calls for {TASKS} tasks", acquires.len());
    for two in acquires.windows(2) {
        assert!(two[1].arrived - two[0].arrived >= SLOW, "two calls in flight");
    }
    assert!(store.server.max_open_connections() <= settings.pool_size);
    store.end(round);
}
