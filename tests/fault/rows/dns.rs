//! Faults of the name server, and addresses that are dead or move.
//!
//! The store has a name in all of these, `db.test`, and a name server of the case's own says what it stands for. (The
//! server's certificate holds for that name, so that a wrong turn would be noticed.)

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use call_budget::policy::stage::Stage;
use call_budget::{Code, Settings};
use hickory_resolver::proto::rr::RecordType;
use tokio::time::sleep;

use crate::suite::{Caller, Case, DATABASE_NAME, HEALS_SOON, How, Length, Round, nothing, says, served};
use crate::tools::door::{Door, Hole};
use crate::tools::scripted_dns::{Reply, ScriptedDns, Transport};

pub const CASES: &[Case] = &[
    Case {
        id: "11.slow",
        name: "the name server answers after 3 s",
        run: |round| Box::pin(unanswered(round, reply_to_anything().after(Duration::from_secs(3)))),
        ..NAME_SERVER
    },
    Case {
        id: "11.silent",
        name: "the name server does not answer",
        run: |round| Box::pin(unanswered(round, Reply::silence())),
        ..NAME_SERVER
    },
    Case {
        id: "11.late",
        name: "the name server answers after 0.45 s, every question anew",
        heals: None,
        run: |round| Box::pin(late(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.one_server_silent",
        name: "of two name servers the first does not answer",
        heals: None,
        run: |round| Box::pin(one_server_silent(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.no_such_name",
        name: "the name does not exist (NXDOMAIN, to be remembered for 5 min)",
        run: |round| Box::pin(refused_with(round, both(Reply::no_such_name(300)), &["there is no host", "check host"])),
        ..NAME_SERVER
    },
    Case {
        id: "11.no_address",
        name: "the name exists and has no address (NODATA, to be remembered for 5 min)",
        run: |round| Box::pin(refused_with(round, both(Reply::no_data(300)), &["has no address", "check host"])),
        ..NAME_SERVER
    },
    Case {
        id: "11.server_failure",
        name: "the name server fails (SERVFAIL)",
        run: |round| Box::pin(refused_with(round, both(Reply::server_failure()), &["name server", "nameservers"])),
        ..NAME_SERVER
    },
    Case {
        id: "11.no_such_name_aaaa_silent",
        name: "the name does not exist (NXDOMAIN for A), and AAAA is not answered",
        run: |round| {
            let replies = [Reply::no_such_name(300), Reply::silence()];
            Box::pin(refused_with(round, replies, &["there is no host", "check host"]))
        },
        ..NAME_SERVER
    },
    Case {
        id: "11.server_failure_aaaa_silent",
        name: "the name server fails (SERVFAIL for A), and AAAA is not answered",
        run: |round| {
            let replies = [Reply::server_failure(), Reply::silence()];
            Box::pin(refused_with(round, replies, &["name server", "nameservers"]))
        },
        ..NAME_SERVER
    },
    Case {
        id: "11.truncated",
        name: "the answer is too long for UDP and comes over TCP",
        heals: None,
        run: |round| Box::pin(truncated(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.truncated_no_tcp",
        name: "the answer is too long for UDP, and TCP is refused",
        run: |round| Box::pin(truncated_no_tcp(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.wrong_address",
        name: "the name stands for an address where nobody listens (to be remembered for 1 min)",
        run: |round| Box::pin(wrong_address(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.address_changed",
        name: "the name moves to another address, and the old one goes on serving",
        how: How::Server,
        length: Length::Long,
        heals: None,
        run: |round| Box::pin(address_changed(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.address_changed_dead",
        name: "the name moves to another address within its time to live, and the old one dies",
        how: How::Server,
        run: |round| Box::pin(address_changed_dead(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.first_address_refuses",
        name: "of two addresses the first refuses",
        how: How::Server,
        heals: None,
        run: |round| Box::pin(first_address_refuses(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.first_address_silent",
        name: "of two addresses the first does not answer a SYN",
        how: How::Server,
        heals: None,
        run: |round| Box::pin(first_address_silent(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.aaaa_silent",
        name: "A is answered, AAAA is not",
        heals: None,
        run: |round| Box::pin(aaaa_silent(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.a_silent",
        name: "AAAA is answered, A is not",
        heals: None,
        needs: ipv6,
        run: |round| Box::pin(ipv6_only(round, Reply::silence())),
        ..NAME_SERVER
    },
    Case {
        id: "11.a_fails_aaaa_answers",
        name: "while connected over IPv4 the name server fails for A and answers AAAA",
        how: How::Server,
        length: Length::Long,
        heals: None,
        needs: ipv6,
        run: |round| Box::pin(a_fails_aaaa_answers(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.ipv4_refused_ipv6_late",
        name: "the IPv4 address refuses, and the IPv6 address is answered 50 ms later",
        heals: None,
        needs: ipv6,
        run: |round| Box::pin(ipv4_refused_ipv6_late(round)),
        ..NAME_SERVER
    },
    Case {
        id: "11.ipv6_only",
        name: "the name has an IPv6 address only",
        heals: None,
        needs: ipv6,
        run: |round| Box::pin(ipv6_only(round, Reply::no_data(60))),
        ..NAME_SERVER
    },
    Case {
        id: "11.machine_files",
        name: "the name stands in /etc/hosts, or is short and needs the search domain",
        heals: None,
        needs: own_files,
        own_process: Some(&["unshare", "--mount", "sh", "-c", OWN_FILES]),
        run: |round| Box::pin(machine_files(round)),
        ..NAME_SERVER
    },
];

/// What the cases have in common.
const NAME_SERVER: Case = Case {
    row: 11,
    id: "",
    name: "",
    how: How::ScriptedServer,
    deadline: Duration::from_secs(1),
    length: Length::Short,
    heals: HEALS_SOON,
    needs: nothing,
    own_process: None,
    run: |_| Box::pin(async {}),
};

/// Longer than any case.
const LONG_TTL_S: u32 = 60;
/// The shortest that counts: sooner than once a second nobody asks.
const SHORT_TTL_S: u32 = 1;
/// What the name stands for where two addresses are needed. (All of 127.0.0.0/8 is loopback.)
const ELSEWHERE: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];

/// The name server says nothing within the deadline of a call.
async fn unanswered(round: &mut Round, reply: Reply) {
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &reply);
    let [caller, one_attempt] = callers(round, &dns).await;

    round.fault();
    round.no_send_is_allowed();
    let error = one_attempt.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Dns)), "{error}");
    says(&error, &["no name server answered", DATABASE_NAME, "stage dns, after 0.8", "nameservers"]);
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::WaitExceeded, Some(Stage::Dns)), "{error}");

    let answers = async { dns.set_both(DATABASE_NAME, &reply_to_anything()) };
    round.healing(&caller, answers).await;
    only_real_names_were_asked(&dns);
}

/// A question that waits is not given up for the next: else a slow server would never be heard.
async fn late(round: &mut Round) {
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &reply_to_anything().after(Duration::from_millis(450)));
    let [caller, _] = callers(round, &dns).await;
    round.fault();
    served(&caller).await;
}

async fn one_server_silent(round: &mut Round) {
    let [silent, well] = [Ipv4Addr::LOCALHOST, ELSEWHERE[0]].map(IpAddr::from);
    let dns = ScriptedDns::start_on(&[silent, well]);
    dns.set_both(DATABASE_NAME, &reply_to_anything());
    dns.set_server(silent, Some(Reply::silence()));
    let [caller, _] = callers(round, &dns).await;
    round.fault();
    served(&caller).await;
    assert!(dns.queries().iter().any(|question| question.server == silent), "the silent one was asked too");
}

/// The name server says no (to A, to AAAA), and that is neither waited for nor remembered.
async fn refused_with(round: &mut Round, [a, aaaa]: [Reply; 2], words: &[&str]) {
    let dns = ScriptedDns::start();
    dns.set(DATABASE_NAME, RecordType::A, a);
    dns.set(DATABASE_NAME, RecordType::AAAA, aaaa);
    let [caller, one_attempt] = callers(round, &dns).await;

    round.fault();
    round.no_send_is_allowed();
    let ended = one_attempt.try_send().await;
    assert!(ended.took < Duration::from_millis(500), "a no is not waited for: {:?}", ended.took);
    let error = ended.refused();
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Dns)), "{error}");
    says(&error, words);
    says(&error, &[DATABASE_NAME, "stage dns, after 0."]);

    let exists = async { dns.set_both(DATABASE_NAME, &reply_to_anything()) };
    round.healing(&caller, exists).await;
    only_real_names_were_asked(&dns);
}

fn both(reply: Reply) -> [Reply; 2] {
    [reply.clone(), reply]
}

async fn truncated(round: &mut Round) {
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &reply_to_anything().truncated());
    let [caller, _] = callers(round, &dns).await;
    round.fault();
    served(&caller).await;
    assert!(dns.queries().iter().any(|question| question.transport == Transport::Tcp), "it was asked over TCP");
}

async fn truncated_no_tcp(round: &mut Round) {
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &reply_to_anything().truncated());
    dns.tcp(false);
    let [caller, one_attempt] = callers(round, &dns).await;

    round.fault();
    round.no_send_is_allowed();
    let error = one_attempt.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Dns)), "{error}");
    says(&error, &[DATABASE_NAME, "name server", "stage dns, after 0."]);

    round.healing(&caller, async { dns.tcp(true) }).await;
}

async fn wrong_address(round: &mut Round) {
    let wrong = ELSEWHERE[0];
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &Reply::addresses(&[wrong.into()], LONG_TTL_S));
    let [caller, one_attempt] = callers(round, &dns).await;

    round.fault();
    round.no_send_is_allowed();
    let error = one_attempt.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Connect)), "{error}");
    says(&error, &[DATABASE_NAME, &wrong.to_string(), "refused", "stage connect, after 0."]);

    let right = async { dns.set_both(DATABASE_NAME, &reply_to_anything()) };
    round.healing(&caller, right).await;
}

/// Nothing fails, and still the old address is left: a failover by DNS must not wait for the old primary to die.
async fn address_changed(round: &mut Round) {
    let [old, new] = doors(round.database().address()).await;
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &Reply::addresses(&[old.address().ip()], SHORT_TTL_S));
    let url = round.database().url_by_name(DATABASE_NAME, old.address().port());
    let caller = round.caller(&asking(&dns, round.settings(url))).await;
    caller.send().await;
    assert_eq!((old.links(), new.links()), (1, 0));

    round.fault();
    dns.set_both(DATABASE_NAME, &Reply::addresses(&[new.address().ip()], SHORT_TTL_S));
    let moved = Instant::now();
    let bound = Duration::from_secs(u64::from(SHORT_TTL_S) + 2);
    while old.links() > 0 {
        assert!(moved.elapsed() < bound, "still at the old address after {:?}", moved.elapsed());
        served(&caller).await;
        sleep(Duration::from_millis(20)).await;
    }
    served(&caller).await;
    assert_eq!((old.links(), new.links()), (0, 1));
}

async fn address_changed_dead(round: &mut Round) {
    let [old, new] = doors(round.database().address()).await;
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &Reply::addresses(&[old.address().ip()], LONG_TTL_S));
    let url = round.database().url_by_name(DATABASE_NAME, old.address().port());
    let caller = round.caller(&asking(&dns, round.settings(url))).await;
    caller.send().await;

    drop(old);
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!(error.stage(), Some(Stage::Connect), "{error}");
    let moved = async { dns.set_both(DATABASE_NAME, &Reply::addresses(&[new.address().ip()], LONG_TTL_S)) };
    round.healing(&caller, moved).await;
}

