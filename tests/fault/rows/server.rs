//! Faults of the server itself: it stands still, is killed, refuses, has no room, or is slow.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::service::scratch_postgres::{Halt, ScratchPostgres};
use call_budget::store::admin;
use call_budget::{AcquireError, Code};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::NoTls;

use crate::suite::judge::spread;
use crate::suite::{CLASS, Caller, Case, Database, FAST, HEALS, HEALS_SOON, How, Length, Round, nothing};
use crate::tools::disk_full::{self, SmallDiskServer};
use crate::tools::kept::signal;
use crate::tools::processes::{kill, processes};

pub const CASES: &[Case] = &[
    Case {
        row: 15,
        id: "15.statement_timeout",
        name: "the server is slow, and its statement_timeout fires",
        length: Length::Short,
        run: |round| Box::pin(statement_timeout(round)),
        ..SERVER
    },
    Case {
        row: 16,
        id: "16.stopped",
        name: "every process of the server stands still (SIGSTOP)",
        heals: HEALS,
        run: |round| Box::pin(stopped(round)),
        ..SERVER
    },
    Case {
        row: 16,
        id: "16.backend_killed",
        name: "the server's process of a session is killed while it works on the call",
        run: |round| Box::pin(backend_killed(round)),
        ..SERVER
    },
    Case {
        row: 16,
        id: "16.immediate",
        name: "the server is stopped at once (immediate) while it works on the call",
        run: |round| Box::pin(immediate(round)),
        ..SERVER
    },
    Case {
        row: 16,
        id: "16.restart",
        name: "the server is restarted in order (fast)",
        run: |round| Box::pin(restart(round)),
        ..SERVER
    },
    Case {
        row: 16,
        id: "16.crash",
        name: "kill -9 of the server, which forgets its last commits and recovers",
        run: |round| Box::pin(crash(round)),
        ..SERVER
    },
    Case {
        row: 18,
        id: "18.read_only",
        name: "the server takes no writes (default_transaction_read_only)",
        run: |round| Box::pin(read_only(round)),
        ..SERVER
    },
    Case {
        row: 19,
        id: "19.too_many",
        name: "others have taken every connection (max_connections)",
        run: |round| Box::pin(too_many(round)),
        ..SERVER
    },
    Case {
        row: 26,
        id: "26.disk_full",
        name: "the server's disk is full, and it goes down for want of space",
        needs: disk_full::available,
        run: |round| Box::pin(full_disk(round)),
        ..SERVER
    },
    Case {
        row: 33,
        id: "33.held_snapshot",
        name: "an old snapshot is held while twice as much is asked for as there is",
        heals: None,
        run: |round| Box::pin(held_snapshot(round)),
        ..SERVER
    },
];

/// What the cases have in common. The server refuses or has gone, so nothing has to time out before it heals.
const SERVER: Case = Case {
    row: 16,
    id: "",
    name: "",
    how: How::Server,
    deadline: Duration::from_secs(1),
    length: Length::Long,
    heals: HEALS_SOON,
    needs: nothing,
    own_process: None,
    run: |_| Box::pin(async {}),
};

/// The outage is judged well within a call's deadline, so that its error tells of it.
const OUTAGE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

type Server = Arc<Mutex<ScratchPostgres>>;

