use std::time::Duration;

use clap::Args;

use super::Target;
use crate::cli::command_error::CommandError;
use crate::cli::database::Connected;
use crate::cli::duration::{friendly, parse_us, rough};
use crate::cli::find;
use crate::cli::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::store::admin;

/// Pause, and wait until nothing that was granted can still leave
#[derive(Args)]
#[command(after_help = "Example: call-budget budget drain kis-real --within 10s --reason \"switching off\"")]
pub struct Drain {
    #[command(flatten)]
    target: Target,
    /// Give up waiting after this long; the budget stays paused
    #[arg(long, value_name = "DURATION", value_parser = parse_us, allow_hyphen_values = true, default_value = "60s")]
    within: i64,
    /// Why, for the people who read the status
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Drain {
    pub async fn run(self) -> Result<(), CommandError> {
        let name = &self.target.name;
        let deadline = SystemClock.now() + Duration::from_micros(self.within.unsigned_abs());
        let mut connected = self.target.database.connect().await?;
        self.pause(&mut connected).await?;
        let progress = Progress::new();
        loop {
            let operation = connected.begin().await?;
            if !find::budget(&operation, name).await?.paused {
                return Err(CommandError::failed(format!(
                    "budget {name:?} was resumed by somebody else while it drained"
                ))
                .hint("agree who drains, then try again"));
            }
            let left_us = admin::drained_us(&operation, name).await?;
            if left_us == 0 {
                progress.clear();
                return self.target.done(operation, &format!("budget {name:?} is paused and drained")).await;
            }
            // Looking may have fenced: that must stand.
            operation.commit().await?;
            let left = Duration::from_micros(left_us.unsigned_abs());
            let now = SystemClock.now();
            if now + left > deadline {
                progress.clear();
                let message =
                    format!("budget {name:?} is paused, but its calls may still leave for {}", friendly(left_us));
                return Err(
                    CommandError::failed(message).hint(format!("wait longer than --within {}", friendly(self.within)))
                );
            }
            progress.say(&format!("draining {name:?}: {} left", rough(left_us)));
            SystemClock.sleep_until(now + left.min(LONGEST_NAP)).await;
        }
    }

    /// Who paused it first keeps the reason.
    async fn pause(&self, connected: &mut Connected) -> Result<(), CommandError> {
        let operation = connected.begin().await?;
        if !find::budget(&operation, &self.target.name).await?.paused {
            admin::pause(&operation, &self.target.name, self.reason.as_deref()).await?;
        }
        Ok(operation.commit().await?)
    }
}

/// Somebody may resume meanwhile, and people like to see that time passes.
const LONGEST_NAP: Duration = Duration::from_millis(200);
