//! The store's clock is set while the server runs.

use std::time::Duration;

use call_budget::cli::demo::plan::{LIMIT, LOOKAHEAD};
use fastrand::Rng;
use tokio::time::sleep;

use super::{Healed, Scene, between};
use crate::fleet::now_us;

pub async fn forward(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let by = between(rng, 100, 20_000);
    scene.steps_us.push(now_us());
    scene.site.step_clock(by.as_micros() as i64).await?;
    promised_is_over(by).await
}

pub async fn back(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let by = between(rng, 100, 20_000);
    scene.site.step_clock(-(by.as_micros() as i64)).await?;
    promised_is_over(by).await
}

/// What had been promised before the step says nothing of recovery, and the budget is quiet until it is over.
async fn promised_is_over(by: Duration) -> Result<Healed, String> {
    let interval = LIMIT.interval().map_err(|error| format!("{error:?}"))?;
    sleep(LOOKAHEAD + interval + LIMIT.send_window + LIMIT.arrival_jitter).await;
    Ok(Healed::now(format!("by {by:.1?}")))
}
