//! The scripted PostgreSQL server, judged at tokio-postgres: each misbehaviour is what it says it is, and the rest is well.

mod answers;
mod client;
mod endings;
mod silences;

use std::time::Duration;

use call_budget::{CallBudget, Settings};

use self::client::{Caller, connect, eventually, ssl_request};
use crate::tools::scripted_postgres::{Act, Closing, Kind, Point, Query, Report, Row, Script, ScriptedPostgres, Step};

#[tokio::test]
async fn left_alone_it_is_a_store_that_is_well() {
    let server = ScriptedPostgres::start();
    server.wait(Duration::from_millis(7));
    let caller = connect(&server).await.unwrap();
    caller.client.batch_execute("SET a = 'b'; SET c = 'd'").await.unwrap();
    let warm = caller.ask("", &[1], 1).await.unwrap();
    assert_eq!(warm[0].get::<_, &str>("reason"), "unknown_budget");

    let rows = caller.ask("kis", &[1, 1, 1], 77).await.unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row.get::<_, i32>("contract"), 1);
    assert_eq!(row.get::<_, i64>("nonce"), 77);
    // 18 a second from 7 ms on: the second lies past the lookahead, so it and the third get an appointment.
    assert_eq!(row.get::<_, Vec<i64>>("waits_us"), [7000]);
    assert_eq!(row.get::<_, Option<i64>>("retry_us"), Some(62_556));
    assert_eq!(row.get::<_, Option<&str>>("reason"), None);
    assert!(row.get::<_, i64>("store_us") > 0);

    let kinds: Vec<Kind> = server.queries().iter().map(|query| query.kind).collect();
    assert_eq!(kinds, [Kind::Simple, Kind::Probe, Kind::Acquire]);
    let ask = server.acquires()[0].ask.clone().unwrap();
    assert_eq!((ask.budget.as_str(), ask.class.as_str(), ask.lane), ("kis", "order", 5));
    assert_eq!((ask.costs, ask.patience_us, ask.nonce), (vec![1, 1, 1], 1_000_000, 77));
    let seen = &server.connections()[0];
    assert!(seen.parameters.contains(&("user".into(), "caller".into())), "{seen:?}");
    assert!(seen.bytes > 100 && !seen.tls && seen.closed.is_none());

    caller.leave().await;
    eventually("the goodbye is seen", || server.open_connections() == 0).await;
    assert_eq!(server.connections()[0].closed.unwrap().1, Closing::Terminated);
}

#[tokio::test]
async fn its_clock_runs_and_can_be_stepped() {
    let server = ScriptedPostgres::start();
    let caller = connect(&server).await.unwrap();
    let mut read = Vec::new();
    for step_us in [0, 0, 60_000_000, -120_000_000] {
        server.step_clock(step_us);
        read.push(caller.ask("kis", &[1], 1).await.unwrap()[0].get::<_, i64>("store_us"));
    }
    assert!((1..10_000_000).contains(&(read[1] - read[0])), "{read:?}");
    assert!((60_000_000..70_000_000).contains(&(read[2] - read[1])), "{read:?}");
    assert!((-120_000_000..-110_000_000).contains(&(read[3] - read[2])), "{read:?}");
}

#[tokio::test]
async fn a_script_reaches_the_connection_or_the_acquire_that_it_names() {
    let server = ScriptedPostgres::start();
    let refusing = Script::well().at(Step::Startup, Act::Error(Report::fatal("53300")));
    let failing = Script::well().on_acquire(Point::Read, Act::Error(Report::error("57014")));
    server.on_connection(2, refusing.clone());
    server.on_acquire(2, failing.clone());
    let first = connect(&server).await.unwrap();
    assert!(connect(&server).await.is_err());
    let third = connect(&server).await.unwrap();
    // A probe is no acquire.
    third.ask("", &[1], 1).await.unwrap();
    first.ask("kis", &[1], 1).await.unwrap();
    assert_eq!(third.refused(2).await, "57014");
    third.ask("kis", &[1], 3).await.unwrap();

    server.next_connections(1, &refusing);
    server.next_acquires(2, &failing);
    assert!(connect(&server).await.is_err());
    connect(&server).await.unwrap();
    assert_eq!(first.refused(4).await, "57014");
    assert_eq!(third.refused(5).await, "57014");
    first.ask("kis", &[1], 6).await.unwrap();

    // For everybody, also on what is open, and back.
    server.always(failing);
    assert_eq!(first.refused(7).await, "57014");
    server.always(Script::well());
    first.ask("kis", &[1], 8).await.unwrap();
}

