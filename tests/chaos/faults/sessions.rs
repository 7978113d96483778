//! Somebody else's session at the database is in the way.

use call_budget::cli::demo::plan::BUDGET;
use fastrand::Rng;
use tokio::time::sleep;

use super::{Healed, Scene, between};
use crate::fleet::now_us;
use crate::judge::Span;

pub async fn row_locked(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let lock = format!("BEGIN; SELECT FROM call_budget.call_budget WHERE name = '{BUDGET}' FOR UPDATE");
    let failed = |error: tokio_postgres::Error| format!("{lock}: {error}");
    let somebody = scene.site.session().await?;
    somebody.batch_execute(&lock).await.map_err(failed)?;
    let from_us = now_us();
    let span = between(rng, 1000, 4000);
    sleep(span).await;
    let to_us = now_us();
    somebody.batch_execute("COMMIT").await.map_err(failed)?;
    Ok(Healed { silent: Some(Span { from_us, to_us }), ..Healed::now(format!("for {span:.1?}")) })
}
