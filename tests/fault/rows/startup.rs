//! Faults while logging in: a refused password, a missing database, missing rights, and a login that is cut off.

use std::fs;
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::store::access::{self, Access};
use call_budget::store::admin;
use call_budget::store::operation::Operation;
use call_budget::{Code, Settings};
use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::suite::ground::ROLE;
use crate::suite::{CLASS, Case, FAST, HEALS_SOON, How, Length, Round, nothing, says, served};
use crate::support;
use crate::tools::door::Door;

pub const CASES: &[Case] = &[
    Case {
        id: "13.password",
        name: "the server refuses the password, and accepts it later",
        run: |round| Box::pin(password(round)),
        ..LOGIN
    },
    Case {
        id: "13.password_file",
        name: "the password was changed, and password_file is rewritten only later",
        run: |round| {
            Box::pin(rotation(round, "password_file /", |settings, file| settings.password_file = Some(file.into())))
        },
        ..LOGIN
    },
    Case {
        id: "13.password_file_in_time",
        name: "the password was changed, and password_file is rewritten before the sessions end",
        heals: None,
        run: |round| Box::pin(rotation_in_time(round)),
        ..LOGIN
    },
    Case {
        id: "13.password_command",
        name: "the password was changed, and password_command prints the new one only later",
        run: |round| {
            Box::pin(rotation(round, "password_command", |settings, file| {
                settings.password_command = Some(format!("cat '{file}'"))
            }))
        },
        ..LOGIN
    },
    Case {
        id: "13.password_command_hangs",
        name: "password_command does not end",
        how: How::Process,
        run: |round| Box::pin(password_command_hangs(round)),
        ..LOGIN
    },
    Case {
        id: "13.database",
        name: "there is no such database, and later there is",
        run: |round| Box::pin(no_database(round)),
        ..LOGIN
    },
    Case {
        id: "13.connect",
        name: "the user may not connect to the database, and then there is no schema in it",
        heals: None,
        run: |round| Box::pin(no_connect(round)),
        ..LOGIN
    },
    Case {
        id: "13.privilege",
        name: "the user has no rights on the schema",
        run: |round| Box::pin(no_rights(round)),
        ..LOGIN
    },
    Case {
        row: 31,
        id: "31.login_at_the_deadline",
        name: "logins that finish just as the call's deadline passes, 50 a round",
        how: How::Server,
        deadline: Duration::from_millis(510),
        heals: None,
        run: |round| Box::pin(login_at_the_deadline(round)),
        ..LOGIN
    },
    Case {
        row: 31,
        id: "31.login_at_max_wait",
        name: "logins that finish just as max_wait passes, 25 a round",
        how: How::Server,
        deadline: Duration::from_millis(200),
        heals: None,
        run: |round| Box::pin(login_at_max_wait(round)),
        ..LOGIN
    },
];

const LOGIN: Case = Case {
    row: 13,
    id: "",
    name: "",
    how: How::Server,
    deadline: Duration::from_secs(1),
    length: Length::Short,
    heals: HEALS_SOON,
    needs: nothing,
    own_process: None,
    run: |_| Box::pin(async {}),
};

const OLD: &str = "not-a-real-password-of-yesterday";
const NEW: &str = "not-a-real-password-of-today";

async fn password(round: &mut Round) {
    let role = role(round, OLD, true).await;
    let mut settings = settings_of(round, &role);
    settings.password = Some(NEW.into());
    let caller = round.caller(&settings).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    // Not for good: passwords rotate.
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Startup)), "{error}");
    says(&error, &["127.0.0.1", "refuses the password", &role, "28P01", "stage startup, after 0.", "check"]);

    let admin = round.database().admin().await.unwrap();
    round.healing(&caller, set_password(&admin, &role, NEW)).await;
    drop_role(round, &role).await;
}

