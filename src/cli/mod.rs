//! The commands, one file each. Each ends with an exit code that scripts can rely on.

mod access;
mod bench;
mod bound;
mod breakers;
mod budget;
mod class;
mod command_error;
mod database;
pub mod demo;
mod describe;
mod duration;
mod explain;
mod fence;
mod find;
mod migrate;
mod mock_vendor;
mod nearest;
mod output;
mod probe_window;
mod progress;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

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
    /// Neither yes nor no can be said (demo, probe-window).
    Inconclusive = 4,
}

impl From<()> for Exit {
    fn from((): ()) -> Exit {
        Exit::Done
    }
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
    after_help = "Exit codes: 0 done, 1 failed or refused by the budget, 2 usage or settings, 3 store unavailable, 4 inconclusive (demo, probe-window)"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Migrate(migrate::Migrate),
    #[command(subcommand, after_help = "Example: call-budget budget set kis-real --limit 18 --window 1s")]
    Budget(budget::Budget),
    #[command(subcommand, after_help = "Example: call-budget class set kis-real order --priority 0 --floor 0.25")]
    Class(class::Class),
    Access(access::Access),
    Fence(fence::Fence),
    Explain(explain::Explain),
    Status(status::Status),
    ProbeWindow(probe_window::ProbeWindow),
    MockVendor(mock_vendor::Args),
    Bench(bench::Bench),
    /// One process of the demo's fleet
    #[command(hide = true)]
    DemoWorker,
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    // What the library has to tell goes to stderr: warnings, or what RUST_LOG asks for.
    let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(wanted).with_writer(std::io::stderr).with_ansi(false).init();
    match Cli::parse().command {
        Command::Demo(command) => complete(command.run()),
        Command::Migrate(command) => complete(command.run()),
        Command::Budget(command) => complete(command.run()),
        Command::Class(command) => complete(command.run()),
        Command::Access(command) => complete(command.run()),
        Command::Fence(command) => complete(command.run()),
        Command::Explain(command) => complete(command.run()),
        Command::Status(command) => complete(command.run()),
        Command::ProbeWindow(command) => complete(command.run()),
        Command::MockVendor(args) => mock_vendor::run(args).into(),
        Command::Bench(command) => complete(command.run()),
        Command::DemoWorker => complete(demo::worker::run()),
    }
}

/// Runs a command to its end and says why, if it failed.
fn complete<T: Into<Exit>>(command: impl Future<Output = Result<T, CommandError>>) -> ExitCode {
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
        Ok(done) => done.into().into(),
        Err(error) => {
            eprintln!("{error}");
            error.exit.into()
        }
    }
}

/// Completes when the user or the system asks the program to stop, and says which signal did.
async fn interrupted() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}
