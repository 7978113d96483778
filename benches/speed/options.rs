//! What is asked of a run.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Measure call-budget, and what others publish, on one throw-away PostgreSQL
#[derive(Parser)]
pub struct Options {
    /// What to measure; everything unless said
    parts: Vec<Part>,
    /// How long each figure is measured for, in seconds
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Shows that everything can be measured; the figures mean nothing
    #[arg(long)]
    pub smoke: bool,
    /// Where to write the figures as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A setting of the server, such as shared_buffers=1GB; figures that a crash could undo are refused
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,
    /// The program redis-server, to measure a script in it too
    #[arg(long, value_name = "PROGRAM")]
    pub redis: Option<PathBuf>,
    /// A directory with pyrate-limiter and psycopg for Python, to measure that too
    #[arg(long, value_name = "PACKAGES")]
    pub pyrate: Option<PathBuf>,
    /// What cargo says to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// One caller beside the bare UPDATE, in short turns
    OneCaller,
    /// Acquire beside what others do with a row
    Peers,
    /// How cost grows with the rate, with lanes, and with a million grants
    Growth,
    /// What it costs in the caller's own process
    Client,
}

impl Options {
    pub fn parts(&self) -> Vec<Part> {
        if self.parts.is_empty() { Part::value_variants().to_vec() } else { self.parts.clone() }
    }

    /// How long one figure is measured for.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(if self.smoke { 0.2 } else { self.seconds })
    }

    /// Processes with a lane each, on one budget.
    pub fn lanes(&self) -> [usize; 4] {
        if self.smoke { [1, 2, 4, 8] } else { [1, 8, 20, 50] }
    }

    /// So many of them stand beside others, who have as many callers.
    pub fn compared_lanes(&self) -> usize {
        self.lanes()[2]
    }

    /// Tasks that wait in one process, few and many.
    pub fn tasks(&self) -> [usize; 2] {
        if self.smoke { [10, 100] } else { [100, 1000] }
    }

    /// Budgets, or keys, where there are many.
    pub fn keys(&self) -> usize {
        if self.smoke { 20 } else { 1000 }
    }

    /// How many runs of each kind alternate; their median counts.
    pub fn runs(&self) -> u32 {
        if self.smoke { 1 } else { 5 }
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is wanted")?;
    Ok((name.to_owned(), value.to_owned()))
}