/// Served again without a restart, as soon as the source of the password tells the new one.
async fn rotation(round: &mut Round, source_name: &str, source: impl FnOnce(&mut Settings, &str)) {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("password");
    fs::write(&file, format!("{OLD}\n")).unwrap();
    let role = role(round, OLD, true).await;
    let mut settings = settings_of(round, &role);
    source(&mut settings, file.to_str().expect("a plain path"));
    let caller = round.caller(&settings).await;
    caller.send().await;

    let admin = round.database().admin().await.unwrap();
    set_password(&admin, &role, NEW).await;
    // Who is logged in stays so.
    served(&caller).await;
    end_sessions(round, &role).await;
    round.fault();
    round.no_send_is_allowed();
    for _ in 0..2 {
        let error = caller.try_send().await.refused();
        assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Startup)), "{error}");
        says(&error, &["refuses the password", &role, "28P01", source_name, "stage startup, after 0."]);
    }

    round.healing(&caller, async { fs::write(&file, format!("{NEW}\n")).unwrap() }).await;
    drop_role(round, &role).await;
}

/// Nobody notices: the call that finds its session gone logs in with what the file says by then.
async fn rotation_in_time(round: &mut Round) {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("password");
    fs::write(&file, format!("{OLD}\n")).unwrap();
    let role = role(round, OLD, true).await;
    let mut settings = settings_of(round, &role);
    settings.password_file = Some(file.clone());
    let caller = round.caller(&settings).await;
    caller.send().await;

    let admin = round.database().admin().await.unwrap();
    set_password(&admin, &role, NEW).await;
    fs::write(&file, format!("{NEW}\n")).unwrap();
    end_sessions(round, &role).await;
    round.fault();
    served(&caller).await;
    let counters = caller.counters();
    assert_eq!((counters.store_failures, counters.lost), (0, 0), "{counters:?}");
    drop_role(round, &role).await;
}

/// It is given up at the deadline, with everything that it started.
async fn password_command_hangs(round: &mut Round) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (well, pids) = (path("well"), path("pids"));
    let role = role(round, NEW, true).await;
    let mut settings = settings_of(round, &role);
    settings.statement_timeout = Duration::from_millis(100);
    settings.password_command =
        Some(format!("test -e '{well}' || {{ sleep 60 & echo $$ $! >> '{pids}'; wait; }}; echo {NEW}"));
    let caller = round.caller(&settings).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Startup)), "{error}");
    says(&error, &["password_command", "by hand", "stage startup, after 0.6"]);

    round.healing(&caller, async { fs::write(&well, "").unwrap() }).await;
    let pids = fs::read_to_string(&pids).expect("it was started");
    let alive = || pids.split_whitespace().filter(|pid| runs(pid)).count();
    let gone = async {
        while alive() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let gone = timeout(Duration::from_secs(2), gone).await;
    assert!(gone.is_ok(), "{} processes of the command are left", alive());
    drop_role(round, &role).await;
}

/// It comes into being ready for use: one that was prepared under another name is renamed.
async fn no_database(round: &mut Round) {
    let [late, prepared] = ["late", "prepared"].map(|word| format!("{word} {}", round.application_name()));
    let budget = round.application_name().to_owned();
    let admin = round.database().admin().await.unwrap();
    admin.batch_execute(&format!("CREATE DATABASE \"{prepared}\"")).await.unwrap();
    prepare(round.database().admin_of(&prepared).await.unwrap(), &budget).await;
    let mut settings = settings(round);
    settings.dbname = Some(late.clone());
    let caller = round.caller_of(&settings, &budget, CLASS);

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::Misconfigured, Some(Stage::Startup)), "{error}");
    says(&error, &["127.0.0.1", "no database", &late, "3D000", "create it", "stage startup, after 0."]);

    let rename = format!("ALTER DATABASE \"{prepared}\" RENAME TO \"{late}\"");
    round.healing(&caller, admin.batch_execute(&rename)).await.unwrap();

    // It stands in the books of that one, which goes with the round.
    let sql = "SELECT sum(granted)::int8 FROM call_budget.call_budget_class WHERE budget = $1";
    let books = round.database().admin_of(&late).await.unwrap();
    let granted: i64 = books.query_one(sql, &[&budget]).await.unwrap().get(0);
    round.scripted_store_granted(CLASS, granted.cast_unsigned());
    admin.batch_execute(&format!("DROP DATABASE \"{late}\" WITH (FORCE)")).await.unwrap();
}

