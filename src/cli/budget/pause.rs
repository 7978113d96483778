use clap::Args;

use super::Target;
use crate::cli::command_error::CommandError;
use crate::cli::duration::friendly;
use crate::cli::find;
use crate::store::admin;

/// Stop grants at once
///
/// Calls already granted still leave: "drain" waits for them.
#[derive(Args)]
#[command(after_help = "Example: call-budget budget pause kis-real --reason \"vendor maintenance\"")]
pub struct Pause {
    #[command(flatten)]
    target: Target,
    /// Why, for the people who read the status
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Pause {
    pub async fn run(self) -> Result<(), CommandError> {
        let name = &self.target.name;
        let mut connected = self.target.database.connect().await?;
        let operation = connected.begin().await?;
        find::budget(&operation, name).await?;
        admin::pause(&operation, name, self.reason.as_deref()).await?;
        let left = admin::drained_us(&operation, name).await?;
        let still = match left {
            0 => "nothing granted can still leave".to_owned(),
            left => format!("calls already granted may still leave for {}", friendly(left)),
        };
        self.target.done(operation, &format!("budget {name:?} paused: {still}")).await
    }
}

/// End a pause: grants go on at the same pace, without a burst
#[derive(Args)]
#[command(after_help = "Example: call-budget budget resume kis-real")]
pub struct Resume {
    #[command(flatten)]
    target: Target,
}

impl Resume {
    pub async fn run(self) -> Result<(), CommandError> {
        let name = &self.target.name;
        let mut connected = self.target.database.connect().await?;
        let operation = connected.begin().await?;
        let paused = find::budget(&operation, name).await?.paused;
        admin::resume(&operation, name).await?;
        let sentence = if paused { "grants again" } else { "was not paused" };
        self.target.done(operation, &format!("budget {name:?} {sentence}")).await
    }
}
