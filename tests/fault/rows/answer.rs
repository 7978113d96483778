//! Answers that are no grant, however much they look like one: a scripted store says what a real one says only in bad
//! moments. Each case asks for the same: no permit, the doubtful connection is not asked again, and what may have been spent
//! is counted.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::service::scratch_postgres::{Halt, ScratchError, ScratchPostgres};
use call_budget::{AcquireError, Code};
use futures_util::future::{BoxFuture, join_all};
use tokio::time::sleep;

use super::scripted_store::{ScriptedStore, class, grant};
use crate::suite::{CLASS, Caller, Case, Database, HEALS, How, Length, Round, Sent, nothing};
use crate::tools::scripted_postgres::{Act, Kind, Point, Query, Report, Row, Script, Step, Value};
use crate::tools::standby::{PRIMARY, Pair, Replication, STANDBY};

pub const CASES: &[Case] = &[
    case(28, "28.no_ready", "a row and CommandComplete come, and ReadyForQuery does not", |round| {
        Box::pin(no_ready(round))
    }),
    case(28, "28.error_at_sync", "a row and CommandComplete come, and then the commit fails", |round| {
        Box::pin(error_at_sync(round))
    }),
    case(28, "28.not_idle", "ReadyForQuery says that the transaction is not over", |round| Box::pin(not_idle(round))),
    case(28, "28.commit_warning", "the commit comes with a warning: no standby has it", |round| {
        Box::pin(commit_warning(round))
    }),
    Case {
        how: How::Server,
        length: Length::Long,
        needs: standby_possible,
        ..case(
            28,
            "28.commit_not_replicated",
            "PostgreSQL's own wait for a synchronous standby is cancelled",
            |round| Box::pin(commit_not_replicated(round)),
        )
    },
    Case {
        heals: None,
        ..case(28, "28.warning_at_login", "the server warns at every login, as of a changed collation", |round| {
            Box::pin(warning_at_login(round))
        })
    },
    case(29, "29.two_rows", "two rows come instead of one", |round| {
        Box::pin(other_rows(round, |query| vec![grant(query), grant(query)]))
    }),
    case(29, "29.no_row", "no row comes", |round| Box::pin(other_rows(round, |_| Vec::new()))),
    case(29, "29.null", "a column is NULL, each in turn", |round| Box::pin(null(round))),
    case(29, "29.absurd_wait", "waits that no store gives: negative, past the lookahead, too many, none", |round| {
        Box::pin(absurd_wait(round))
    }),
    case(29, "29.other_nonce", "the answer to another question comes", |round| Box::pin(other_nonce(round))),
];

const fn case(
    row: u8,
    id: &'static str,
    name: &'static str,
    run: for<'a> fn(&'a mut Round) -> BoxFuture<'a, ()>,
) -> Case {
    Case {
        row,
        id,
        name,
        how: How::ScriptedServer,
        deadline: DEADLINE,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run,
    }
}

const DEADLINE: Duration = Duration::from_secs(1);
/// Judged before the deadline, so that the error tells what was wrong with the last answer.
const OUTAGE: Duration = Duration::from_millis(300);

/// It says nothing of any commit.
async fn warning_at_login(round: &mut Round) {
    let store = ScriptedStore::start();
    let warned = Script::well().at(Step::Authenticated, Act::Notice(Report::warning("01000")));
    store.is(store.granting(warned));
    round.fault();
    let caller = store.callers(round, &store.settings(round), &[CLASS]).await.remove(0);
    for _ in 0..3 {
        let ended = caller.try_send().await;
        assert_eq!(ended.result.expect("served"), Sent::Left);
    }
    store.end(round);
}

async fn no_ready(round: &mut Round) {
    let store = ScriptedStore::start();
    let caller = a_caller(round, &store).await;
    store.is(store.granting(Script::well().on_acquire(Point::Completed, Act::Silence)));

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    is_doubtful(&error, Code::Uncertain, "a slot may have been spent");

    let held = async {
        store.is_well();
        store.server.release();
    };
    round.healing(&caller, held).await;
    store.end(round);
}

/// The server says that it is rolled back: nothing is spent, and nothing is sent.
async fn error_at_sync(round: &mut Round) {
    let store = ScriptedStore::start();
    let caller = a_caller(round, &store).await;
    for (sqlstate, wrong) in [("40001", "SQLSTATE 40001"), ("53100", "SQLSTATE 53100")] {
        caller.send().await;
        let failing = Act::Error(Report::error(sqlstate));
        store.is(Script::well().on_acquire(Point::Completed, failing).answer(Kind::Acquire, spoilt));
        round.fault();
        round.no_send_is_allowed();
        let error = caller.try_send().await.refused();
        assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Query)), "{error}");
        assert!(error.to_string().contains(wrong), "{error}");
        assert!(!error.may_have_spent(), "{error}");
        store.asked_nobody_twice();
        round.healing(&caller, async { store.is_well() }).await;
    }
    // The server goes down after the row: it may have been committed.
    caller.send().await;
    let leaving = Act::Error(Report::fatal("57P01"));
    store.is(Script::well().on_acquire(Point::Completed, leaving).answer(Kind::Acquire, spoilt));
    round.fault();
    round.no_send_is_allowed();
    is_doubtful(&caller.try_send().await.refused(), Code::StoreUnavailable, "SQLSTATE 57P01");
    round.healing(&caller, async { store.is_well() }).await;
    store.end(round);
}