async fn first_address_refuses(round: &mut Round) {
    let [dead, alive] = doors(round.database().address()).await;
    let (dead, _) = (dead.address(), drop(dead));
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &Reply::addresses(&[dead.ip(), alive.address().ip()], LONG_TTL_S));
    let url = round.database().url_by_name(DATABASE_NAME, dead.port());
    let fastest = newcomers(round, &asking(&dns, round.settings(url))).await;
    assert_eq!(alive.links(), NEWCOMERS);
    assert!(fastest < Duration::from_millis(250), "the other is not tried at once: {fastest:?}");
}

const NEWCOMERS: usize = 3;

/// How long a caller's first call takes who knows nothing yet, in a process that has used TLS before. (The fastest of some:
/// the machine may be busy.)
async fn newcomers(round: &mut Round, settings: &Settings) -> Duration {
    let url = round.database().url_by_way_of(round.database().address());
    let settings_of_another = round.settings(url);
    round.caller(&settings_of_another).await.send().await;
    round.fault();
    let mut took = Vec::new();
    for _ in 0..NEWCOMERS {
        let caller = round.caller(settings).await;
        took.push(served(&caller).await);
    }
    took.into_iter().min().expect("there were some")
}

async fn first_address_silent(round: &mut Round) {
    let alive = Door::open((ELSEWHERE[1], 0).into(), round.database().address()).await;
    let hole = Hole::dig((ELSEWHERE[0], alive.address().port()).into()).await;
    let dns = ScriptedDns::start();
    dns.set_both(DATABASE_NAME, &Reply::addresses(&[hole.address().ip(), alive.address().ip()], LONG_TTL_S));
    let url = round.database().url_by_name(DATABASE_NAME, hole.address().port());
    let settings = asking(&dns, round.settings(url));
    let fastest = newcomers(round, &settings).await;
    assert!(fastest < Duration::from_millis(600), "the other is tried too late: {fastest:?}");
    let caller = round.caller(&settings).await;
    served(&caller).await;

    // From now on the one that served comes first. (The fastest of five: the machine may be busy.)
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        alive.reset();
        while alive.links() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        fastest = fastest.min(served(&caller).await);
    }
    assert!(fastest < Duration::from_millis(250), "the dead address is tried first each time: {fastest:?}");
}