async fn statement_timeout(round: &mut Round) {
    let mut settings = round.settings(round.database().url_by_way_of(round.database().address()));
    settings.max_wait = Duration::from_secs(1);
    settings.statement_timeout = Duration::from_secs(2);
    settings.store_outage_max = Duration::ZERO;
    let caller = round.caller(&settings).await;
    caller.send().await;
    let budget = round.budget().await;
    let slow = format!("fault_{}", budget.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    // No lock, so that it is not the lock_timeout: the grant itself takes too long.
    let make = format!(
        "CREATE FUNCTION public.{slow}() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_catalog.pg_sleep(5); RETURN NEW; END';
         CREATE TRIGGER {slow} BEFORE UPDATE ON call_budget.call_budget_class
             FOR EACH ROW WHEN (NEW.budget::text = '{budget}') EXECUTE FUNCTION public.{slow}()"
    );
    round.admin().await.batch_execute(&make).await.unwrap();

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_says(&error, Code::StoreUnavailable, Stage::Query, &["57014", "the server is slow"]);
    assert!(!error.may_have_spent(), "an ERROR rolls back: {error}");

    let database = round.database().admin().await.unwrap();
    let heal = async move { database.batch_execute(&format!("DROP FUNCTION public.{slow} CASCADE")).await };
    round.healing(&caller, heal).await.unwrap();
    assert_eq!(caller.counters().lost, 0);
}

async fn stopped(round: &mut Round) {
    let (server, caller) = own_server(round, &[], Duration::from_secs(10)).await;
    let still = on(&server, |server| Still::all_of(server)).await;
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_says(&error, Code::Uncertain, Stage::Query, &["a slot may have been spent"]);
    assert!(error.may_have_spent());
    // The kernel still takes connections for it.
    let error = caller.try_send().await.refused();
    assert_says(&error, Code::WaitExceeded, Stage::Startup, &["max_wait passed", "does not finish the login"]);
    assert!(!error.may_have_spent(), "{error}");
    round.healing(&caller, async { drop(still) }).await;
}

async fn backend_killed(round: &mut Round) {
    let (_server, caller) = own_server(round, &[], Duration::from_secs(10)).await;
    let name = round.application_name().to_owned();
    let database = round.database().admin().await.unwrap();
    let budget = round.budget().await;
    let somebody = round.database().admin().await.unwrap();
    lock_row(&somebody, &budget).await;

    round.fault();
    let its_own = round.database().clone();
    let (ended, ()) = tokio::join!(caller.try_send(), async {
        let pid = pid_at_work(&database, &name).await;
        // Not here: this task is also the caller's.
        tokio::task::spawn_blocking(move || signal(pid, "KILL")).await.expect("it is killed");
        // The server ends all sessions, and recovers; the call goes on trying meanwhile, and others come.
        let recovers = async {
            while !somebody.is_closed() {
                sleep(Duration::from_millis(1)).await;
            }
            serves(&its_own).await;
        };
        round.healing(&caller, timeout(PATIENCE, recovers)).await.expect("it recovers in time");
    });
    match ended.result {
        Ok(_) => {}
        Err(error) => assert!(error.may_have_spent(), "{error}"),
    }
    assert_eq!(caller.counters().lost, 1, "one answer is missing");
}

async fn immediate(round: &mut Round) {
    let (server, caller) = own_server(round, &[], OUTAGE).await;
    let name = round.application_name().to_owned();
    let database = round.database().admin().await.unwrap();
    let budget = round.budget().await;
    let somebody = round.database().admin().await.unwrap();
    lock_row(&somebody, &budget).await;

    round.fault();
    round.no_send_is_allowed();
    let (ended, ()) = tokio::join!(caller.try_send(), async {
        pid_at_work(&database, &name).await;
        on(&server, |server| server.halt(Halt::Immediate).unwrap()).await;
    });
    let error = ended.refused();
    assert_says(&error, Code::StoreUnavailable, Stage::Connect, &["the store has been out for", "refused"]);
    assert!(error.may_have_spent(), "its session was cut while it worked: {error}");
    // Judged: whoever comes now makes one attempt.
    let error = caller.try_send().await.refused();
    assert_says(&error, Code::StoreUnavailable, Stage::Connect, &["check that PostgreSQL runs there"]);
    assert!(!error.may_have_spent(), "{error}");
    round.healing(&caller, on(&server, |server| server.resume().unwrap())).await;
}

async fn restart(round: &mut Round) {
    let (server, caller) = own_server(round, &[], OUTAGE).await;
    let budget = round.budget().await;
    let fences = books(round.database(), &budget).await.fences;
    on(&server, |server| server.halt(Halt::Fast).unwrap()).await;
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_says(&error, Code::StoreUnavailable, Stage::Connect, &["the store has been out for", "refused"]);
    round.healing(&caller, on(&server, |server| server.resume().unwrap())).await;
    let after = books(round.database(), &budget).await.fences;
    assert_eq!(after, fences + 1, "each restart is fenced");
}

async fn crash(round: &mut Round) {
    // So that there is something to forget: a server that may lose the last commits, and writes them late.
    let forgetful = [("synchronous_commit", "off"), ("wal_writer_delay", "10s"), ("wal_writer_flush_after", "0")];
    let (server, caller) = own_server(round, &forgetful, OUTAGE).await;
    let budget = round.budget().await;
    round.admin().await.batch_execute("CHECKPOINT").await.unwrap();
    let kept = books(round.database(), &budget).await;
    for _ in 0..5 {
        caller.send().await;
    }
    let before = books(round.database(), &budget).await;
    on(&server, kill).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_says(&error, Code::StoreUnavailable, Stage::Connect, &["the store has been out for", "refused"]);
    // With nobody asking, to see what is left; and down again, the same way.
    on(&server, |server| server.resume().unwrap()).await;
    let after = books(round.database(), &budget).await;
    on(&server, kill).await;
    assert!((kept.granted..=before.granted).contains(&after.granted), "{kept:?} {before:?} {after:?}");
    let forgotten = before.granted - after.granted;
    assert!(forgotten > 0, "it was to forget something");
    round.healing(&caller, on(&server, |server| server.resume().unwrap())).await;
    let fenced = books(round.database(), &budget).await;
    assert_eq!(fenced.fences, after.fences + 1, "what may have been forgotten is fenced");
    // The callers know of them; the store does not any more.
    round.scripted_store_granted(CLASS, forgotten);
    round.note(format!(
        "the server forgot {forgotten} commits (synchronous_commit = off) and was fenced; the books balance with them"
    ));
}

async fn read_only(round: &mut Round) {
    let (_server, caller) = own_server(round, &[], OUTAGE).await;
    set_read_only(round.database(), "on").await;
    round.fault();
    round.no_send_is_allowed();
    for _ in 0..2 {
        let error = caller.try_send().await.refused();
        // An open session hears it from its call, a new one before it is used.
        assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
        assert!(matches!(error.stage(), Some(Stage::Query | Stage::Startup)), "{error}");
        assert!(error.to_string().contains("25006") && error.to_string().contains("takes no writes"), "{error}");
        assert!(!error.may_have_spent(), "{error}");
    }
    let database = round.database().admin().await.unwrap();
    round.healing(&caller, read_only_is(database, "off")).await;
    assert_eq!(caller.counters().lost, 0);
}

async fn too_many(round: &mut Round) {
    let (_server, caller) = own_server(round, &[("max_connections", "12")], OUTAGE).await;
    let url = round.database().url_by_way_of(round.database().address());
    let mut others = Vec::new();
    others.extend(take_all(&url).await);
    // And the caller's own, which ends as it would behind a pooler or a firewall.
    let name = round.application_name().to_owned();
    let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1";
    round.admin().await.query(end, &[&name]).await.unwrap();
    others.extend(take_all(&url).await);
    assert!(!others.is_empty(), "there was something to take");

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_says(&error, Code::StoreUnavailable, Stage::Startup, &["53300", "no connection left"]);
    round.healing(&caller, async { drop(others) }).await;
}

/// Every connection that the server still gives to this role.
async fn take_all(url: &str) -> Vec<tokio_postgres::Client> {
    let mut taken = Vec::new();
    loop {
        match tokio_postgres::connect(url, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                taken.push(client);
            }
            Err(error) => {
                assert_eq!(error.code().map(|code| code.code()), Some("53300"), "{error:?}");
                return taken;
            }
        }
    }
}

