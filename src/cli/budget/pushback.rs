use clap::Args;

use super::Target;
use crate::cli::command_error::CommandError;
use crate::cli::duration::{friendly, parse_us};
use crate::cli::find;
use crate::store::admin;

/// Move everybody's next slot, since the vendor said "too many"
///
/// At most 1 hour. Repeated reports come to the longest of them, never to their
/// sum. Calls already granted still leave.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Example: call-budget budget pushback kis-real --for 30s --reason EGW00201"
)]
pub struct Pushback {
    #[command(flatten)]
    target: Target,
    /// How long nothing new is to start
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_us, allow_hyphen_values = true)]
    duration: i64,
    /// Why, for the people who read the status
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Pushback {
    pub async fn run(self) -> Result<(), CommandError> {
        let name = &self.target.name;
        let mut connected = self.target.database.connect().await?;
        let operation = connected.begin().await?;
        find::budget(&operation, name).await?;
        let left = admin::pushback(&operation, name, self.duration, self.reason.as_deref()).await?;
        let why = match left.cmp(&self.duration) {
            std::cmp::Ordering::Less => " (no pushback is longer than that)",
            std::cmp::Ordering::Equal => "",
            std::cmp::Ordering::Greater => " (an earlier pushback lasts longer)",
        };
        self.target.done(operation, &format!("budget {name:?} is pushed back for {}{why}", friendly(left))).await
    }
}
