//! The store's clock is set while the server runs.

use std::time::Duration;

use call_budget::cli::demo::plan::{LIMIT, LOOKAHEAD};
use fastrand::Rng;

use super::{Healed, Scene, between};
use crate::fleet::now_us;

pub fn forward(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let by = between(rng, 100, 20_000);
    scene.steps_us.push(now_us());
    scene.site.step_clock(by.as_micros() as i64);
    stepped(format!("by {by:.1?}"))
}

pub fn back(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let by = between(rng, 100, 20_000);
    scene.site.step_clock(-(by.as_micros() as i64));
    stepped(format!("by {by:.1?}"))
}

/// The budget is quiet until all that was promised is over.
fn stepped(note: String) -> Result<Healed, String> {
    let interval = LIMIT.interval().map_err(|error| format!("{error:?}"))?;
    Ok(Healed { needs: LOOKAHEAD + interval + Duration::from_millis(100), ..Healed::now(note) })
}