async fn full_disk(round: &mut Round) {
    let start = || SmallDiskServer::start(&[]).unwrap_or_else(|error| panic!("{error}"));
    let server = tokio::task::spawn_blocking(start).await.expect("a server on a small disk");
    let database = Arc::new(Database::on(&server.postgres).await);
    let server = Arc::new(Mutex::new(server));
    round.keep(Arc::clone(&server));
    round.judge_at(database).await;
    round.prepared().await;
    let caller = caller_at(round, OUTAGE).await;

    round.fault();
    on(&server, |server| server.fill()).await;
    // There is still room in the log at hand; without it the server goes down.
    caller.try_send().await.result.expect("nothing needs space yet");
    on(&server, |server| server.crash()).await;
    round.no_send_is_allowed();
    for _ in 0..2 {
        let error = caller.try_send().await.refused();
        assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
        assert!(matches!(error.stage(), Some(Stage::Connect | Stage::Startup)), "{error}");
        assert!(error.to_string().contains("the store has been out for"), "{error}");
    }
    let heal = on(&server, |server| {
        server.free();
        server.wait_until_up();
    });
    round.healing(&caller, heal).await;
}

async fn held_snapshot(round: &mut Round) {
    /// What the budget gives is one in twice as long.
    const PACE: Duration = Duration::from_millis(5);
    const CALLS: usize = 500;
    round.budget_with(&admin::Settings { limit: 126, interval_us: 10_000, ..FAST }).await;
    let mut settings = round.settings(round.database().url_by_way_of(round.database().address()));
    settings.max_wait = Duration::from_secs(1);
    let caller = round.caller(&settings).await;
    caller.send().await;
    let somebody = round.database().admin().await.unwrap();
    round.fault();
    let mut granted = Vec::new();
    for held in [false, true] {
        if held {
            let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM call_budget.call_budget_class";
            somebody.batch_execute(hold).await.unwrap();
        }
        let began = Instant::now();
        let calls = join_all((0..CALLS as u32).map(|number| {
            let caller = caller.clone();
            async move {
                sleep_until(began + number * PACE).await;
                caller.try_send().await
            }
        }));
        let ended = calls.await;
        for error in ended.iter().filter_map(|ended| ended.result.as_ref().err()) {
            // Uncertain: its time was up while a call that asked for it too was under way.
            assert!(matches!(error.code(), Code::WaitExceeded | Code::Uncertain), "{error}");
        }
        granted.push((
            ended.iter().filter(|ended| ended.result.is_ok()).count(),
            spread(&ended.iter().map(|ended| ended.took).collect::<Vec<_>>()).expect("there were calls"),
        ));
    }
    somebody.batch_execute("COMMIT").await.unwrap();
    let [(without, its), (with, held)] = granted[..] else { unreachable!("two turns") };
    assert!(with * 10 >= without * 8, "{with} of {CALLS} calls with the snapshot, {without} without");
    round.note(format!(
        "of {CALLS} calls at twice the pace {without} were granted without the snapshot (worst end {:.0?}) and {with} \
         with it (worst end {:.0?})",
        its.worst, held.worst
    ));
}

