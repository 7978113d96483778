use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use crate::not_tried;
use crate::tools::faketime::{Offset, SteppedServer, available};
use crate::tools::kept::within;
use crate::tools::psql::ask;

#[tokio::test(flavor = "multi_thread")]
async fn the_wall_clock_steps_back_and_forward_in_an_open_session_and_in_new_ones() {
    if let Err(why) = available() {
        return not_tried("a stepped server clock", &why);
    }
    let server = SteppedServer::start(&[]).unwrap();
    let session = connect(&server).await;
    for (offset, seconds) in [
        (Offset::None, 0.0),
        (Offset::Behind(Duration::from_secs(8)), -8.0),
        (Offset::Ahead(Duration::from_millis(250)), 0.25),
        (Offset::Ahead(Duration::from_secs(3600)), 3600.0),
        (Offset::None, 0.0),
    ] {
        server.step(offset);
        assert_off_by(&session, seconds).await;
        assert_off_by(&connect(&server).await, seconds).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn monotonic_time_goes_on_while_the_wall_clock_steps() {
    if let Err(why) = available() {
        return not_tried("a stepped server clock", &why);
    }
    let server = SteppedServer::start(&[]).unwrap();
    let session = connect(&server).await;
    let sleeps = session.simple_query("EXPLAIN (ANALYZE, SUMMARY) SELECT pg_sleep(1)");
    let (plan, ()) = tokio::join!(sleeps, step_meanwhile(&server, Offset::Ahead(Duration::from_secs(3600))));
    let plan = format!("{:?}", plan.unwrap());
    let (_, rest) = plan.split_once("Execution Time: ").unwrap();
    let took: f64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!((990.0..2000.0).contains(&took), "{took} ms by the server's monotonic clock");
}

/// The trap that clients must not fall into: the server's own timeouts are on its wall clock. Under libfaketime only
/// those that fire while the server computes; while it waits, its timers see the machine's clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_of_a_computing_server_is_late_by_the_step_back_and_one_of_a_waiting_server_is_not() {
    const COMPUTES: &str = "DO $$ BEGIN LOOP NULL; END LOOP; END $$";
    const WAITS: &str = "SELECT FROM held";
    if let Err(why) = available() {
        return not_tried("a stepped server clock", &why);
    }
    let server = SteppedServer::start(&[]).unwrap();
    let (holder, session) = (connect(&server).await, connect(&server).await);
    holder.batch_execute("CREATE TABLE held (n int)").await.unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE held").await.unwrap();
    session.batch_execute("SET statement_timeout = 500").await.unwrap();
    let back = Offset::Behind(Duration::from_secs(3));
    for (statement, offset, due) in [(COMPUTES, Offset::None, 0.5), (COMPUTES, back, 3.5), (WAITS, back, 0.5)] {
        server.step(Offset::None);
        let began = Instant::now();
        let (ended, ()) = tokio::join!(session.batch_execute(statement), step_meanwhile(&server, offset));
        let took = began.elapsed().as_secs_f64();
        assert_eq!(ended.unwrap_err().code().unwrap().code(), "57014");
        println!("statement_timeout of 0.5 s, {statement}, clock {offset:?}: fired after {took:.3} s");
        assert!((due - 0.01..due + 1.5).contains(&took), "{statement}, {offset:?}: {took} s");
    }
}

#[test]
fn it_restarts_with_its_clock_and_leaves_nothing_behind() {
    if let Err(why) = available() {
        return not_tried("a stepped server clock", &why);
    }
    let mut server = SteppedServer::start(&[]).unwrap();
    server.step(Offset::Ahead(Duration::from_secs(3600)));
    server.postgres.restart(call_budget::service::scratch_postgres::Halt::Kill).unwrap();
    within(Duration::from_secs(10), "an hour ahead after a crash", || {
        let ahead = format!("SELECT round(extract(epoch FROM clock_timestamp()) - {}, -2)", unix_time());
        ask(&server.postgres, &ahead) == "3600"
    });
    let file = std::fs::read_to_string(server.postgres.data_dir().unwrap().join("postmaster.pid")).unwrap();
    let pid = file.lines().next().unwrap().to_owned();
    drop(server);
    let left: Vec<_> = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.file_name()).collect();
    let ours = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(&format!("_{pid}"));
    assert!(!left.iter().any(ours), "{left:?}");
}

async fn step_meanwhile(server: &SteppedServer, offset: Offset) {
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.step(offset);
}

async fn assert_off_by(session: &Client, seconds: f64) {
    let before = unix_time();
    let row = session.query_one("SELECT extract(epoch FROM clock_timestamp())::float8", &[]).await.unwrap();
    let after = unix_time();
    let told: f64 = row.get(0);
    assert!((before + seconds - 0.001..after + seconds + 0.001).contains(&told), "{} s", told - before);
}

#[expect(clippy::disallowed_methods, reason = "what is measured is how far the server's wall clock is from ours")]
fn unix_time() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

async fn connect(server: &SteppedServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.postgres.url("postgres"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
