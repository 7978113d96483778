//! The commands, one file each. Each ends with an exit code that scripts can rely on.

mod migrate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// How a command ends. Documented in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// Failed, or refused by the budget.
    Failed = 1,
    /// Usage or settings.
    Usage = 2,
    /// The store could not be reached or used.
    Store = 3,
    /// Neither pass nor fail can be said (demo).
    Inconclusive = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// One vendor call limit, shared by every process.
#[derive(Parser)]
#[command(
    name = "call-budget",
    version,
    after_help = "Exit codes: 0 done, 1 failed or refused by the budget, 2 usage or settings, 3 store unavailable, 4 inconclusive (demo)"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Migrate(migrate::Args),
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Migrate(args) => migrate::run(args).into(),
    }
}
