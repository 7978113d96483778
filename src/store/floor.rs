//! The least that a shared row can cost: a bare one-row UPDATE, sent as acquire is. What the bench measures against.

use tokio_postgres::types::Type;

use super::direct::Direct;
use super::operation::OperationError;

const UPDATE: &str = "UPDATE call_budget_bench SET value = value + 1 WHERE name = $1 RETURNING value";

/// A table with one row, in a schema of its own. [`Floor::clear`] drops both.
pub struct Floor {
    session: Direct,
    schema: String,
}

impl Floor {
    /// Makes the table, logged like the budget's own, in a schema of its own.
    pub async fn make(mut session: Direct) -> Result<Floor, OperationError> {
        let schema = format!("call_budget_bench_{:x}", fastrand::u64(..));
        session
            .client()
            .batch_execute(&format!(
                "CREATE SCHEMA {schema}; SET search_path = {schema};
                 CREATE TABLE call_budget_bench (name text PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 25);
                 INSERT INTO call_budget_bench VALUES ('row', 0)"
            ))
            .await?;
        Ok(Floor { session, schema })
    }

    /// One update, one typed and unnamed statement, one round trip.
    pub async fn update(&mut self) -> Result<(), OperationError> {
        self.session.client().query_typed(UPDATE, &[(&"row", Type::TEXT)]).await?;
        Ok(())
    }

    /// Drops what [`Floor::make`] made.
    pub async fn clear(mut self) -> Result<(), OperationError> {
        Ok(self.session.client().batch_execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await?)
    }
}
