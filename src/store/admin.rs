//! What operators change: one function here for each SQL function of `migrations/V3__settings.sql`.
//!
//! Durations are whole microseconds, as in the schema, and may be any number: the schema judges them, so that there is
//! one truth about what a setting may be. Each change takes effect with the next acquire.

use serde::Serialize;
use tokio_postgres::types::Type;

use super::operation::{Operation, OperationError};

/// The settings of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Units that the vendor counts in any window.
    pub limit: i32,
    /// The vendor's window.
    pub window_us: i64,
    /// How long after its slot a call may leave.
    pub send_window_us: i64,
    /// Largest minus smallest time from leaving to arriving.
    pub arrival_jitter_us: i64,
    /// The largest cost of one call.
    pub max_cost: i32,
    /// Between two slots of cost 1.
    pub interval_us: i64,
    /// How far ahead of now a slot may be promised.
    pub lookahead_us: i64,
}

/// The contract number of the schema.
pub async fn contract(operation: &Operation<'_>) -> Result<i32, OperationError> {
    Ok(operation.row("SELECT call_budget.call_budget_contract()", &[]).await?.get(0))
}

/// Creates the budget or changes its settings. Returns the new version: 1 for a new budget, else the one before + 1.
pub async fn set(operation: &Operation<'_>, budget: &str, settings: &Settings) -> Result<i64, OperationError> {
    let row = operation
        .row(
            "SELECT call_budget.call_budget_set($1, $2, $3, $4, $5, $6, $7, $8)",
            &[
                (&budget, Type::TEXT),
                (&settings.limit, Type::INT4),
                (&settings.window_us, Type::INT8),
                (&settings.send_window_us, Type::INT8),
                (&settings.arrival_jitter_us, Type::INT8),
                (&settings.max_cost, Type::INT4),
                (&settings.interval_us, Type::INT8),
                (&settings.lookahead_us, Type::INT8),
            ],
        )
        .await?;
    Ok(row.get(0))
}

/// Deletes the budget with its classes and waiters. Slots already granted still leave.
pub async fn delete(operation: &Operation<'_>, budget: &str) -> Result<(), OperationError> {
    operation.row("SELECT call_budget.call_budget_delete($1)::text", &[(&budget, Type::TEXT)]).await?;
    Ok(())
}

/// Creates the class or changes it. `floor_ppm` is its guaranteed share in parts per million.
pub async fn class_set(
    operation: &Operation<'_>,
    budget: &str,
    class: &str,
    priority: i32,
    floor_ppm: i32,
) -> Result<(), OperationError> {
    operation
        .row(
            "SELECT call_budget.call_budget_class_set($1, $2, $3, $4)::text",
            &[(&budget, Type::TEXT), (&class, Type::TEXT), (&priority, Type::INT4), (&floor_ppm, Type::INT4)],
        )
        .await?;
    Ok(())
}

/// Deletes the class and its waiters. Slots already granted still leave.
pub async fn class_delete(operation: &Operation<'_>, budget: &str, class: &str) -> Result<(), OperationError> {
    operation
        .row(
            "SELECT call_budget.call_budget_class_delete($1, $2)::text",
            &[(&budget, Type::TEXT), (&class, Type::TEXT)],
        )
        .await?;
    Ok(())
}

/// Stops grants at once. Slots already granted still leave: see [`drained_us`].
pub async fn pause(operation: &Operation<'_>, budget: &str, reason: Option<&str>) -> Result<(), OperationError> {
    operation
        .row("SELECT call_budget.call_budget_pause($1, $2)::text", &[(&budget, Type::TEXT), (&reason, Type::TEXT)])
        .await?;
    Ok(())
}

/// Ends a pause. Releases no burst.
pub async fn resume(operation: &Operation<'_>, budget: &str) -> Result<(), OperationError> {
    operation.row("SELECT call_budget.call_budget_resume($1)::text", &[(&budget, Type::TEXT)]).await?;
    Ok(())
}

/// How long until nothing that was granted can still leave, in microseconds; 0 when drained. Meaningful while paused, or
/// inside the operation that stops the grants.
pub async fn drained_us(operation: &Operation<'_>, budget: &str) -> Result<i64, OperationError> {
    Ok(operation.row("SELECT call_budget.call_budget_drained_us($1)", &[(&budget, Type::TEXT)]).await?.get(0))
}

/// Moves everybody's next slot, by at most 1 hour. Returns what is left to wait, in microseconds.
pub async fn pushback(
    operation: &Operation<'_>,
    budget: &str,
    duration_us: i64,
    reason: Option<&str>,
) -> Result<i64, OperationError> {
    let row = operation
        .row(
            "SELECT call_budget.call_budget_pushback($1, $2, $3)",
            &[(&budget, Type::TEXT), (&duration_us, Type::INT8), (&reason, Type::TEXT)],
        )
        .await?;
    Ok(row.get(0))
}

/// One quiet moment: nothing starts before every slot that may have been forgotten is over. Returns its length in
/// microseconds.
pub async fn fence(operation: &Operation<'_>, budget: &str) -> Result<i64, OperationError> {
    Ok(operation.row("SELECT call_budget.call_budget_fence($1)", &[(&budget, Type::TEXT)]).await?.get(0))
}
