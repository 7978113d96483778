//! A standby is promoted, with its old primary dead or still alive.
//!
//! The primary stands at 127.0.0.2 and its standby at 127.0.0.3, on one port; a name server tells which of them the store's
//! name stands for. Before each fault the standby is cut off, so that the promotion forgets commits: the books of both
//! are added up, from that moment on. Fencing the old writer is the database's job: until everybody has left it the limit
//! can double.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::{Code, Settings};
use hickory_resolver::proto::rr::RecordType;
use tokio::time::{Instant, sleep, timeout};

use super::server::{Books, assert_says, books, on};
use crate::suite::judge::Spread;
use crate::suite::vendor::now_us;
use crate::suite::{CLASS, Caller, Case, Database, HEALS_SOON, How, Length, Member, Round};
use crate::tools::kept::within;
use crate::tools::processes::kill;
use crate::tools::psql::ask;
use crate::tools::scripted_dns::{Reply, ScriptedDns};
use crate::tools::standby::{PRIMARY, Pair, Replication, STANDBY};

pub const CASES: &[Case] = &[
    Case {
        row: 17,
        id: "17.primary_dead",
        name: "the primary is killed, its standby promoted, and the name moved",
        run: |round| Box::pin(primary_dead(round)),
        ..FAILOVER
    },
    Case {
        row: 17,
        id: "17.primary_alive",
        name: "a standby is promoted and the name moved, while the old primary still serves",
        // How long everybody takes to leave it.
        heals: Some(Spread { median: LEFT_WITHIN, worst: LEFT_WITHIN }),
        run: |round| Box::pin(primary_alive(round)),
        ..FAILOVER
    },
    Case {
        row: 17,
        id: "17.older_timeline",
        name: "after the promotion the name leads back to the old primary",
        run: |round| Box::pin(older_timeline(round)),
        ..FAILOVER
    },
    Case {
        row: 17,
        id: "17.several_hosts",
        name: "both servers are named in the settings, the primary is killed and the standby promoted",
        run: |round| Box::pin(several_hosts(round)),
        ..FAILOVER
    },
];

const FAILOVER: Case = Case {
    row: 17,
    id: "",
    name: "",
    how: How::Server,
    deadline: Duration::from_secs(1),
    length: Length::Long,
    heals: HEALS_SOON,
    needs: two_addresses,
    own_process: None,
    run: |_| Box::pin(async {}),
};

const NAME: &str = "store.test";
const TTL_S: u32 = 1;
/// The time to live, and 2 s.
const LEFT_WITHIN: Duration = Duration::from_secs(TTL_S as u64 + 2);
const PATIENCE: Duration = Duration::from_secs(10);

async fn primary_dead(round: &mut Round) {
    let mut failover = Failover::prepare(round).await;
    let settings = failover.by_name(round);
    let callers = callers(round, &settings).await;
    let mut members = members(round, &settings).await;
    let caller = &callers[0];
    let before = failover.cut_off(round).await;
    for _ in 0..3 {
        caller.send().await;
    }
    on(&failover.pair, |pair| kill(&mut pair.primary)).await;

    round.fault();
    round.no_send_is_allowed();
    for caller in &callers {
        let error = caller.try_send().await.refused();
        assert_says(&error, Code::StoreUnavailable, Stage::Connect, &[NAME, &PRIMARY.to_string(), "refused"]);
    }
    round.healing(caller, failover.promote_and_move()).await;
    let healed_us = now_us();
    for caller in &callers {
        caller.send().await;
    }
    for member in &mut members {
        member.call(PATIENCE, |call| call.sent && call.ended_us > healed_us).await;
    }
    stop(round, members).await;
    on(&failover.pair, |pair| pair.primary.resume().unwrap()).await;
    failover.settle(round, before).await;
}

