use std::time::Duration;

use super::calendar::Calendar;

/// When a breaker opens, how long it waits, and what proves recovery.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// This many bad verdicts in a row, however far apart.
    pub streak: Option<u32>,
    pub rate: Option<Rate>,
    pub slow: Option<Slow>,
    /// The open waits, rung by rung; the last repeats.
    pub schedule: Vec<Duration>,
    /// Waits are up to this much longer: 0 to 0.1.
    pub jitter: f64,
    pub probes: Probes,
    /// Good calls in CLOSED that end an episode.
    pub episode_good: u32,
    /// Time in CLOSED without a bad one that ends an episode.
    pub episode_quiet: Duration,
    pub calendar: Calendar,
}

/// Bad outcomes among the last ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub over: Over,
    /// Outcomes that there must be before the rate says anything.
    pub min: u32,
    /// 0 < at_least <= 1.
    pub at_least: f64,
}

/// Slow outcomes among the last ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slow {
    /// From here on an attempt is slow.
    pub limit: Duration,
    pub over: Over,
    pub min: u32,
    pub at_least: f64,
}

/// Which outcomes are the last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Calls(u32),
    Time(Duration),
}

/// What proves recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probes {
    pub needed: u32,
    pub allowed_bad: u32,
    pub parallel: u32,
    /// A probe without an answer for this long is lost, and replaced.
    pub timeout: Duration,
}

impl Rules {
    /// Seed 000: five in a row; 30, 60, 120, 300 s; one probe.
    pub fn escalating() -> Self {
        todo!()
    }

    /// Seed 002: five in a row; 60 s; one probe.
    pub fn per_provider() -> Self {
        todo!()
    }

    /// Seed 003, KIS.
    pub fn rate_kis() -> Self {
        todo!()
    }

    /// Seed 003, Yahoo.
    pub fn rate_yahoo() -> Self {
        todo!()
    }

    /// The preset of this name: `escalating`, `per-provider`, `rate-kis`, `rate-yahoo`.
    pub fn preset(name: &str) -> Option<Self> {
        let _ = name;
        todo!()
    }

    /// Why these rules make no sense, in a sentence that names the field.
    pub fn check(&self) -> Result<(), String> {
        todo!()
    }

    /// Whether one logical call of this many attempts could trip it alone; names the rule that would.
    pub fn tripped_by_one_call(&self, attempts: u32) -> Option<&'static str> {
        let _ = attempts;
        todo!()
    }
}
