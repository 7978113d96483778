//! Connections that end: by FIN, by RST, while idle, and with the server.

use std::error::Error;
use std::io::ErrorKind;

use tokio::net::TcpStream;

use super::client::{connect, eventually, login_up_to};
use super::silences::tags;
use crate::tools::scripted_postgres::{Act, Closing, Point, Report, Script, ScriptedPostgres, Step};

/// And what the server has said by then.
const LOGIN: [(Step, &str); 5] = [
    (Step::Accepted, ""),
    (Step::Startup, ""),
    (Step::PasswordAsked, "R"),
    (Step::PasswordRead, "R"),
    (Step::Authenticated, "RR"),
];
const POINTS: [Point; 4] = [Point::Read, Point::Described, Point::Rows, Point::Completed];

#[tokio::test]
async fn a_login_ends_with_fin_or_rst_at_the_step_it_is_told() {
    for (step, heard) in LOGIN {
        for act in [Act::Close, Act::Reset] {
            let server = ScriptedPostgres::start();
            server.password(Some("not-a-secret"));
            server.always(Script::well().at(step, act.clone()));
            let ended = login_up_to(&server, step).await;
            match act {
                Act::Reset => assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset, "{step:?}"),
                _ => assert_eq!(tags(&ended.unwrap()), heard, "{step:?}"),
            }
            eventually("it is closed", || server.open_connections() == 0).await;
            assert_eq!(server.connections()[0].closed.unwrap().1, Closing::Here);
        }
    }
}

#[tokio::test]
async fn a_query_ends_with_fin_or_rst_at_the_point_it_is_told() {
    for point in POINTS {
        for act in [Act::Close, Act::Reset] {
            let server = ScriptedPostgres::start();
            server.always(Script::well().on_acquire(point, act.clone()));
            let caller = connect(&server).await.unwrap();
            let what = format!("{act:?} at {point:?}");
            assert!(caller.ask("kis", &[1], 1).await.is_err(), "{what}");
            // The query hears only that it is over; the reason is told to the connection.
            judge(&act, &caller.end().await.unwrap_err(), &what);
        }
    }
}

#[tokio::test]
async fn sessions_that_are_idle_can_be_ended_without_a_query() {
    let server = ScriptedPostgres::start();
    for act in [Act::Close, Act::Reset] {
        let caller = connect(&server).await.unwrap();
        server.to_idle(act.clone());
        judge(&act, &caller.end().await.unwrap_err(), &format!("{act:?} while idle"));
    }
    let caller = connect(&server).await.unwrap();
    server.to_idle(Act::Error(Report::fatal("57P01")));
    assert_eq!(caller.end().await.unwrap_err().code().unwrap().code(), "57P01");
    // Whoever comes later is not meant.
    connect(&server).await.unwrap().ask("kis", &[1], 1).await.unwrap();
}

#[tokio::test]
async fn when_it_is_dropped_its_connections_are_closed_and_its_port_refuses() {
    let server = ScriptedPostgres::start();
    server.always(Script::well().on_acquire(Point::Read, Act::Silence));
    let address = server.address();
    let idle = connect(&server).await.unwrap();
    let busy = connect(&server).await.unwrap();
    let asking = tokio::spawn(async move { busy.ask("kis", &[1], 1).await });
    eventually("the query is held", || server.acquires().len() == 1).await;
    drop(server);
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(idle.end().await.is_err());
    assert!(asking.await.unwrap().is_err());
}

#[track_caller]
fn judge(act: &Act, error: &tokio_postgres::Error, what: &str) {
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    if matches!(act, Act::Reset) {
        assert_eq!(io, Some(ErrorKind::ConnectionReset), "{what}: {error:?}");
    } else {
        assert!(error.is_closed(), "{what}: {error:?}");
    }
}