/// The schema, the callers' rights, and a budget.
async fn prepare(mut client: tokio_postgres::Client, budget: &str) {
    support::bring_up_to_date(&mut client).await;
    let operation = Operation::begin(&mut client).await.unwrap();
    access::give(&operation, ROLE, Access::Client, true).await.unwrap();
    admin::set(&operation, budget, &FAST).await.unwrap();
    admin::class_set(&operation, budget, CLASS, 0, 0).await.unwrap();
    operation.commit().await.unwrap();
}

async fn no_connect(round: &mut Round) {
    // A database of its own: what is taken from everybody here is taken from nobody else.
    let name = format!("closed {}", round.application_name());
    let admin = round.database().admin().await.unwrap();
    admin.batch_execute(&format!("CREATE DATABASE \"{name}\"")).await.unwrap();
    admin.batch_execute(&format!("REVOKE CONNECT ON DATABASE \"{name}\" FROM PUBLIC")).await.unwrap();
    let mut settings = settings(round);
    settings.dbname = Some(name.clone());
    let caller = round.caller(&settings).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::Misconfigured, Some(Stage::Startup)), "{error}");
    says(
        &error,
        &["may not connect", &name, "42501", "GRANT CONNECT", "TO \"fault_client\"", "stage startup, after 0."],
    );

    admin.batch_execute(&format!("GRANT CONNECT ON DATABASE \"{name}\" TO PUBLIC")).await.unwrap();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::Misconfigured, Some(Stage::Startup)), "{error}");
    says(&error, &["call-budget migrate", "stage startup, after 0."]);

    round.heal();
    admin.batch_execute(&format!("DROP DATABASE \"{name}\" WITH (FORCE)")).await.unwrap();
}

async fn no_rights(round: &mut Round) {
    let role = role(round, NEW, false).await;
    let mut settings = settings_of(round, &role);
    settings.password = Some(NEW.into());
    let caller = round.caller(&settings).await;
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::Misconfigured, Some(Stage::Startup)), "{error}");
    says(&error, &["42501", &format!("call-budget access {role} --as client"), "stage startup, after 0."]);

    let mut admin = round.database().admin().await.unwrap();
    round.healing(&caller, give_rights(&mut admin, &role)).await;
    drop_role(round, &role).await;
}

/// How many logins a round cuts off: twenty rounds make the thousand of the long form.
const LOGINS: usize = 50;
/// So many at a time: the machine is to log in, not to queue.
const AT_A_TIME: usize = 10;

/// A server that takes its time, so that the login ends about when the call does. Whoever is cut off leaves no session
/// behind, and its pool of one serves the next call.
async fn login_at_the_deadline(round: &mut Round) {
    const CALL: Duration = Duration::from_millis(510);
    const APART: Duration = Duration::from_millis(8);
    let mut callers = Vec::new();
    for _ in 0..AT_A_TIME {
        let door = Door::anywhere(round.database().address()).await;
        let mut settings = round.settings(round.database().url_by_way_of(door.address()));
        settings.statement_timeout = CALL - Duration::from_millis(500);
        settings.store_outage_max = Duration::ZERO;
        settings.max_wait = Duration::from_secs(1);
        settings.pool_size = 1;
        let caller = round.caller(&settings).await;
        caller.send().await;
        callers.push((caller, door));
    }

    let (mut served, mut cut_off) = (0, 0);
    // What a login takes when so many log in: a guess, which each wave betters.
    let mut login = Duration::from_millis(60);
    for _ in 0..LOGINS / AT_A_TIME {
        // From well before the deadline to just behind it.
        for ((_, door), number) in callers.iter().zip(0..) {
            door.reset();
            links(door, 0).await;
            door.delay((CALL + 2 * APART).saturating_sub(login + APART * number));
        }
        round.fault();
        let ended = join_all(callers.iter().map(|(caller, _)| caller.try_send())).await;
        round.heal();
        let mut just_served = 0;
        for ended in ended {
            match ended.result {
                Ok(_) => just_served += 1,
                Err(error) if error.stage() == Some(Stage::Query) => {}
                Err(error) => {
                    assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
                    cut_off += 1;
                }
            }
        }
        served += just_served;
        // Too many on one side: nearer to the middle.
        match just_served {
            0..3 => login += 2 * APART,
            8.. => login = login.saturating_sub(2 * APART),
            _ => {}
        }
        for (caller, door) in &callers {
            door.delay(Duration::ZERO);
            caller.send().await;
            // (The door, as the server, hears a little later of one that was cut off.)
            links(door, 1).await;
        }
    }
    assert!(served > 0 && cut_off > 0, "not around the deadline: {served} were served and {cut_off} cut off");
}

