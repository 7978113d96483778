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
    /// Good calls in CLOSED that end an episode, none of them slow.
    pub episode_good: u32,
    /// Time in CLOSED without a bad or slow one that ends an episode.
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
        Self {
            streak: Some(5),
            rate: None,
            slow: None,
            schedule: [30, 60, 120, 300].map(Duration::from_secs).to_vec(),
            jitter: 0.1,
            probes: Probes { needed: 1, allowed_bad: 0, parallel: 1, timeout: Duration::from_mins(1) },
            episode_good: 3,
            episode_quiet: Duration::from_mins(5),
            calendar: Calendar::default(),
        }
    }

    /// Seed 002: five in a row; 60 s; one probe.
    pub fn per_provider() -> Self {
        Self { schedule: vec![Duration::from_mins(1)], ..Self::escalating() }
    }

    /// Seed 003, KIS: half of the last 20 bad, or four fifths of them slow from 3 s on; 30 s; three probes, two of them good.
    pub fn rate_kis() -> Self {
        let over = Over::Calls(20);
        Self {
            streak: None,
            rate: Some(Rate { over, min: 10, at_least: 0.5 }),
            slow: Some(Slow { limit: Duration::from_secs(3), over, min: 10, at_least: 0.8 }),
            schedule: vec![Duration::from_secs(30)],
            probes: Probes { needed: 2, allowed_bad: 1, parallel: 3, timeout: Duration::from_mins(1) },
            ..Self::escalating()
        }
    }

    /// Seed 003, Yahoo: three fifths of the last 100 bad, or all of them slow from 5 s on; 60 s; five probes, three of them
    /// good.
    pub fn rate_yahoo() -> Self {
        let over = Over::Calls(100);
        Self {
            streak: None,
            rate: Some(Rate { over, min: 5, at_least: 0.6 }),
            slow: Some(Slow { limit: Duration::from_secs(5), over, min: 5, at_least: 1.0 }),
            schedule: vec![Duration::from_mins(1)],
            probes: Probes { needed: 3, allowed_bad: 2, parallel: 5, timeout: Duration::from_mins(1) },
            ..Self::escalating()
        }
    }

    /// The preset of this name: `escalating`, `per-provider`, `rate-kis`, `rate-yahoo`.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "escalating" => Some(Self::escalating()),
            "per-provider" => Some(Self::per_provider()),
            "rate-kis" => Some(Self::rate_kis()),
            "rate-yahoo" => Some(Self::rate_yahoo()),
            _ => None,
        }
    }

    /// Why these rules make no sense, in a sentence that names the field.
    ///
    /// # Errors
    /// The first such sentence.
    pub fn check(&self) -> Result<(), String> {
        between("streak", self.streak.unwrap_or(1), 1, MOST_IN_A_ROW)?;
        if let Some(rate) = self.rate {
            check_share("rate", rate.over, rate.min, rate.at_least)?;
        }
        if let Some(slow) = self.slow {
            lasts("slow.limit", slow.limit)?;
            check_share("slow", slow.over, slow.min, slow.at_least)?;
        }
        if self.schedule.is_empty() {
            return Err("schedule must have at least one wait".to_owned());
        }
        for wait in &self.schedule {
            lasts("schedule", *wait)?;
        }
        if !(0.0..=0.1).contains(&self.jitter) {
            return Err(format!("jitter must be from 0 to 0.1, not {}", self.jitter));
        }
        between("probes.needed", self.probes.needed, 1, MOST_PROBES)?;
        between("probes.allowed_bad", self.probes.allowed_bad, 0, MOST_PROBES)?;
        between("probes.parallel", self.probes.parallel, 1, MOST_PROBES)?;
        lasts("probes.timeout", self.probes.timeout)?;
        between("episode_good", self.episode_good, 1, u32::MAX)?;
        lasts("episode_quiet", self.episode_quiet)
    }

    /// Whether one logical call of this many attempts could trip it alone; names the rule that would.
    pub fn tripped_by_one_call(&self, attempts: u32) -> Option<&'static str> {
        if self.streak == Some(1) {
            Some("streak")
        } else if self.rate.is_some_and(|rate| rate.min <= attempts) {
            Some("rate.min")
        } else if self.slow.is_some_and(|slow| slow.min <= attempts) {
            Some("slow.min")
        } else {
            None
        }
    }
}

fn check_share(rule: &str, over: Over, min: u32, at_least: f64) -> Result<(), String> {
    match over {
        Over::Calls(calls) => {
            between(&format!("{rule}.over"), calls, 1, MOST_CALLS)?;
            between(&format!("{rule}.min"), min, 1, calls)?;
        }
        Over::Time(length) => {
            lasts(&format!("{rule}.over"), length)?;
            between(&format!("{rule}.min"), min, 1, u32::MAX)?;
        }
    }
    if at_least > 0.0 && at_least <= 1.0 {
        return Ok(());
    }
    Err(format!("{rule}.at_least must be more than 0 and at most 1, not {at_least}"))
}

fn between(field: &str, value: u32, least: u32, most: u32) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{field} must be from {least} to {most}, not {value}"))
}

fn lasts(field: &str, duration: Duration) -> Result<(), String> {
    if !duration.is_zero() && duration <= LONGEST {
        return Ok(());
    }
    Err(format!("{field} must be longer than 0 and at most {} days, not {duration:?}", LONGEST.as_secs() / 86_400))
}

/// Who failed is looked up among as many calls.
const MOST_IN_A_ROW: u32 = 1000;
/// A bit each, kept from the beginning.
const MOST_CALLS: u32 = 100_000;
/// More is no probe any more.
const MOST_PROBES: u32 = 1000;
/// Longer waits are a mistake of units.
const LONGEST: Duration = Duration::from_hours(24 * 366);
