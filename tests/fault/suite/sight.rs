//! What a case sees and does at the database itself, through no fault.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::{Client, Transaction};

use super::round::Round;

/// A session of this round's callers, as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSeen {
    pub pid: i32,
    /// The port that the server's peer has: the caller's own, where nothing is in between.
    pub client_port: u16,
}

impl Round {
    /// What the database has granted to this round's budget.
    ///
    /// # Panics
    /// As the others here: where the server does not answer.
    pub async fn slots_granted(&mut self) -> i64 {
        const SQL: &str = "SELECT sum(granted)::int8 FROM call_budget.call_budget_class WHERE budget = $1";
        let budget = self.budget().await;
        self.admin().await.query_one(SQL, &[&budget]).await.expect("the server answers").get(0)
    }

    pub async fn sessions_open(&mut self) -> Vec<SessionSeen> {
        const SQL: &str = "SELECT pid, client_port FROM pg_stat_activity WHERE application_name = $1";
        let name = self.application_name().to_owned();
        let rows = self.admin().await.query(SQL, &[&name]).await.expect("the server answers");
        let seen = |row: &tokio_postgres::Row| SessionSeen {
            pid: row.get(0),
            client_port: u16::try_from(row.get::<_, i32>(1)).unwrap_or_default(),
        };
        rows.iter().map(seen).collect()
    }

    /// Keeps this round's budget locked, by way of the session, until the transaction ends.
    pub async fn lock<'a>(&mut self, somebody: &'a mut Client) -> Transaction<'a> {
        const SQL: &str = "SELECT FROM call_budget.call_budget WHERE name = $1 FOR UPDATE";
        let budget = self.budget().await;
        let transaction = somebody.transaction().await.expect("the server answers");
        transaction.query_one(SQL, &[&budget]).await.expect("the budget is there");
        transaction
    }

    /// Returns when a caller's request stands at a lock.
    pub async fn somebody_waits_for_a_lock(&mut self) {
        const SQL: &str = "SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
        const LOOK: Duration = Duration::from_millis(2);
        let name = self.application_name().to_owned();
        let admin = self.admin().await;
        while admin.query(SQL, &[&name]).await.expect("the server answers").is_empty() {
            sleep(LOOK).await;
        }
    }
}