#[tokio::test]
async fn a_password_is_asked_for_and_may_change() {
    let server = ScriptedPostgres::start();
    server.password(Some("not-a-secret"));
    connect(&server).await.unwrap();
    server.password(Some("rotated-not-a-secret"));
    let error = connect(&server).await.err().unwrap();
    assert_eq!(error.code().unwrap().code(), "28P01");
    server.password(None);
    connect(&server).await.unwrap();
}

#[tokio::test]
async fn tls_is_spoken_with_the_given_certificate_and_reported() {
    let (certificate, key) = client::self_signed();
    let server = ScriptedPostgres::start_with_tls(&certificate, &key);
    let caller = Caller::over_tls(&server, &certificate).await;
    caller.ask("kis", &[1], 1).await.unwrap();
    assert!(server.connections()[0].tls);

    // Bytes of the handshake that came early are not lost.
    server.always(Script::well().at(Step::TlsAnswered, Act::Wait(Duration::from_millis(50))));
    Caller::over_tls(&server, &certificate).await.ask("kis", &[1], 2).await.unwrap();
}

#[tokio::test]
async fn the_tls_request_is_answered_as_told() {
    let server = ScriptedPostgres::start();
    assert_eq!(ssl_request(&server, 1).await, b"N");
    for (act, answer) in [
        (Act::SendInstead(b"x".to_vec()), &b"x"[..]),
        (Act::SendInstead(b"S".to_vec()), &b"S"[..]),
        (Act::Error(Report::fatal("57P03")), &b"E"[..]),
    ] {
        server.always(Script::well().at(Step::TlsRequest, act.clone()).at(Step::TlsAnswered, Act::Silence));
        let heard = ssl_request(&server, 1).await;
        assert!(heard.starts_with(answer), "{act:?}: {heard:?}");
    }
    // After a plain `no` the same connection goes on without TLS, where the client wants to.
    let (certificate, key) = client::self_signed();
    let server = ScriptedPostgres::start_with_tls(&certificate, &key);
    assert_eq!(ssl_request(&server, 1).await, b"S");
    server.always(Script::well().at(Step::TlsRequest, Act::SendInstead(b"N".to_vec())));
    assert_eq!(ssl_request(&server, 1).await, b"N");
}

#[tokio::test]
async fn cancel_requests_are_counted() {
    let server = ScriptedPostgres::start();
    let caller = connect(&server).await.unwrap();
    client::send_cancel_request(&server).await;
    eventually("the CancelRequest is seen", || server.cancel_requests() == 1).await;
    caller.ask("kis", &[1], 1).await.unwrap();
}

#[tokio::test]
async fn the_library_takes_it_for_a_store_and_its_nonsense_for_no_grant() {
    let server = ScriptedPostgres::start();
    let mut settings = Settings::default();
    let url = format!("postgres://caller:not-a-secret@{}/store?sslmode=disable", server.address());
    (settings.enabled, settings.database_url) = (true, Some(url.as_str().into()));
    // A busy machine is not what this is about.
    settings.rtt_max = Duration::from_millis(190);
    settings.store_outage_max = Duration::ZERO;
    let budget = CallBudget::new(&settings).unwrap();
    drop(budget.acquire("kis", "order").await.unwrap());
    let two_rows = |query: &Query| vec![Row::grant(query, Duration::ZERO); 2];
    server.always(Script::well().answer(Kind::Acquire, two_rows));
    let refused = budget.acquire("kis", "order").await.unwrap_err();
    assert!(refused.may_have_spent(), "{refused}");
    server.always(Script::well());
    drop(budget.acquire("kis", "order").await.unwrap());
    assert!(server.queries().iter().any(|query| query.kind == Kind::Probe));
}
