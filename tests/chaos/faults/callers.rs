//! Processes of the fleet that are killed, or stand still.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use super::{Healed, Scene, between};
use crate::fleet::now_us;

/// Between two calls of one process of those that are drawn, at most.
const OWN_PACE: Duration = Duration::from_millis(1500);
/// A process starts, resolves the name and opens its session.
const START: Duration = Duration::from_secs(1);

pub async fn killed(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let first = scene.fleet.draw(rng);
    let also = scene.fleet.draw_any(rng);
    let both = rng.bool() && also != first;
    if both {
        scene.fleet.replace(also).await?;
    }
    let new = scene.fleet.replace(first).await?;
    let note = if both { format!("{first} and {also}") } else { first.to_string() };
    Ok(Healed { whom: Some(new), needs: START + OWN_PACE, ..Healed::now(note) })
}

pub async fn stopped(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let first = scene.fleet.draw(rng);
    let also = scene.fleet.draw_any(rng);
    let also = (rng.bool() && also != first).then_some(also);
    let mut stopped = vec![scene.fleet.stop(first)];
    stopped.extend(also.map(|pid| scene.fleet.stop(pid)));
    let span = between(rng, 200, 3000);
    sleep(span).await;
    let mut at_us = now_us();
    // The first one last: its next call is what shows that all is well.
    for one in stopped.into_iter().rev() {
        at_us = scene.fleet.go_on(one);
    }
    let whom = also.map_or(first.to_string(), |also| format!("{first} and {also}"));
    let note = format!("{whom} for {span:.1?}");
    Ok(Healed { at_us, whom: Some(first), needs: OWN_PACE, ..Healed::now(note) })
}
