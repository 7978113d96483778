//! `call-budget run`: a cron job or a shell script under the same limit as everybody else.

mod job;
mod program;
mod signals;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;

use super::Exit;
use super::command_error::CommandError;
use super::database::Database;
use super::duration::rough;
use super::output::{print, print_json};
use crate::clock::{Clock, SystemClock};
use crate::config::parse_duration;
use crate::policy::{Instant, Wall};
use crate::{AcquireError, CallBudget, Code, Options, Sending};

use job::Job;
use program::{Program, Running};
use signals::Signals;

/// EX_TEMPFAIL of sysexits.h: the same command may work later.
const TRY_LATER: Exit = Exit::Code(75);
/// EX_UNAVAILABLE of sysexits.h.
const STORE: Exit = Exit::Code(69);

/// Wait for a permit, then run a command: cron jobs get the same limit
///
/// The command makes one call, and at once: the time from its start to the
/// call's arrival varies, and the budget's arrival jitter has to hold that.
/// While the switch call_budget_enabled is off, the command runs at once and
/// no store is touched.
///
/// Signals (TERM, INT, HUP, QUIT, USR1, USR2) go on to the command; before its
/// permit has come they end the wait, and nothing is started. INT and QUIT do
/// not go on while this process is in the foreground of its terminal, which
/// has told the command itself. What was ignored at the start, as by nohup,
/// stays ignored.
///
/// --job counts the sends of many runs, from a loop or from xargs -P, and
/// says after each run when the first and the last one left. Counting goes on
/// for as long as the name is the same: one with a date begins anew each day,
/// such as --job eod-$(date +%F).
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "call-budget run [OPTIONS] <BUDGET> <CLASS> -- <COMMAND>...
       call-budget run --job <NAME> --report [--json]",
    after_help = "\
Example: call-budget run kis-real eod -- curl --silent https://vendor/price

Exit codes: the command's own, or 128 + N if signal N ended it. Where it was not
started: 75 try later (paused, wait exceeded), 69 the store is unavailable, also
at the end of the wait, or its answer uncertain, 2 usage, settings, unknown
budget or class, 126 it cannot be executed, 127 it is not found, 128 + N signal
N ended the wait"
)]
pub struct Run {
    /// The budget's name
    #[arg(required_unless_present = "report")]
    budget: Option<String>,
    /// The class's name
    #[arg(required_unless_present = "report")]
    class: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "report")]
    command: Vec<OsString>,
    /// Units that the call counts at the vendor
    #[arg(long, value_name = "UNITS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    cost: u32,
    /// How long to wait for the permit; where not given, the setting max_wait
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_wait: Option<Duration>,
    /// Count this run under a job's name, and report its first and last send
    #[arg(long, value_name = "NAME", value_parser = job::name)]
    job: Option<String>,
    /// Where the jobs' counts are kept
    ///
    /// Where not given: $XDG_STATE_HOME/call-budget/jobs, or else
    /// ~/.local/state/call-budget/jobs
    #[arg(long, value_name = "DIRECTORY", requires = "job", verbatim_doc_comment)]
    job_dir: Option<PathBuf>,
    /// Only print what was counted under the job's name
    #[arg(long, requires = "job", conflicts_with_all = ["budget", "class", "command"])]
    report: bool,
    /// Print the report as JSON
    #[arg(long, requires = "report")]
    json: bool,
    #[command(flatten)]
    database: Database,
}

impl Run {
    pub async fn run(self) -> Result<Exit, CommandError> {
        let job = self.job.as_ref().map(|name| Job::of(name, self.job_dir.as_deref())).transpose()?;
        match job {
            Some(job) if self.report => {
                let counts = job.counts()?;
                match self.json {
                    true => print_json(&counts.in_full(job.name())),
                    false => print(&counts.in_words(job.name(), SystemClock.wall())),
                }
                Ok(Exit::Done)
            }
            job => self.execute(job).await,
        }
    }