/// A server of the round's own, and a caller that has a session there.
async fn own_server(round: &mut Round, settings: &[(&str, &str)], outage: Duration) -> (Server, Caller) {
    let server = round.own_server(settings).await;
    let caller = caller_at(round, outage).await;
    (server, caller)
}

async fn caller_at(round: &mut Round, outage: Duration) -> Caller {
    let mut settings = round.settings(round.database().url_by_way_of(round.database().address()));
    settings.max_wait = Duration::from_secs(1);
    settings.store_outage_max = outage;
    let caller = round.caller(&settings).await;
    caller.send().await;
    caller
}

/// What blocks is done where it may.
pub(super) async fn on<S: Send + 'static, T: Send + 'static>(
    server: &Arc<Mutex<S>>,
    order: impl FnOnce(&mut S) -> T + Send + 'static,
) -> T {
    let server = Arc::clone(server);
    let work = move || order(&mut server.lock().unwrap_or_else(PoisonError::into_inner));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
pub(super) fn assert_says(error: &AcquireError, code: Code, stage: Stage, words: &[&str]) {
    assert_eq!((error.code(), error.stage()), (code, Some(stage)), "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

/// What a database says of a budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Books {
    pub granted: u64,
    pub fences: i64,
}

pub(super) async fn books(database: &Database, budget: &str) -> Books {
    // Not the views for operators: a standby has no unlogged tables, which they look into.
    let sql = "SELECT (SELECT sum(granted)::bigint FROM call_budget.call_budget_class WHERE budget = $1), fences
                 FROM call_budget.call_budget WHERE name = $1";
    let client = timeout(PATIENCE, serves(database)).await.expect("it serves in time");
    let row = client.query_one(sql, &[&budget]).await.unwrap();
    Books { granted: row.get::<_, i64>(0).cast_unsigned(), fences: row.get(1) }
}

/// A session as soon as the server gives one.
async fn serves(database: &Database) -> tokio_postgres::Client {
    loop {
        match database.admin().await {
            Ok(client) if client.simple_query("SELECT 1").await.is_ok() => return client,
            _ => sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Until the session ends.
async fn lock_row(somebody: &tokio_postgres::Client, budget: &str) {
    somebody.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM call_budget.call_budget WHERE name = $1 FOR UPDATE";
    somebody.query_one(lock, &[&budget]).await.unwrap();
}

/// The server's process that works on a call of this name and waits for the lock.
async fn pid_at_work(database: &tokio_postgres::Client, name: &str) -> u32 {
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
    let look = async {
        loop {
            if let Some(row) = database.query_opt(sql, &[&name]).await.unwrap() {
                return row.get::<_, i32>(0).cast_unsigned();
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, look).await.expect("a call waits for the lock")
}

async fn set_read_only(database: &Database, value: &str) {
    read_only_is(database.admin().await.unwrap(), value).await;
}

/// In force in open sessions when it returns: each looks before its next statement.
async fn read_only_is(client: tokio_postgres::Client, value: &str) {
    client.batch_execute(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}")).await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let shown = async {
        loop {
            let row = client.query_one("SHOW default_transaction_read_only", &[]).await.unwrap();
            if row.get::<_, &str>(0) == value {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, shown).await.expect("the server reads its configuration");
}

/// Every process of a server, stopped. They go on when this is dropped.
struct Still(Vec<u32>);

impl Still {
    fn all_of(server: &ScratchPostgres) -> Self {
        // The first one first: it would start others.
        signal(processes(server)[0], "STOP");
        let still = Self(processes(server));
        still.0.iter().skip(1).for_each(|pid| signal(*pid, "STOP"));
        still
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.0.iter().rev().for_each(|pid| signal(*pid, "CONT"));
    }
}
