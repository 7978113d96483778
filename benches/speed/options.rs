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
    /// What cargo says to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
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

    /// How many runs of each kind alternate; their median counts.
    pub fn runs(&self) -> u32 {
        if self.smoke { 1 } else { 5 }
    }
}
