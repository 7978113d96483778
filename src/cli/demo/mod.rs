//! The main job on nothing but a checkout: a fleet of separate processes shares one vendor key, and the vendor counts.

mod figures;
mod fleet;
pub mod plan;
mod stage;
mod view;
pub mod worker;

pub use self::stage::start_server;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;

use self::figures::{Figures, Fleet, Run, Settled, Verdict};
use self::fleet::{Member, Vendor};
use self::stage::Stage;
use self::view::View;
use super::Exit;
use super::command_error::CommandError;
use super::output;
use crate::clock::{Clock, SystemClock};

/// Between two looks at the vendor's report.
const LOOK: Duration = Duration::from_millis(500);
/// By then every class with more demand than its share waits. Windows are judged from the first call all the same.
const SETTLING: Duration = Duration::from_secs(2);
/// From the start line to the first call, so that every process has read it.
const HEAD_START: Duration = Duration::from_millis(200);

/// Run a fleet of separate processes against a mock vendor that counts
///
/// Starts a throw-away PostgreSQL (or uses DATABASE_URL), a mock vendor over
/// real HTTP, and the fleet: order at random 2/s, minute 12/s, index 6/s, eod
/// without end. Ends with a verdict. It does not ask for call_budget_enabled:
/// nothing but the mock vendor is called. Says at its start where database and
/// vendor are, to be looked at from another terminal, with --stay also after
/// the verdict. Everything it started is stopped.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Example: call-budget demo --seconds 20 --json\n\nExit codes: 0 pass, 1 fail, 4 inconclusive (the machine stalled); with --without always 0"
)]
pub struct Demo {
    /// How long the fleet calls, 1 to 3600
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How many processes, 1 to 64
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    processes: u16,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Each process paces itself, the intervals adding up to exactly the limit
    #[arg(long)]
    without: bool,
    /// After the verdict keep database, budget and vendor until Ctrl-C
    #[arg(long)]
    stay: bool,
    /// A database to use instead of a throw-away PostgreSQL
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
}

impl Demo {
    pub async fn run(self) -> Result<Exit, CommandError> {
        let mut stage = Stage::prepare(self.database_url.clone(), !self.without).await?;
        let exit = self.show(&stage).await;
        stage.clear().await;
        exit
    }

    /// From the first call to the verdict, and with `--stay` until somebody says that it is enough.
    async fn show(&self, stage: &Stage) -> Result<Exit, CommandError> {
        let stopped = |signal| CommandError::failed(format!("stopped by {signal}, everything it started is stopped"));
        let (vendor, figures) = tokio::select! {
            done = self.perform(stage) => done?,
            signal = super::interrupted() => return Err(stopped(signal)),
        };
        if self.json {
            output::print_json(&figures);
        } else {
            output::print(&view::summary(&figures, self.without));
        }
        if self.stay {
            eprintln!("the fleet has stopped, everything else stays until Ctrl-C");
            // Where a person looks now: the tables have moved the first ones away.
            eprintln!("{}", view::places(stage.url(), vendor.address()));
            let signal = super::interrupted().await;
            eprintln!("{signal}: everything else is stopped, too");
        }
        vendor.stop().await?;
        Ok(match figures.verdict {
            _ if self.without => Exit::Done,
            Verdict::Pass => Exit::Done,
            Verdict::Fail => Exit::Failed,
            Verdict::Inconclusive => Exit::Inconclusive,
        })
    }

    async fn perform(&self, stage: &Stage) -> Result<(Vendor, Figures), CommandError> {
        let classes = plan::classes();
        let mut run = Run {
            interval_us: stage.interval_us(),
            processes: usize::from(self.processes),
            classes: &classes,
            settings: stage.settings().clone(),
            governed: !self.without,
            settled: Settled::default(),
        };
        let vendor = Vendor::start().await?;
        eprintln!("{}", view::places(stage.url(), vendor.address()));
        let mut members = Vec::new();
        for tasks in plan::spread(run.processes) {
            members.push(Member::start(&vendor, stage.pacing(run.processes), tasks).await?);
        }
        for member in &mut members {
            member.until_ready().await?;
        }
        let begin = SystemClock.now() + HEAD_START;
        let (told_sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        let mut reading = tokio::task::JoinSet::new();
        let mut running = Vec::new();
        for member in members {
            running.push(member.begin(begin, told_sender.clone(), &mut reading).await?);
        }
        drop(told_sender);

        let mut view = View::new(self.seconds, !self.json || std::io::stderr().is_terminal());
        let mut fleet = Fleet::default();
        let mut settled = false;
        let end = begin + Duration::from_secs(self.seconds);
        loop {
            let next = (SystemClock.now() + LOOK).min(end);
            SystemClock.sleep_until(next).await;
            while let Ok((pid, told)) = told.try_recv() {
                fleet.add(pid, told);
            }
            if let Some(dead) = running.iter_mut().find_map(fleet::Running::died) {
                return Err(CommandError::failed(dead));
            }
            let (report, elapsed) = (vendor.report().await?, SystemClock.now().saturating_since(begin));
            if !settled && elapsed >= SETTLING {
                run.settled = Settled::at(&report, &fleet);
                settled = true;
            }
            view.show(&Figures::of(&run, &report, &fleet), elapsed);
            if next >= end {
                break;
            }
        }
        for member in running {
            member.stop().await?;
        }
        while let Some((pid, told)) = told.recv().await {
            fleet.add(pid, told);
        }
        while reading.join_next().await.is_some() {}
        let report = vendor.report().await?;
        view.end();
        let figures = Figures::of(&run, &report, &fleet);
        Ok((vendor, figures))
    }
}