async fn not_idle(round: &mut Round) {
    let store = ScriptedStore::start();
    let caller = a_caller(round, &store).await;
    for status in [b'T', b'E'] {
        let open = Script::well().on_acquire(Point::Read, Act::Status(status)).answer(Kind::Acquire, spoilt);
        fails_and_heals(round, &store, &caller, open, "it ended inside a transaction").await;
    }
    store.end(round);
}

/// Before CommandComplete or after it: servers differ.
async fn commit_warning(round: &mut Round) {
    let store = ScriptedStore::start();
    let caller = a_caller(round, &store).await;
    for point in [Point::Rows, Point::Completed] {
        for report in [Report::unreplicated(), Report::unreplicated().in_korean()] {
            let warned = Script::well().on_acquire(point, Act::Notice(report)).answer(Kind::Acquire, spoilt);
            fails_and_heals(round, &store, &caller, warned, "its commit came with a warning").await;
        }
    }
    store.end(round);
}

/// The same by PostgreSQL itself: the standby is away, and somebody cancels each wait for it.
async fn commit_not_replicated(round: &mut Round) {
    let start = || Pair::start(Replication::Synchronous, &[]).unwrap_or_else(|error| panic!("{error}"));
    let pair = tokio::task::spawn_blocking(start).await.expect("a pair of servers");
    let database = Arc::new(Database::on(&pair.primary).await);
    let url = database.url_by_way_of((PRIMARY, pair.port()).into());
    let pair = Arc::new(Mutex::new(pair));
    round.keep(Arc::clone(&pair));
    round.judge_at(Arc::clone(&database)).await;
    round.prepared().await;
    let mut settings = round.settings(url);
    settings.max_wait = DEADLINE;
    settings.store_outage_max = OUTAGE;
    let caller = round.caller(&settings).await;
    caller.send().await;

    of_the_standby(&pair, |standby| standby.halt(Halt::Fast)).await;
    let somebody = database.admin().await.expect("a session");
    let name = round.application_name().to_owned();
    let cancels = async {
        let waiting = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                       WHERE application_name = $1 AND wait_event = 'SyncRep'";
        loop {
            somebody.query(waiting, &[&name]).await.expect("a superuser may");
            sleep(Duration::from_millis(10)).await;
        }
    };
    round.fault();
    round.no_send_is_allowed();
    let ended = tokio::select! {
        ended = caller.try_send() => ended,
        () = cancels => unreachable!("it goes on"),
    };
    is_doubtful(&ended.refused(), Code::StoreUnavailable, "its commit came with a warning");
    round.healing(&caller, of_the_standby(&pair, ScratchPostgres::resume)).await;
    // What others asked for meanwhile has come, and stands in the books.
    caller.send().await;
}

async fn of_the_standby(
    pair: &Arc<Mutex<Pair>>,
    act: impl FnOnce(&mut ScratchPostgres) -> Result<(), ScratchError> + Send + 'static,
) {
    let pair = Arc::clone(pair);
    let acted =
        tokio::task::spawn_blocking(move || act(&mut pair.lock().unwrap_or_else(PoisonError::into_inner).standby));
    acted.await.expect("it is done").unwrap_or_else(|error| panic!("{error}"));
}

fn standby_possible() -> Result<(), String> {
    let why = |error| format!("a standby needs a second loopback address, {STANDBY}: {error}");
    TcpListener::bind((STANDBY, 0)).map(drop).map_err(why)
}

async fn other_rows(round: &mut Round, rows: fn(&Query) -> Vec<Row>) {
    let store = ScriptedStore::start();
    let caller = a_caller(round, &store).await;
    fails_and_heals(round, &store, &caller, Script::well().answer(Kind::Acquire, rows), "not exactly one row").await;
    store.end(round);
}

/// One caller a column. In a grant `retry_us` and `reason` are NULL anyhow, so their NULL is put where a value belongs.
async fn null(round: &mut Round) {
    let columns = [
        "contract",
        "nonce",
        "waits_us",
        "retry_us",
        "reason",
        "interval_us",
        "lookahead_us",
        "send_window_us",
        "max_cost",
        "version",
        "fences",
        "timeline",
        "store_us",
    ];
    let without = |query: &Query| {
        let column = class(query);
        let none = || Value::Int8Array(Vec::new());
        let row = match column.as_str() {
            // Neither a slot nor an appointment.
            "retry_us" => grant(query).set("waits_us", none()).set("retry_us", Value::Int8(1000)),
            // An appointment a year away is a refusal's; without its reason it is nothing.
            "reason" => grant(query)
                .set("waits_us", none())
                .set("retry_us", Value::Int8(31_536_000_000_000))
                .set("reason", Value::Text("patience".into())),
            _ => grant(query),
        };
        vec![row.null(&column)]
    };
    let store = ScriptedStore::start();
    let callers = callers(round, &store, &columns).await;
    let errors = all_fail_and_heal(round, &store, &callers, without).await;
    for (column, error) in columns.into_iter().zip(errors) {
        if column == "contract" {
            assert_eq!(error.code(), Code::Misconfigured, "{error}");
            assert!(error.to_string().contains("contract unknown"), "{error}");
            assert!(error.to_string().contains("call-budget migrate"), "{error}");
        } else {
            is_doubtful(&error, Code::StoreUnavailable, "the answer breaks the contract");
        }
    }
    store.end(round);
}

