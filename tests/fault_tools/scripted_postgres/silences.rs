//! Silence, slowness, and how far an exchange had come by then.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::pin;
use tokio::time::timeout;

use super::client::{connect, eventually, ssl_request};
use crate::tools::scripted_postgres::{Act, Closing, Kind, Point, Script, ScriptedPostgres, Step};

/// Long enough to see that nothing comes, and that something would have come.
const QUIET: Duration = Duration::from_millis(150);

#[tokio::test]
async fn silence_at_each_step_of_a_login_holds_until_released() {
    for step in [Step::Accepted, Step::Startup, Step::PasswordAsked, Step::PasswordRead, Step::Authenticated] {
        let server = ScriptedPostgres::start();
        server.password(Some("not-a-secret"));
        server.always(Script::well().at(step, Act::Silence));
        let login = connect(&server);
        pin!(login);
        assert!(timeout(QUIET, &mut login).await.is_err(), "{step:?} was not silent");
        assert_eq!(server.open_connections(), 1, "{step:?}");
        server.always(Script::well());
        server.release();
        login.await.unwrap().ask("kis", &[1], 1).await.unwrap();
    }
}

#[tokio::test]
async fn silence_around_the_tls_answer_is_before_or_after_its_byte() {
    let server = ScriptedPostgres::start();
    server.always(Script::well().at(Step::TlsRequest, Act::Silence));
    assert_eq!(ssl_request(&server, 0).await, b"");
    let yes = Act::SendInstead(b"S".to_vec());
    server.always(Script::well().at(Step::TlsRequest, yes).at(Step::TlsAnswered, Act::Silence));
    assert_eq!(ssl_request(&server, 1).await, b"S");
    eventually("both are gone", || server.open_connections() == 0).await;
    assert_eq!(server.connections()[1].closed.unwrap().1, Closing::Left);
}

#[tokio::test]
async fn silence_within_an_exchange_comes_after_what_its_point_says() {
    for (point, heard) in
        [(Point::Read, ""), (Point::Described, "12tT"), (Point::Rows, "12tTD"), (Point::Completed, "12tTDC")]
    {
        let server = ScriptedPostgres::start();
        let caller = connect(&server).await.unwrap();
        server.always(Script::well().on_acquire(point, Act::Silence));
        let before = caller.heard().len();
        let acquire = caller.ask("kis", &[1], 1);
        pin!(acquire);
        assert!(timeout(QUIET, &mut acquire).await.is_err(), "{point:?} was not silent");
        eventually("what comes before the silence is heard", || tags(&caller.heard()[before..]) == heard).await;
        server.release();
        assert_eq!(acquire.await.unwrap().len(), 1, "{point:?}");
        assert!(tags(&caller.heard()).ends_with("12tTDCZ"), "{point:?}");
    }
}

#[tokio::test]
async fn a_simple_query_and_a_probe_can_be_silent_too() {
    let server = ScriptedPostgres::start();
    let caller = connect(&server).await.unwrap();
    let silent_at_the_end = |kind| Script::well().at(Step::Query(kind, Point::Completed), Act::Silence);
    server.always(silent_at_the_end(Kind::Simple));
    caller.ask("", &[1], 1).await.unwrap();
    assert!(silent(caller.client.batch_execute("SET a = 'b'")).await);
    server.always(silent_at_the_end(Kind::Probe));
    server.release();
    caller.client.batch_execute("SET a = 'b'").await.unwrap();
    assert!(silent(caller.ask("", &[1], 1)).await);
    server.release();
    caller.ask("kis", &[1], 1).await.unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_during_a_silence_is_seen_to_leave() {
    let server = ScriptedPostgres::start();
    server.always(Script::well().on_acquire(Point::Read, Act::Silence));
    let caller = connect(&server).await.unwrap();
    assert!(silent(caller.ask("kis", &[1], 1)).await);
    drop(caller);
    // The connection's task goes on to wait for its answer; a new one takes nothing from it.
    connect(&server).await.unwrap().leave().await;
    eventually("the second has left", || server.connections().len() == 2 && server.open_connections() == 1).await;
    assert_eq!(server.max_open_connections(), 2);
    server.release();
    eventually("the first has its answer and leaves", || server.open_connections() == 0).await;
    assert_eq!(server.connections()[0].closed.unwrap().1, Closing::Terminated);
}

#[tokio::test]
async fn a_wait_is_as_long_as_it_says() {
    let server = ScriptedPostgres::start();
    server.always(Script::well().on_acquire(Point::Rows, Act::Wait(Duration::from_millis(120))));
    let caller = connect(&server).await.unwrap();
    let asked = Instant::now();
    caller.ask("kis", &[1], 1).await.unwrap();
    let took = asked.elapsed();
    assert!((Duration::from_millis(120)..Duration::from_millis(2000)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_trickle_comes_byte_by_byte() {
    let server = ScriptedPostgres::start();
    let caller = connect(&server).await.unwrap();
    let pause = Duration::from_millis(3);
    server.always(Script::well().on_acquire(Point::Read, Act::Trickle(pause)));
    let reads_before = caller.heard.lock().unwrap().len();
    let asked = Instant::now();
    assert_eq!(caller.ask("kis", &[1], 1).await.unwrap().len(), 1);
    let reads = caller.heard.lock().unwrap()[reads_before..].to_vec();
    let bytes = reads.concat().len();
    assert!(asked.elapsed() >= pause * u32::try_from(bytes - 1).unwrap(), "{bytes} bytes in {:?}", asked.elapsed());
    // On a busy machine some are read at once.
    assert!(reads.len() > bytes / 4, "{bytes} bytes in {} reads", reads.len());
}

async fn silent<T>(future: impl Future<Output = T>) -> bool {
    timeout(QUIET, future).await.is_err()
}

/// The tags of the server's messages, in order.
pub fn tags(mut bytes: &[u8]) -> String {
    let mut tags = String::new();
    while let [tag, a, b, c, d, ..] = *bytes {
        tags.push(char::from(tag));
        bytes = &bytes[1 + u32::from_be_bytes([a, b, c, d]) as usize..];
    }
    tags
}