async fn aaaa_silent(round: &mut Round) {
    let dns = ScriptedDns::start();
    dns.set(DATABASE_NAME, RecordType::A, reply_to_anything());
    dns.set(DATABASE_NAME, RecordType::AAAA, Reply::silence());
    let [caller, _] = callers(round, &dns).await;
    round.fault();
    let took = served(&caller).await;
    assert!(took < Duration::from_millis(500), "AAAA was waited for: {took:?}");
}

/// That IPv4 could not be asked for does not mean that there is none: the session stays where it is.
async fn a_fails_aaaa_answers(round: &mut Round) {
    let v4 = Door::open((ELSEWHERE[0], 0).into(), round.database().address()).await;
    let v6 = Door::open((Ipv6Addr::LOCALHOST, v4.address().port()).into(), round.database().address()).await;
    let dns = ScriptedDns::start();
    dns.set(DATABASE_NAME, RecordType::A, Reply::addresses(&[v4.address().ip()], SHORT_TTL_S));
    dns.set(DATABASE_NAME, RecordType::AAAA, Reply::no_data(SHORT_TTL_S));
    let url = round.database().url_by_name(DATABASE_NAME, v4.address().port());
    let caller = round.caller(&asking(&dns, round.settings(url))).await;
    caller.send().await;

    round.fault();
    dns.set(DATABASE_NAME, RecordType::A, Reply::server_failure());
    dns.set(DATABASE_NAME, RecordType::AAAA, Reply::addresses(&[Ipv6Addr::LOCALHOST.into()], SHORT_TTL_S));
    // The third question comes when the answers to the first two have had their effect.
    let (before, changed) = (dns.queries().len(), Instant::now());
    let asked = || dns.queries().split_off(before).iter().filter(|one| one.record_type == RecordType::AAAA).count();
    let bound = 4 * Duration::from_secs(SHORT_TTL_S.into());
    while asked() < 3 {
        assert!(changed.elapsed() < bound, "{} questions in {bound:?}: it does not look again", asked());
        served(&caller).await;
        sleep(Duration::from_millis(20)).await;
    }
    served(&caller).await;
    assert_eq!((v4.came(), v4.links(), v6.came()), (1, 1, 0), "the session over IPv4 was given up");
}

