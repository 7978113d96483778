//! Somebody's transaction keeps its old view of the database for long: what is written over and over cannot be cleaned up.
//!
//! It lasts over the faults that come next, and the spans between them: it must cost nothing that is measured there.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;
use fastrand::Rng;
use tokio_postgres::Client;

use super::{Healed, Scene, between};
use crate::site::Site;

const HOLD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM call_budget.call_budget_class";

/// An old view that is held.
pub struct Snapshot {
    somebody: Client,
    began: Instant,
    due: Instant,
    /// How often its server went, and it was taken again.
    again: u32,
}

/// Begins to hold one, for half a minute or more. One that is held already lasts longer.
pub async fn begin(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let span = between(rng, 30_000, 60_000);
    let now = SystemClock.now();
    match &mut scene.snapshot {
        Some(held) => held.due = now + span,
        none => *none = Some(Snapshot { somebody: hold(&scene.site).await?, began: now, due: now + span, again: 0 }),
    }
    Ok(Healed::now(format!("from now on, for {span:.0?} or until the run ends")))
}

impl Snapshot {
    /// Takes it again where its server went.
    pub async fn go_on(&mut self, site: &Site) -> Result<(), String> {
        if self.somebody.is_closed() {
            self.somebody = hold(site).await?;
            self.again += 1;
        }
        Ok(())
    }

    pub fn is_due(&self) -> bool {
        SystemClock.now() >= self.due
    }

    /// Lets go. Returns how it was.
    pub async fn end(self) -> String {
        // Where its server has gone just now, it has ended with it.
        let _ = self.somebody.batch_execute("COMMIT").await;
        let span: Duration = SystemClock.now().saturating_since(self.began);
        format!("held for {span:.0?} in all, taken again {} times as its server went", self.again)
    }
}

async fn hold(site: &Site) -> Result<Client, String> {
    let somebody = site.session().await?;
    somebody.batch_execute(HOLD).await.map_err(|error| format!("{HOLD}: {error}"))?;
    Ok(somebody)
}