async fn primary_alive(round: &mut Round) {
    let mut failover = Failover::prepare(round).await;
    let settings = failover.by_name(round);
    let callers = callers(round, &settings).await;
    let members = members(round, &settings).await;
    let before = failover.cut_off(round).await;

    round.fault();
    failover.promote_and_move().await;
    let moved = Instant::now();
    let left = async {
        while failover.sessions_at_the_old_one(round.application_name()).await > 0 {
            // All of them busy, as nobody rests.
            for caller in &callers {
                caller.try_send().await.result.expect("one server or the other grants");
            }
        }
        moved.elapsed()
    };
    let left = timeout(PATIENCE, left).await.expect("everybody leaves the old one");
    round.heal();
    round.recovered_in(left);
    let at_the_old_one = books(&failover.old, &round.budget().await).await;
    for caller in &callers {
        caller.send().await;
    }
    for member in members {
        let calls = member.calls();
        assert!(calls.iter().all(|call| call.error.is_none()), "{calls:?}");
        round.account(member.stop().await);
    }
    assert_eq!(books(&failover.old, &round.budget().await).await.granted, at_the_old_one.granted, "nobody is left");
    failover.settle(round, before).await;
    round.note(format!(
        "every process had left the old primary {left:.1?} after the name had moved (TTL {TTL_S} s); until then both granted"
    ));
}

async fn older_timeline(round: &mut Round) {
    let mut failover = Failover::prepare(round).await;
    let settings = failover.by_name(round);
    let caller = round.caller(&settings).await;
    caller.send().await;
    let before = failover.cut_off(round).await;
    failover.promote_and_move().await;
    failover.until_left(round.application_name()).await;
    caller.send().await;

    failover.name_stands_for(PRIMARY);
    let refused = async {
        loop {
            if let Err(error) = caller.try_send().await.result {
                return error;
            }
        }
    };
    // Until then it is connected to the new one.
    let error = timeout(PATIENCE, refused).await.expect("it follows the name");
    assert_says(&error, Code::StoreUnavailable, Stage::Query, &["timeline 1, older than 2"]);
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_says(&error, Code::StoreUnavailable, Stage::Query, &["timeline 1, older than 2"]);
    assert!(error.may_have_spent(), "the old one has counted it: {error}");
    round.healing(&caller, async { failover.name_stands_for(STANDBY) }).await;
    failover.settle(round, before).await;
}

async fn several_hosts(round: &mut Round) {
    let mut failover = Failover::prepare(round).await;
    let mut settings = failover.settings(round, &PRIMARY.to_string());
    // The standby first: it takes connections and logins, and no writes.
    settings.host = Some(format!("{STANDBY},{PRIMARY}"));
    let caller = round.caller(&settings).await;
    caller.send().await;
    let at_the_standby = failover.sessions(&failover.new, round.application_name()).await;
    assert_eq!(at_the_standby, 0, "it was left for the primary");
    let before = failover.cut_off(round).await;
    for _ in 0..3 {
        caller.send().await;
    }
    on(&failover.pair, |pair| kill(&mut pair.primary)).await;

    round.fault();
    round.no_send_is_allowed();
    for _ in 0..2 {
        let error = caller.try_send().await.refused();
        let words = [&*STANDBY.to_string(), "is a standby", "wait for its promotion"];
        assert_says(&error, Code::StoreUnavailable, Stage::Startup, &words);
        assert!(!error.may_have_spent(), "{error}");
    }
    round.healing(&caller, failover.promote_and_move()).await;
    on(&failover.pair, |pair| pair.primary.resume().unwrap()).await;
    // Back again, and a server of the past: whoever knows the newer timeline does not use it.
    caller.send().await;
    failover.settle(round, before).await;
}

/// A pair, and the name that stands for one of them.
struct Failover {
    pair: Arc<Mutex<Pair>>,
    dns: Mutex<ScriptedDns>,
    port: u16,
    old: Arc<Database>,
    new: Arc<Database>,
}

impl Failover {
    async fn prepare(round: &mut Round) -> Self {
        let start = || Pair::start(Replication::Asynchronous, &[]).unwrap_or_else(|error| panic!("{error}"));
        let pair = tokio::task::spawn_blocking(start).await.expect("a primary and its standby");
        let old = Arc::new(Database::on(&pair.primary).await);
        let new = Arc::new(old.copied_to(&pair.standby));
        let port = pair.port();
        let pair = Arc::new(Mutex::new(pair));
        round.keep(Arc::clone(&pair));
        round.judge_at(Arc::clone(&old)).await;
        let failover = Self { pair, dns: Mutex::new(ScriptedDns::start()), port, old, new };
        failover.name_stands_for(PRIMARY);
        round.budget().await;
        round.prepared().await;
        failover
    }

