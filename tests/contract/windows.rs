//! The library and the function together: when a permit is good, as the store's own clock sees it.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::{CallBudget, Permit, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio_postgres::Client;

use crate::support::{self, TestDatabase};

/// A hundred slots a second; the lookahead gives one call two of them.
const BUDGET: &str = "SELECT call_budget.call_budget_set('b', 1000, 1000000, 50000, 50000, 1, 10000, 20000);
                      SELECT call_budget.call_budget_class_set('b', 'c', 0, 0)";

/// Counted from the answer, the window would end later by as much as the answer was late.
#[tokio::test]
async fn a_permit_closes_within_the_send_window_of_its_slot_however_late_the_answer_came() {
    const SLOW: Duration = Duration::from_millis(20);
    let database = database().await;
    let budgets = budgets(&slow_answers(&database.url, SLOW).await);
    for _ in 0..5 {
        let permit = budgets.acquire("b", "c").await.unwrap();
        let late = closes_after_slot(&database.client, &permit).await;
        // A millisecond for two clocks of one machine.
        assert!(late <= 50_000 + 1000, "it closes {late} us after its slot");
    }
}

async fn database() -> TestDatabase {
    let database = support::database().await;
    database.client.batch_execute(BUDGET).await.unwrap();
    database
}

/// A process of its own, as far as the store can tell. A busy machine is no reason to drop a slot.
fn budgets(url: &str) -> CallBudget {
    let mut settings = Settings::default();
    settings.enabled = true;
    settings.database_url = Some(url.into());
    settings.rtt_max = Duration::from_secs(1);
    CallBudget::new(&settings).unwrap()
}

/// Microseconds from the store's latest slot to the end of the permit, less at most the time that looking took.
async fn closes_after_slot(client: &Client, permit: &Permit) -> i64 {
    let sql = "SELECT last_slot_us - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                 FROM call_budget.call_budget_schedule";
    let slot_in_us: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    let now = SystemClock.now().since_boot().as_micros() as i64;
    permit.closes_at().unwrap().since_boot().as_micros() as i64 - now - slot_in_us
}

/// The URL of the same database through a proxy whose answers come late.
async fn slow_answers(url: &str, late: Duration) -> String {
    let (before, rest) = url.rsplit_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&server).await.unwrap();
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(copy(near_in, far_out, Duration::ZERO));
            tokio::spawn(copy(far_in, near_out, late));
        }
    });
    format!("{before}@{proxy}/{database}")
}

async fn copy(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, late: Duration) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(late).await;
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
