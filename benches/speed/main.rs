//! The figures of docs/performance.md: `scripts/bench`, or `cargo bench --bench speed -- [PART...] [OPTIONS]`.
//!
//! One PostgreSQL with fsync on serves everything that is compared, in one run and in turns, so that a machine that is
//! shared with others slows all of it alike. What is said of a figure is a ratio to another of the same run.

mod client;
mod ground;
mod growth;
mod measure;
mod options;
mod peers;
mod report;

use std::process::ExitCode;

use clap::Parser;

use ground::Ground;
use options::{Options, Part};
use report::Report;

/// Whatever goes wrong ends the run: a figure that is missing is seen, one that is wrong is not.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Outcome<()> {
    let ground = Ground::start(&options.settings).await?;
    let mut report = Report::new(&ground).await?;
    for part in options.parts() {
        match part {
            Part::OneCaller => peers::one_caller::run(&ground, options, &mut report).await?,
            Part::Peers => peers::run(&ground, options, &mut report).await?,
            Part::Growth => growth::run(&ground, options, &mut report).await?,
            Part::Client => client::run(&ground, options, &mut report).await?,
        }
    }
    report.finish(options)
}