    fn name_stands_for(&self, address: Ipv4Addr) {
        let dns = self.dns.lock().unwrap();
        dns.set(NAME, RecordType::A, Reply::addresses(&[IpAddr::V4(address)], TTL_S));
        dns.set(NAME, RecordType::AAAA, Reply::no_data(TTL_S));
    }

    fn settings(&self, round: &Round, host: &str) -> Settings {
        let mut settings = round.settings(self.old.url_by_name(host, self.port));
        settings.max_wait = Duration::from_secs(1);
        settings.store_outage_max = Duration::from_millis(300);
        settings
    }

    fn by_name(&self, round: &Round) -> Settings {
        let mut settings = self.settings(round, NAME);
        settings.nameservers = vec![self.dns.lock().unwrap().address().to_string()];
        settings
    }

    /// From now on the standby hears nothing. What had been granted by then is on both.
    async fn cut_off(&self, round: &mut Round) -> Books {
        on(&self.pair, |pair| {
            pair.wait_until_in_step();
            ask(&pair.standby, "ALTER SYSTEM SET primary_conninfo = ''");
            ask(&pair.standby, "SELECT pg_reload_conf()");
            within(PATIENCE, "the standby has taken in what it heard", || {
                let all = "SELECT (SELECT count(*) = 0 FROM pg_stat_wal_receiver)
                              AND pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()";
                ask(&pair.standby, all) == "t"
            });
        })
        .await;
        books(&self.new, &round.budget().await).await
    }

    async fn promote_and_move(&mut self) {
        on(&self.pair, |pair| pair.promote()).await;
        self.name_stands_for(STANDBY);
    }

    async fn sessions_at_the_old_one(&self, name: &str) -> i64 {
        self.sessions(&self.old, name).await
    }

    async fn sessions(&self, database: &Database, name: &str) -> i64 {
        let client = database.admin().await.unwrap();
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        client.query_one(sql, &[&name]).await.unwrap().get(0)
    }

    async fn until_left(&self, name: &str) {
        let left = async {
            while self.sessions_at_the_old_one(name).await > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, left).await.expect("everybody leaves the old one");
    }

    /// From now on the books are read at the new primary, with what the old one granted after the standby had been cut
    /// off: the callers know of it, the new one does not.
    async fn settle(&self, round: &mut Round, before: Books) {
        let budget = round.budget().await;
        assert_eq!(self.sessions_at_the_old_one(round.application_name()).await, 0, "nobody is left at the old one");
        let only_there = books(&self.old, &budget).await.granted - before.granted;
        round.judge_at(Arc::clone(&self.new)).await;
        round.scripted_store_granted(CLASS, only_there);
        let fences = books(&self.new, &budget).await.fences;
        assert_eq!(fences, before.fences + 1, "the new primary was fenced on its first call");
        round.note(format!("{only_there} grants of the old primary are unknown to the new one, which was fenced"));
    }
}

async fn callers(round: &mut Round, settings: &Settings) -> [Caller; 2] {
    let callers = [round.caller(settings).await, round.caller(settings).await];
    for caller in &callers {
        caller.send().await;
    }
    callers
}

/// Two more, each a process of its own.
async fn members(round: &mut Round, settings: &Settings) -> [Member; 2] {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut members = [round.member(&[], settings, PAUSE).await, round.member(&[], settings, PAUSE).await];
    for member in &mut members {
        member.call(PATIENCE, |call| call.sent).await;
    }
    members
}

async fn stop(round: &mut Round, members: [Member; 2]) {
    for member in members {
        round.account(member.stop().await);
    }
}

fn two_addresses() -> Result<(), String> {
    for address in [PRIMARY, STANDBY] {
        TcpListener::bind((address, 0)).map_err(|error| format!("no server can listen at {address}: {error}"))?;
    }
    Ok(())
}