/// IPv4 and IPv6 alike, by name and by address.
async fn ipv6_only(round: &mut Round, to_ipv4: Reply) {
    let door = Door::open((Ipv6Addr::LOCALHOST, 0).into(), round.database().address()).await;
    let dns = ScriptedDns::start();
    dns.set(DATABASE_NAME, RecordType::A, to_ipv4);
    dns.set(DATABASE_NAME, RecordType::AAAA, Reply::addresses(&[Ipv6Addr::LOCALHOST.into()], LONG_TTL_S));
    for host in [DATABASE_NAME, "::1"] {
        let url = round.database().url_by_name(host, door.address().port());
        let caller = round.caller(&asking(&dns, round.settings(url))).await;
        round.fault();
        served(&caller).await;
        round.heal();
    }
    assert_eq!(door.came(), 2);
}

/// IPv6 is not waited for, until all that is known has failed.
async fn ipv4_refused_ipv6_late(round: &mut Round) {
    let door = Door::open((Ipv6Addr::LOCALHOST, 0).into(), round.database().address()).await;
    let dns = ScriptedDns::start();
    dns.set(DATABASE_NAME, RecordType::A, Reply::addresses(&[[127, 0, 0, 99].into()], LONG_TTL_S));
    let v6 = Reply::addresses(&[Ipv6Addr::LOCALHOST.into()], LONG_TTL_S);
    dns.set(DATABASE_NAME, RecordType::AAAA, v6.after(Duration::from_millis(50)));
    let url = round.database().url_by_name(DATABASE_NAME, door.address().port());
    let mut settings = asking(&dns, round.settings(url));
    settings.store_outage_max = Duration::from_secs(2);
    let caller = round.caller(&settings).await;
    round.fault();
    served(&caller).await;
    round.heal();
    assert_eq!(door.came(), 1);
}

