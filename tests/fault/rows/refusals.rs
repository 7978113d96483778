//! A server that refuses, in Korean, with each SQLSTATE that a standby, a failover or a full server uses: at the login, and in
//! answer to the call.
//!
//! All of them are outages, since servers come back and roles change places; none is a fault of the settings. The connection
//! is closed, and whoever comes next asks the name server anew: the name may have moved to a server that does not refuse.

use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::{AcquireError, Code, Settings};
use futures_util::future::BoxFuture;
use hickory_resolver::proto::rr::RecordType;
use tokio::time::{sleep, timeout};

use super::scripted_store::ScriptedStore;
use crate::suite::{CLASS, Case, DATABASE_NAME, HEALS_SOON, How, Length, Round, nothing, says};
use crate::tools::scripted_dns::{Reply, ScriptedDns};
use crate::tools::scripted_postgres::{Act, Closing, Point, Report, Script, Step};

pub const CASES: &[Case] = &[
    case(
        "18.sqlstates_at_login",
        "the server refuses every login: read-only, shutting down, full and others",
        |round| Box::pin(at_login(round)),
    ),
    case("18.sqlstates_at_query", "the server refuses every call, for the same reasons", |round| {
        Box::pin(at_query(round))
    }),
];

const fn case(id: &'static str, name: &'static str, run: for<'a> fn(&'a mut Round) -> BoxFuture<'a, ()>) -> Case {
    Case {
        row: 18,
        id,
        name,
        how: How::ScriptedServer,
        deadline: Duration::from_secs(1),
        length: Length::Short,
        heals: HEALS_SOON,
        needs: nothing,
        own_process: None,
        run,
    }
}

/// Read-only, starting up, shutting down, no connection left, and not possible during recovery.
const SQLSTATES: [&str; 5] = ["25006", "57P03", "57P01", "53300", "0A000"];

async fn at_login(round: &mut Round) {
    let (store, dns) = (ScriptedStore::start(), named());
    let settings = settings(round, &store, &dns);
    for sqlstate in SQLSTATES {
        let caller = round.caller_of(&settings, "scripted", CLASS);
        // It leaves the closing to the client.
        let refused = Act::SendInstead(Report::fatal(sqlstate).in_korean().as_sent());
        store.is(Script::well().at(Step::Startup, refused).at(Step::Startup, Act::Silence));
        round.fault();
        round.no_send_is_allowed();
        for _ in 0..2 {
            let before = Ways::to(&store, &dns);
            let error = caller.try_send().await.refused();
            is_an_outage(&error, Stage::Startup, sqlstate);
            assert!(!error.may_have_spent(), "{error}");
            left_by_the_client(&store, sqlstate).await;
            before.one_more_since(&store, &dns);
        }
        round.healing(&caller, async { store.is_well() }).await;
        assert_eq!(caller.counters().lost, 0, "{sqlstate}");
    }
    store.end(round);
}

async fn at_query(round: &mut Round) {
    let (store, dns) = (ScriptedStore::start(), named());
    let settings = settings(round, &store, &dns);
    let caller = store.callers(round, &settings, &[CLASS]).await.remove(0);
    for sqlstate in SQLSTATES {
        // After ERROR the session could go on, and the statement is rolled back; FATAL can hit after the commit. So can a
        // pooler's word that its server is gone.
        let error = Report::error(sqlstate).in_korean();
        let lost_with_the_server = u32::from(sqlstate.starts_with("57P"));
        let fatal = Act::SendInstead(Report::fatal(sqlstate).in_korean().as_sent());
        let answers = [
            (Script::well().on_acquire(Point::Read, Act::Error(error)), lost_with_the_server),
            (Script::well().on_acquire(Point::Read, fatal).on_acquire(Point::Read, Act::Silence), 1),
        ];
        for (answer, lost) in answers {
            caller.send().await;
            let lost_before = caller.counters().lost;
            store.is(answer);
            round.fault();
            round.no_send_is_allowed();
            let before = Ways::to(&store, &dns);
            for _ in 0..2 {
                let error = caller.try_send().await.refused();
                is_an_outage(&error, Stage::Query, sqlstate);
                assert_eq!((error.lost(), error.may_have_spent()), (lost, lost > 0), "{error}");
                left_by_the_client(&store, sqlstate).await;
            }
            // The first call was on the session that it found.
            before.one_more_since(&store, &dns);
            store.asked_nobody_twice();
            round.healing(&caller, async { store.is_well() }).await;
            assert_eq!(caller.counters().lost - lost_before, u64::from(2 * lost), "{sqlstate}");
        }
    }
    store.end(round);
}

/// A name server that knows where the store is, for longer than the case takes.
fn named() -> ScriptedDns {
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &Reply::addresses(&[std::net::Ipv4Addr::LOCALHOST.into()], 60));
    dns
}

/// The store has a name, and the first failure is the judgement.
fn settings(round: &Round, store: &ScriptedStore, dns: &ScriptedDns) -> Settings {
    let port = store.server.port();
    let mut settings = round.settings(format!("postgresql://somebody@{DATABASE_NAME}:{port}/store?sslmode=disable"));
    settings.nameservers = vec![dns.address().to_string()];
    settings.max_wait = Duration::from_secs(1);
    settings.store_outage_max = Duration::ZERO;
    settings
}

#[track_caller]
fn is_an_outage(error: &AcquireError, stage: Stage, sqlstate: &str) {
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(stage)), "{error}");
    says(error, &[DATABASE_NAME, &format!("SQLSTATE {sqlstate}")]);
}

/// The server sees that the client keeps no connection after a refusal: it did not close the last one itself.
async fn left_by_the_client(store: &ScriptedStore, sqlstate: &str) {
    let last_is_closed = async {
        loop {
            match store.server.connections().pop().and_then(|last| last.closed) {
                Some((_, how)) => return how,
                None => sleep(Duration::from_millis(1)).await,
            }
        }
    };
    let how = timeout(Duration::from_secs(1), last_is_closed).await;
    let how = how.unwrap_or_else(|_| panic!("the connection is kept after {sqlstate}"));
    assert_ne!(how, Closing::Here, "closed by the server, so nothing is known of the client ({sqlstate})");
}

/// How often the store was found so far.
struct Ways {
    connections: usize,
    questions: usize,
}

impl Ways {
    fn to(store: &ScriptedStore, dns: &ScriptedDns) -> Self {
        let questions = dns.queries().iter().filter(|question| question.record_type == RecordType::A).count();
        Self { connections: store.server.connections().len(), questions }
    }

    /// One connection was opened since, after a question to the name server. (One that is not answered in time is repeated.)
    #[track_caller]
    fn one_more_since(&self, store: &ScriptedStore, dns: &ScriptedDns) {
        let now = Self::to(store, dns);
        assert_eq!(now.connections, self.connections + 1, "a new connection after each failure");
        assert!(now.questions > self.questions, "the name was not looked up again");
    }
}
