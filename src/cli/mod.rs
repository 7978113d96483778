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
mod headers;
mod logs;
mod migrate;
mod mock_vendor;
mod output;
mod preflight;
mod probe_window;
mod progress;
mod run;
mod serve;
mod status;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use command_error::CommandError;

use crate::config::LogFormat;

/// How a command ends. Documented in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0.
    Done,
    /// 1: failed, or refused by the budget.
    Failed,
    /// 2: usage or settings.
    Usage,
    /// 3: the store could not be reached or used.
    Store,
    /// 4: neither yes nor no can be said (demo, probe-window).
    Inconclusive,
    /// What a command that was run ended with, or why it was not run (run).
    Code(u8),
}

impl From<()> for Exit {
    fn from((): ()) -> Exit {
        Exit::Done
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Store => 3,
            Exit::Inconclusive => 4,
            Exit::Code(code) => code,
        })
    }
}

/// One vendor call limit, shared by every process.
#[derive(Parser)]
#[command(
    name = "call-budget",
    version,
    after_help = "Exit codes: 0 done, 1 failed or refused by the budget, 2 usage or settings, 3 store unavailable, 4 inconclusive (demo, probe-window); run has its own"
)]
struct Cli {
    /// How events are written: text, or json, an object a line
    ///
    /// To stderr. Where not given, log_format of the settings says it.
    #[arg(long, global = true, value_name = "FORMAT", env = "CALL_BUDGET_LOG_FORMAT", value_parser = logs::words(), hide_possible_values = true, display_order = 900)]
    log_format: Option<LogFormat>,
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
    Run(run::Run),
    Status(status::Status),
    Serve(serve::Serve),
    Preflight(preflight::Preflight),
    ProbeWindow(probe_window::ProbeWindow),
    MockVendor(mock_vendor::Args),
    Bench(bench::Bench),
    /// One process of the demo's fleet
    #[command(hide = true)]
    DemoWorker,
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let arguments = Cli::command().get_matches();
    let Cli { log_format, command } = Cli::from_arg_matches(&arguments).unwrap_or_else(|error| error.exit());
    logs::begin(log_format.unwrap_or_else(|| logs::of_settings(&arguments)));
    match command {
        Command::Demo(command) => complete(command.run()),
        Command::Migrate(command) => complete(command.run()),
        Command::Budget(command) => complete(command.run()),
        Command::Class(command) => complete(command.run()),
        Command::Access(command) => complete(command.run()),
        Command::Fence(command) => complete(command.run()),
        Command::Explain(command) => complete(command.run()),
        Command::Run(command) => complete(command.run()),
        Command::Status(command) => complete(command.run()),
        Command::Serve(command) => complete(command.run()),
        Command::Preflight(command) => complete(command.run()),
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

/// Completes when the user or the system asks the program to stop, from this moment on, and says which signal did.
fn interrupted() -> impl Future<Output = &'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        }
    }
}