/// In a mount namespace of its own, where [`OWN_FILES`] has put other files in place of the machine's.
async fn machine_files(round: &mut Round) {
    let dns = ScriptedDns::start();
    dns.set_both("short.search.test", &reply_to_anything());
    for (host, asked) in [("in-hosts.test", false), ("short", true)] {
        // The certificate holds for neither.
        let url = round.database().url_by_name(host, round.database().address().port());
        let url = url.replace("sslmode=verify-full", "sslmode=verify-ca");
        let caller = round.caller(&asking(&dns, round.settings(url))).await;
        round.fault();
        served(&caller).await;
        round.heal();
        assert_eq!(!dns.queries().is_empty(), asked, "{host}: {:?}", dns.queries());
    }
}

/// Two callers who ask this name server: one with patience for several attempts, and one who is told at once why an attempt
/// failed, which ends by itself after 0.8 s.
async fn callers(round: &mut Round, dns: &ScriptedDns) -> [Caller; 2] {
    let url = round.database().url_by_name(DATABASE_NAME, round.database().address().port());
    let patient = asking(dns, round.settings(url));
    let mut one_attempt = patient.clone();
    one_attempt.statement_timeout = Duration::from_millis(300);
    one_attempt.store_outage_max = Duration::ZERO;
    [round.caller(&patient).await, round.caller(&one_attempt).await]
}

fn asking(dns: &ScriptedDns, settings: Settings) -> Settings {
    let mut settings = settings;
    settings.nameservers = dns.addresses().iter().map(ToString::to_string).collect();
    settings.max_wait = Duration::from_secs(1);
    settings
}

/// Where the database is, for as long as it says, whichever type is asked for.
fn reply_to_anything() -> Reply {
    Reply::addresses(&[Ipv4Addr::LOCALHOST.into()], LONG_TTL_S)
}

/// Two addresses of one server, at the same port.
async fn doors(server: SocketAddr) -> [Door; 2] {
    let first = Door::open((ELSEWHERE[0], 0).into(), server).await;
    let second = Door::open((ELSEWHERE[1], first.address().port()).into(), server).await;
    [first, second]
}

/// With the machine's search domains, if there are any.
#[track_caller]
fn only_real_names_were_asked(dns: &ScriptedDns) {
    let strange = dns.queries().into_iter().find(|question| !question.name.starts_with(DATABASE_NAME));
    assert!(strange.is_none(), "{strange:?}");
}

fn ipv6() -> Result<(), String> {
    std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0))
        .map(drop)
        .map_err(|error| format!("no IPv6 on loopback: {error}"))
}

/// Other files in place of the machine's, for the program that is started and for nobody else. What they were made from is
/// gone at once: a mount needs no name.
const OWN_FILES: &str = r#"
    own=$(mktemp -d) &&
    echo '127.0.0.1 localhost in-hosts.test' > "$own/hosts" && mount --bind "$own/hosts" /etc/hosts &&
    printf 'search search.test\nnameserver 127.0.0.1\n' > "$own/resolv.conf" && mount --bind "$own/resolv.conf" /etc/resolv.conf &&
    rm -r "$own" && exec "$0" "$@""#;

fn own_files() -> Result<(), String> {
    for file in ["/etc/hosts", "/etc/resolv.conf"] {
        fs::metadata(file).map_err(|error| format!("{file}, for another to be put in its place: {error}"))?;
    }
    let tried = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", OWN_FILES, "true"])
        .output()
        .map_err(|error| format!("no unshare found here (util-linux): {error}"))?;
    let words = String::from_utf8_lossy(&tried.stderr).trim().replace('\n', "; ");
    tried
        .status
        .success()
        .then_some(())
        .ok_or(format!("files cannot be put in place of others (this needs root): {words}"))
}