/// Waits until so many sessions are open here.
async fn links(door: &Door, wanted: usize) {
    let there = async {
        while door.links() != wanted {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = timeout(Duration::from_secs(2), there).await;
    assert!(in_time.is_ok(), "{} sessions are open, {wanted} should be", door.links());
}

/// The caller goes, and the call goes on for whoever comes next.
async fn login_at_max_wait(round: &mut Round) {
    let url = round.database().url_by_way_of(round.database().address());
    let mut settings = round.settings(url);
    settings.pool_size = 1;
    let measured = round.caller(&settings).await;
    let login = measured.try_send_within(Duration::from_secs(5)).await.took;

    let mut outcomes = [0; 2];
    for number in 0..LOGINS / 2 {
        // From an eighth of the time to twice.
        let max_wait = login * u32::try_from(1 + number % 16).unwrap() / 8;
        settings.max_wait = max_wait.min(Duration::from_millis(200));
        let caller = round.caller(&settings).await;
        round.fault();
        let ended = caller.try_send().await;
        round.heal();
        outcomes[usize::from(ended.result.is_err())] += 1;
        caller.send().await;
    }
    assert!(outcomes.iter().all(|count| *count > 0), "not around the deadline: {outcomes:?} were served and refused");
}

/// An attempt that fails is told at once.
fn settings(round: &Round) -> Settings {
    let mut settings = round.settings(round.database().url_by_way_of(round.database().address()));
    settings.max_wait = Duration::from_secs(1);
    settings.store_outage_max = Duration::ZERO;
    settings
}

/// The same for a role of the round's own; the password is for the case to add.
fn settings_of(round: &Round, role: &str) -> Settings {
    let mut settings = settings(round);
    settings.user = Some(role.into());
    settings
}

/// A role of the round's own, with a client's rights or with none.
pub(super) async fn role(round: &mut Round, password: &str, rights: bool) -> String {
    let role = format!("role of {}", round.application_name());
    let mut admin = round.database().admin().await.unwrap();
    admin.batch_execute(&format!("CREATE ROLE \"{role}\" LOGIN PASSWORD '{password}'")).await.unwrap();
    if rights {
        give_rights(&mut admin, &role).await;
    }
    role
}

async fn give_rights(admin: &mut tokio_postgres::Client, role: &str) {
    let operation = Operation::begin(admin).await.unwrap();
    access::give(&operation, role, Access::Client, true).await.unwrap();
    operation.commit().await.unwrap();
}

async fn set_password(admin: &tokio_postgres::Client, role: &str, password: &str) {
    admin.batch_execute(&format!("ALTER ROLE \"{role}\" PASSWORD '{password}'")).await.unwrap();
}

/// Ends the role's sessions, and waits until they are gone.
async fn end_sessions(round: &mut Round, role: &str) {
    let admin = round.admin().await;
    let end = "SELECT count(pg_terminate_backend(pid, 2000)) FROM pg_stat_activity WHERE usename = $1";
    let ended: i64 = admin.query_one(end, &[&role]).await.unwrap().get(0);
    assert!(ended > 0, "somebody was logged in");
}

pub(super) async fn drop_role(round: &mut Round, role: &str) {
    let admin = round.admin().await;
    admin.batch_execute(&format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\"")).await.unwrap();
}

/// Whether this process is there, and not only waits to be buried.
fn runs(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
