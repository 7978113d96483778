//! The commands, one file each. Each ends with an exit code that scripts can rely on.

mod access;
mod bound;
mod budget;
mod class;
mod command_error;
mod database;
mod describe;
mod duration;
mod explain;
mod fence;
mod find;
mod migrate;
mod mock_vendor;
mod nearest;
mod output;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use command_error::CommandError;

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
    MockVendor(mock_vendor::Args),
    #[command(subcommand, after_help = "Example: call-budget budget set kis-real --limit 18 --window 1s")]
    Budget(budget::Budget),
    #[command(subcommand, after_help = "Example: call-budget class set kis-real order --priority 0 --floor 0.25")]
    Class(class::Class),
    Access(access::Access),
    Fence(fence::Fence),
    Explain(explain::Explain),
    Status(status::Status),
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Migrate(args) => migrate::run(args).into(),
        Command::MockVendor(args) => mock_vendor::run(args).into(),
        Command::Budget(command) => complete(command.run()),
        Command::Class(command) => complete(command.run()),
        Command::Access(command) => complete(command.run()),
        Command::Fence(command) => complete(command.run()),
        Command::Explain(command) => complete(command.run()),
        Command::Status(command) => complete(command.run()),
    }
}

/// Runs a command to its end and says why, if it failed.
fn complete(command: impl Future<Output = Result<(), CommandError>>) -> ExitCode {
    let result = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let result = runtime.block_on(command);
            // A name server that does not answer holds a thread: nobody waits for it.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(CommandError::failed(format!("the program cannot start its threads: {error}"))),
    };
    match result {
        Ok(()) => Exit::Done.into(),
        Err(error) => {
            eprintln!("{error}");
            error.exit.into()
        }
    }
}
