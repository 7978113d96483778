//! The schema: how it comes into a database, what it is made of, and what survives a restore, a copy and a crash.

#[path = "../support/mod.rs"]
mod support;

mod applying;
mod durability;
mod forgetting;
mod growth;
mod planted;
mod refusing;
mod shape;

use tokio_postgres::Client;

/// A budget with one class. Its slots are far enough apart to be told from each other.
const BUDGET: &str = "SELECT call_budget.call_budget_set('b', 18, 1000000, 50000, 50000, 1, 61174, 60000);
                      SELECT call_budget.call_budget_class_set('b', 'c', 0, 0);
                      SELECT call_budget.call_budget_set('unused', 18, 1000000, 50000, 50000, 1, 61174, 60000)";

/// What a test looks at in an answer of call_budget_acquire.
struct Answer {
    waits_us: Vec<i64>,
    retry_us: Option<i64>,
    fences: i64,
    store_us: i64,
}

async fn acquire(client: &Client) -> Answer {
    let sql = "SELECT waits_us, retry_us, fences, store_us FROM call_budget.call_budget_acquire('b', 'c', 7, '{1}', 10000000, 42)";
    let row = client.query_one(sql, &[]).await.unwrap();
    Answer { waits_us: row.get(0), retry_us: row.get(1), fences: row.get(2), store_us: row.get(3) }
}
