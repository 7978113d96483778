use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use call_budget::service::scratch_postgres::ScratchPostgres;

use crate::tools::kept::{told, within};
use crate::tools::pgbouncer::PgBouncer;
use crate::tools::psql::{ask, sessions};

#[test]
fn many_clients_share_no_more_connections_than_the_pool_has() {
    let (server, bouncer) = started(3, &[("server_login_retry", "2")]);
    assert!(bouncer.order(&server, "SHOW CONFIG").contains("\nserver_login_retry|2|"), "settings of a test count");
    ask(&server, "CREATE ROLE \"plain role\" LOGIN PASSWORD 'secret'");
    ask(&server, "CREATE DATABASE shared");
    let own = server.url("shared");
    let place = own.split_once('@').unwrap().1;
    let url = bouncer.url(&server, &format!("postgres://plain%20role:secret@{place}"));
    assert!(url.ends_with(&format!(":{}/shared?sslmode=disable", bouncer.port())), "{url}");
    let most = thread::scope(|scope| {
        let clients: Vec<_> =
            (0..8).map(|_| scope.spawn(|| query(&server, &url, "SELECT current_user, pg_sleep(0.5)"))).collect();
        let mut most = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            most = most.max(sessions(&server, "shared"));
            assert!(bouncer.server_connections(&server, "shared") <= 3);
        }
        for client in clients {
            assert_eq!(client.join().unwrap().unwrap(), "plain role|");
        }
        most
    });
    assert_eq!(most, 3);
    assert_eq!(bouncer.server_connections(&server, "shared"), 3);
}

#[test]
fn a_pause_lets_everybody_wait_and_a_killed_database_drops_everybody() {
    let (server, bouncer) = started(20, &[]);
    let url = bouncer.url(&server, &server.url("postgres"));
    query(&server, &url, "SELECT 1").unwrap();
    bouncer.pause(&server);
    assert_eq!(bouncer.server_connections(&server, "postgres"), 0);
    waits_until(&server, &url, || bouncer.resume(&server));
    bouncer.kill_database(&server, "postgres");
    assert_eq!(bouncer.server_connections(&server, "postgres"), 0);
    waits_until(&server, &url, || bouncer.resume_database(&server, "postgres"));
}

#[test]
fn killed_it_refuses_and_leaves_no_session_and_restarted_it_has_its_port_again() {
    let (server, mut bouncer) = started(20, &[]);
    let url = bouncer.url(&server, &server.url("postgres"));
    let pid = bouncer.process().pid();
    query(&server, &url, "SELECT 1").unwrap();
    bouncer.kill();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is still there");
    let refused = query(&server, &url, "SELECT 1").unwrap_err();
    assert!(refused.contains("Connection refused"), "{refused}");
    within(Duration::from_secs(10), "no session is left", || sessions(&server, "postgres") == 0);
    bouncer.restart();
    assert_eq!(query(&server, &url, "SELECT 1").unwrap(), "1");
}

fn started(pool: usize, settings: &[(&str, &str)]) -> (ScratchPostgres, PgBouncer) {
    let server = ScratchPostgres::start(&[]).unwrap();
    let bouncer = PgBouncer::start(&server, pool, &[("plain role", "secret")], settings).unwrap();
    (server, bouncer)
}

/// That a query has no answer for half a second, and has one once `released`.
fn waits_until(server: &ScratchPostgres, url: &str, released: impl FnOnce()) {
    thread::scope(|scope| {
        let (done, answered) = channel();
        scope.spawn(move || done.send(query(server, url, "SELECT 1")).unwrap());
        assert!(answered.recv_timeout(Duration::from_millis(500)).is_err(), "answered at once");
        released();
        assert_eq!(answered.recv_timeout(Duration::from_secs(10)).unwrap().unwrap(), "1");
    });
}

fn query(server: &ScratchPostgres, url: &str, sql: &str) -> Result<String, String> {
    told(server.program("psql").args(["-XAtq", "-c", sql, url]), Duration::from_secs(30))
}
