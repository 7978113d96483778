//! Faults of this process's own connections: a pool full of dead ones, and no descriptor left for another.

use std::fs::File;
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::{Code, Settings};
use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::suite::{CLASS, Caller, Case, DATABASE_NAME, HEALS_SOON, How, Length, Round, nothing, says, served};
use crate::tools::door::Door;
use crate::tools::scripted_dns::{Reply, ScriptedDns};

pub const CASES: &[Case] = &[
    Case {
        id: "32.pool_reset",
        name: "all five connections of the pool have been reset",
        run: |round| Box::pin(dead_pool(round, Door::reset)),
        ..DEAD
    },
    Case {
        id: "32.dead_pool",
        name: "all five connections of the pool are dead, and nothing says so",
        run: |round| Box::pin(dead_pool(round, Door::forget)),
        ..DEAD
    },
    Case {
        id: "35.no_descriptors",
        name: "no file descriptor is left in this process for a connection",
        run: |round| Box::pin(no_descriptors(round)),
        ..NO_DESCRIPTORS
    },
    Case {
        id: "35.no_descriptors_by_name",
        name: "no file descriptor is left in this process for a question to a name server",
        run: |round| Box::pin(no_descriptors_by_name(round)),
        ..NO_DESCRIPTORS
    },
    Case {
        id: "35.one_descriptor",
        name: "one file descriptor is left: the connection takes it, the certificates cannot be read",
        run: |round| Box::pin(one_descriptor(round)),
        ..NO_DESCRIPTORS
    },
];

const DEAD: Case = Case {
    row: 32,
    id: "",
    name: "",
    how: How::Proxy,
    // One dead connection is found out (0.6 s), and all are given up at once: with one after the other it would be 3 s.
    deadline: Duration::from_millis(1100),
    length: Length::Short,
    heals: None,
    needs: nothing,
    own_process: None,
    run: |_| Box::pin(async {}),
};

const NO_DESCRIPTORS: Case =
    Case { row: 35, how: How::Process, deadline: Duration::from_secs(1), heals: HEALS_SOON, ..DEAD };

const SESSIONS: usize = 5;

/// The next call is served in time, whoever of the five it meets first.
async fn dead_pool(round: &mut Round, kill: fn(&Door)) {
    let door = Door::anywhere(round.database().address()).await;
    let mut settings = round.settings(round.database().url_by_way_of(door.address()));
    settings.pool_size = SESSIONS;
    settings.statement_timeout = Duration::from_millis(100);
    settings.max_wait = Duration::from_millis(1100);
    let caller = round.caller(&settings).await;
    fill_pool(&caller).await;
    assert_eq!(door.links(), SESSIONS, "the pool is full");

    kill(&door);
    round.fault();
    served(&caller).await;
    for _ in 0..SESSIONS {
        let took = served(&caller).await;
        assert!(took < Duration::from_millis(500), "another dead one was met: {took:?}");
    }
    assert_eq!(door.came(), SESSIONS + 1, "one new connection, and all old ones are gone");
}

/// One session for each of five lanes that ask at once. (There are no such budgets: they take no slots.)
async fn fill_pool(caller: &Caller) {
    let (library, ..) = caller.library();
    let budgets: Vec<String> = (0..SESSIONS).map(|n| format!("no such budget {n}")).collect();
    for refused in join_all(budgets.iter().map(|budget| library.acquire(budget, CLASS))).await {
        let code = refused.err().map(|error| error.code());
        assert_eq!(code, Some(Code::UnknownBudget), "the session is open");
    }
}

async fn no_descriptors(round: &mut Round) {
    let settings = settings(round);
    let [open, caller] = [round.caller(&settings).await, round.caller(&settings).await];
    open.send().await;
    let used = UsedUp::but(0);
    round.fault();
    // Who is connected needs no other.
    served(&open).await;
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Connect)), "{error}");
    says(&error, &["127.0.0.1", "file descriptor", "ulimit -n", "stage connect, after 0."]);
    round.healing(&caller, async { drop(used) }).await;
}

async fn no_descriptors_by_name(round: &mut Round) {
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &Reply::addresses(&[round.database().address().ip()], 60));
    let mut settings = settings(round);
    settings.host = Some(DATABASE_NAME.into());
    settings.nameservers = vec![dns.address().to_string()];
    let caller = round.caller(&settings).await;
    let used = UsedUp::but(0);
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Dns)), "{error}");
    says(&error, &[DATABASE_NAME, "file descriptor", "ulimit -n", "stage dns, after 0."]);
    round.healing(&caller, async { drop(used) }).await;
}

async fn one_descriptor(round: &mut Round) {
    let settings = settings(round);
    let caller = round.caller(&settings).await;
    let used = UsedUp::but(1);
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Tls)), "{error}");
    says(&error, &["sslrootcert", "file descriptor", "ulimit -n", "stage tls, after 0."]);
    round.healing(&caller, async { drop(used) }).await;
}

/// An attempt that fails is told at once.
fn settings(round: &Round) -> Settings {
    let mut settings = round.settings(round.database().url_by_way_of(round.database().address()));
    settings.max_wait = Duration::from_secs(1);
    settings.store_outage_max = Duration::ZERO;
    settings
}

/// The file descriptors that this process may have, all taken but for some. Dropped, they are free, and the limit is what it
/// was. (Cases run one at a time, and the servers are processes of their own.)
struct UsedUp {
    before: Rlimit,
    _taken: Vec<File>,
}

impl UsedUp {
    fn but(left: usize) -> Self {
        // More than the suite itself has open, and few enough to take.
        const LIMIT: u64 = 200;
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..before })
            .expect("a lower limit is always granted");
        let take = || File::open("/dev/null");
        let mut taken: Vec<File> = std::iter::from_fn(|| take().ok()).collect();
        assert!(taken.len() > left, "there was something to take");
        taken.truncate(taken.len() - left);
        Self { before, _taken: taken }
    }
}

impl Drop for UsedUp {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).expect("the limit that it had");
    }
}
