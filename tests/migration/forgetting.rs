//! Whatever may have forgotten commits is fenced: nothing starts before everything that was promised is over.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use call_budget::service::scratch_postgres::{Halt, ScratchPostgres};
use tokio_postgres::Client;

use crate::support::{self, connect, connect_and_migrate};
use crate::{Answer, BUDGET, acquire};

/// lookahead + max_cost intervals of the budget
const QUIET_US: i64 = 60_000 + 61_174;

#[tokio::test]
async fn a_dump_restored_into_the_running_server_is_fenced_and_its_origin_is_not() {
    let server = support::server();
    let origin = original(&server).await;
    let fences = granted(&origin).await.fences;
    create(&server, "restored", "TEMPLATE template0").await;
    restore(&server, "original", "restored");
    let copy = connect(&server.url("restored")).await;
    assert_fenced(&copy, fences).await;
    assert_eq!(granted(&origin).await.fences, fences);
}

#[tokio::test]
async fn a_database_made_from_a_template_is_fenced_and_its_origin_is_not() {
    let server = support::server();
    let origin = original(&server).await;
    let fences = granted(&origin).await.fences;
    drop(origin);
    create(&server, "copied", "TEMPLATE original").await;
    assert_fenced(&connect(&server.url("copied")).await, fences).await;
    assert_eq!(granted(&connect(&server.url("original")).await).await.fences, fences);
}

#[tokio::test]
async fn every_restart_is_fenced_whether_it_was_a_crash_or_not() {
    let mut server = support::server();
    let mut fences = granted(&original(&server).await).await.fences;
    for how in [Halt::Immediate, Halt::Kill, Halt::Fast] {
        server.restart(how).unwrap();
        let client = connect(&server.url("original")).await;
        assert_fenced(&client, fences).await;
        fences += 1;
    }
}

/// The database `original` with a budget that has given out slots.
async fn original(server: &ScratchPostgres) -> Client {
    create(server, "original", "TEMPLATE template0").await;
    let client = connect_and_migrate(&server.url("original")).await;
    client.batch_execute(BUDGET).await.unwrap();
    client
}

async fn create(server: &ScratchPostgres, name: &str, how: &str) {
    let first = connect(&server.url("postgres")).await;
    first.batch_execute(&format!("CREATE DATABASE {name} {how}")).await.unwrap();
}

/// Comes back at each appointment until a slot is granted.
async fn granted(client: &Client) -> Answer {
    for _ in 0..20 {
        let answer = acquire(client).await;
        if !answer.waits_us.is_empty() {
            return answer;
        }
        let retry_us = answer.retry_us.expect("no grant and no reason is an appointment");
        tokio::time::sleep(Duration::from_micros(retry_us.unsigned_abs())).await;
    }
    panic!("twenty appointments and no slot");
}

async fn assert_fenced(client: &Client, fences: i64) {
    let first = acquire(client).await;
    assert_eq!(first.fences, fences + 1);
    assert!(first.waits_us.is_empty(), "a slot was granted in the fence");
    let then = granted(client).await;
    let quiet_us = then.store_us + then.waits_us[0] - first.store_us;
    assert!(quiet_us >= QUIET_US, "the first slot came {quiet_us} us after the fence");
    assert_eq!(then.fences, fences + 1);
}

fn restore(server: &ScratchPostgres, from: &str, into: &str) {
    let dump = server.program("pg_dump").arg(from).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let mut psql = server.program("psql");
    let mut psql =
        psql.args(["-Xq", "-v", "ON_ERROR_STOP=1", into]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    psql.stdin.take().unwrap().write_all(&dump.stdout).unwrap();
    assert!(psql.wait().unwrap().success());
}
