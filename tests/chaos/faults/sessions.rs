//! Somebody else's sessions at the database are in the way.

use call_budget::cli::demo::plan::BUDGET;
use fastrand::Rng;
use tokio::time::sleep;

use super::{Healed, Scene, between};

pub async fn held_snapshot(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let held = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM call_budget.call_budget_class";
    hold(scene, held, rng).await
}

pub async fn row_locked(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let held = format!("BEGIN; SELECT FROM call_budget.call_budget WHERE name = '{BUDGET}' FOR UPDATE");
    hold(scene, &held, rng).await
}

/// Keeps open what the statements begin.
async fn hold(scene: &Scene, statements: &str, rng: &mut Rng) -> Result<Healed, String> {
    let failed = |error: tokio_postgres::Error| format!("{statements}: {error}");
    let somebody = scene.site.session().await?;
    somebody.batch_execute(statements).await.map_err(failed)?;
    let span = between(rng, 1000, 4000);
    sleep(span).await;
    somebody.batch_execute("COMMIT").await.map_err(failed)?;
    Ok(Healed::now(format!("for {span:.1?}")))
}