async fn absurd_wait(round: &mut Round) {
    let kinds = [
        "a negative wait",
        "the most negative wait",
        "a wait past the lookahead",
        "the longest wait",
        "two waits for one caller",
        "no wait and no appointment",
        "a negative appointment",
        "an appointment past the nap",
        "a negative lookahead",
        "a negative send window",
    ];
    let absurd = |query: &Query| {
        let waits = |waits: &[i64]| grant(query).set("waits_us", Value::Int8Array(waits.to_vec()));
        let row = match class(query).as_str() {
            "a negative wait" => waits(&[-1]),
            "the most negative wait" => waits(&[i64::MIN]),
            "a wait past the lookahead" => waits(&[60_001]),
            "the longest wait" => waits(&[i64::MAX]),
            "two waits for one caller" => waits(&[0, 0]),
            "no wait and no appointment" => waits(&[]),
            "a negative appointment" => waits(&[]).set("retry_us", Value::Int8(-1)),
            "an appointment past the nap" => waits(&[]).set("retry_us", Value::Int8(5_000_001)),
            "a negative lookahead" => grant(query).set("lookahead_us", Value::Int8(-1)),
            "a negative send window" => grant(query).set("send_window_us", Value::Int8(-1)),
            unknown => panic!("{unknown}"),
        };
        vec![row]
    };
    let store = ScriptedStore::start();
    let callers = callers(round, &store, &kinds).await;
    for error in all_fail_and_heal(round, &store, &callers, absurd).await {
        is_doubtful(&error, Code::StoreUnavailable, "the answer breaks the contract");
    }
    store.end(round);
}

/// Well-formed and once true: whoever answers is one question behind, as a pooler that mixes up its clients would be.
async fn other_nonce(round: &mut Round) {
    let store = ScriptedStore::start();
    let caller = a_caller(round, &store).await;
    let first = store.server.acquires().pop().expect("the session was opened with one");
    let last = Arc::new(Mutex::new(first));
    let behind = Script::well().answer(Kind::Acquire, move |query| {
        let before = std::mem::replace(&mut *last.lock().unwrap_or_else(PoisonError::into_inner), query.clone());
        // Its clock runs: only the nonce tells.
        vec![grant(&Query { store_us: query.store_us, ..before })]
    });
    fails_and_heals(round, &store, &caller, behind, "it belongs to another question (nonce)").await;
    store.end(round);
}

/// One call under the script, and its recovery.
async fn fails_and_heals(round: &mut Round, store: &ScriptedStore, caller: &Caller, script: Script, wrong: &str) {
    // What others asked for before the fault has come.
    caller.send().await;
    store.is(script);
    round.fault();
    round.no_send_is_allowed();
    is_doubtful(&caller.try_send().await.refused(), Code::StoreUnavailable, wrong);
    store.asked_nobody_twice();
    round.healing(caller, async { store.is_well() }).await;
}

/// One call of each caller, all at once, and the recovery of one of them.
async fn all_fail_and_heal(
    round: &mut Round,
    store: &ScriptedStore,
    callers: &[Caller],
    rows: impl Fn(&Query) -> Vec<Row> + Send + Sync + 'static,
) -> Vec<AcquireError> {
    store.is(Script::well().answer(Kind::Acquire, rows));
    round.fault();
    round.no_send_is_allowed();
    let ended = join_all(callers.iter().map(Caller::try_send)).await;
    store.asked_nobody_twice();
    round.healing(&callers[0], async { store.is_well() }).await;
    ended.into_iter().map(|ended| ended.refused()).collect()
}

async fn a_caller(round: &mut Round, store: &ScriptedStore) -> Caller {
    callers(round, store, &[CLASS]).await.remove(0)
}

async fn callers(round: &mut Round, store: &ScriptedStore, classes: &[&str]) -> Vec<Caller> {
    let mut settings = store.settings(round);
    settings.max_wait = DEADLINE;
    settings.store_outage_max = OUTAGE;
    store.callers(round, &settings, classes).await
}

#[track_caller]
fn is_doubtful(error: &AcquireError, code: Code, wrong: &str) {
    assert_eq!((error.code(), error.stage()), (code, Some(Stage::Query)), "{error}");
    assert!(error.to_string().contains(wrong), "{error}");
    assert!(error.may_have_spent() && error.lost() >= 1, "{error}");
}

/// A grant, if nothing were wrong with what comes around it.
fn spoilt(query: &Query) -> Vec<Row> {
    vec![grant(query)]
}
