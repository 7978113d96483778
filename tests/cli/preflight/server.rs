//! Servers of other kinds: careless ones, standbys, behind a pooler, with another clock.

use std::time::Duration;

use super::{preflight, set_up};
use crate::support;
use crate::tools::faketime::{Offset, SteppedServer, available};
use crate::tools::pgbouncer::PgBouncer;
use crate::tools::standby::{Pair, Replication};
use call_budget::service::scratch_postgres::ScratchPostgres;

/// Starts something that blocks.
async fn started<T: Send + 'static>(start: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(start).await.unwrap()
}

async fn ended<T: Send + 'static>(server: T) {
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_forgets_or_tears_what_it_wrote_is_told() {
    let settings = [("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")];
    let server = started(move || ScratchPostgres::start(&settings).unwrap()).await;
    let url = server.url("postgres");
    drop(support::connect_and_migrate(&url).await);
    set_up(&url).await;
    let report = preflight(&url, "").await;
    report.says("fsync", "fail", "set fsync = on");
    report.says("full_page_writes", "warn", "half-written");
    report.says("synchronous_commit", "warn", "costs a quiet moment");
    assert_eq!(report.exit, 1);
    ended(server).await;
}

#[tokio::test]
async fn a_standby_is_told_and_what_it_can_say_is_still_said() {
    let pair = started(|| Pair::start(Replication::Asynchronous, &[]).unwrap()).await;
    let url = pair.primary.url("postgres");
    drop(support::connect_and_migrate(&url).await);
    set_up(&url).await;
    let pair = started(move || {
        pair.wait_until_in_step();
        pair
    })
    .await;
    let report = preflight(&pair.standby.url("postgres"), "").await;
    report.says("primary", "fail", "name the primary");
    report.says("timeline", "fail", "a standby has none");
    report.says("round_trip", "fail", "is a standby");
    report.says("budget", "fail", "see primary");
    report.passes(&["schema", "rights", "marker", "connections"]);
    assert_eq!(report.exit, 1);
    ended(pair).await;
}

#[tokio::test]
async fn a_transaction_pooler_is_told_and_nothing_else_is_hindered_by_it() {
    let (server, bouncer) = started(|| {
        let server = support::server();
        let bouncer = PgBouncer::start(&server, 5, &[], &[]).unwrap();
        (server, bouncer)
    })
    .await;
    let url = server.url("postgres");
    drop(support::connect_and_migrate(&url).await);
    set_up(&url).await;
    preflight(&url, "").await.passes(&["pooler"]);
    let report = preflight(&bouncer.url(&server, &url), "").await;
    report.says("pooler", "warn", "acquire works through it");
    // The rest is what it is without one: the superuser of a server that was just made.
    let timeouts = ["statement_timeout", "lock_timeout", "idle_timeout", "check_interval"];
    report.passes_but(&[&timeouts[..], &["pooler", "role", "arrival_jitter"]].concat());
    ended((bouncer, server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_clock_is_wrong_or_is_set_meanwhile_is_told() {
    if let Err(why) = available() {
        return crate::not_tried("a stepped server clock", &why);
    }
    let server = started(|| SteppedServer::start(&[]).unwrap()).await;
    let url = server.postgres.url("postgres");
    drop(support::connect_and_migrate(&url).await);
    set_up(&url).await;
    server.step(Offset::Ahead(Duration::from_secs(3600)));
    let (report, ()) = tokio::join!(preflight(&url, "--seconds 3"), async {
        // Once it measures, which its lock waits show.
        let client = support::connect(&url).await;
        let probes = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'call-budget preflight'
                         AND query LIKE '%call_budget_acquire%')";
        support::eventually("it probes", async || client.query_one(probes, &[]).await.unwrap().get(0)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.step(Offset::Ahead(Duration::from_secs(7200)));
    });
    report.says("clock_offset", "warn", "synchronize both");
    let line = report.says("clock_steps", "fail", "hide a burst");
    assert_eq!(line["figures"]["store_steps"], 1);
    ended(server).await;
}