    /// What can be wrong without a slot is found before one is asked for.
    async fn execute(self, job: Option<Job>) -> Result<Exit, CommandError> {
        let program = Program::find(&self.command)?;
        let settings = self.database.settings()?;
        let budgets = CallBudget::new(&settings)?;
        if let Some(job) = &job {
            job.prepare()?;
        }
        let mut signals = Signals::listen()
            .map_err(|error| CommandError::failed(format!("the program cannot listen for signals: {error}")))?;
        // Cron mails whatever is printed: where nobody looks, the library's own event says it to those who ask for it.
        if !settings.enabled && std::io::stderr().is_terminal() {
            say(&"call-budget: call_budget_enabled is false, the command runs without the shared limit");
        }
        let asked = SystemClock.now();
        let started = tokio::select! {
            biased;
            signal = signals.next() => Err(cut(signal)),
            started = self.start(&program, &budgets, asked + self.max_wait.unwrap_or(settings.max_wait)) => started,
        };
        let waited = SystemClock.now().saturating_since(asked);
        // A command may last for hours, and needs no session of the store.
        drop(budgets);
        let Started { mut command, at, sending } = match started {
            Ok(started) => started,
            Err(refused) => {
                if let Some(job) = &job {
                    tell(job, job.refused(waited).await);
                }
                return Err(refused);
            }
        };
        // Counted beside the command, and not after it: what was sent stays counted, however this process ends.
        let counting = async {
            match &job {
                Some(job) => job.sent(at, waited).await,
                None => Ok(()),
            }
        };
        let (exit, counted) = tokio::join!(command.ended(&mut signals), counting);
        drop(sending);
        if let Some(job) = &job {
            tell(job, counted);
        }
        exit.map(Exit::Code)
    }

    /// Starts the command inside the send window of a permit; a window that had closed is no reason to give up.
    async fn start(&self, program: &Program, budgets: &CallBudget, deadline: Instant) -> Result<Started, CommandError> {
        let (budget, class) = (self.budget.as_deref().unwrap_or_default(), self.class.as_deref().unwrap_or_default());
        loop {
            let max_wait = deadline.saturating_since(SystemClock.now());
            let options = Options { cost: self.cost, max_wait: Some(max_wait) };
            let permit = budgets.acquire_with(budget, class, options).await.map_err(|error| refused(&error))?;
            if let Ok(sending) = permit.start() {
                let at = SystemClock.wall();
                return Ok(Started { command: program.start()?, at, sending });
            }
        }
    }
}

struct Started {
    command: Running,
    at: Wall,
    sending: Sending,
}

fn refused(error: &AcquireError) -> CommandError {
    let exit = match error.code() {
        // Time ran out while the store failed: what has to come back is the store.
        Code::WaitExceeded if error.stage().is_some() || error.may_have_spent() => STORE,
        Code::WaitExceeded | Code::Paused => TRY_LATER,
        Code::StoreUnavailable | Code::Uncertain => STORE,
        Code::UnknownBudget | Code::UnknownClass | Code::Misconfigured => Exit::Usage,
    };
    let hint = match error.code() {
        // These say it themselves.
        Code::UnknownBudget | Code::UnknownClass => None,
        _ => error.retry_after().map(|after| {
            let us = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
            format!("try again in {}", rough(us))
        }),
    };
    CommandError { exit, message: format!("the command was not started: {error}"), hint }
}

fn cut(signal: Signal) -> CommandError {
    let message = format!("{} came while waiting for the permit: the command was not started", signals::name(signal));
    CommandError { exit: Exit::Code(program::ended_by(signal.as_raw())), message, hint: None }
}

/// The job's line after a run, or why there is none. The exit code is the command's all the same.
fn tell(job: &Job, counted: Result<(), CommandError>) {
    match counted.and_then(|()| job.counts()) {
        Ok(counts) => say(&counts.in_words(job.name(), SystemClock.wall())),
        Err(error) => say(&error),
    }
}

/// One line on standard error. Nobody there to read it is no reason to fail.
fn say(line: &dyn Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
