//! What a caller has seen of its attempt, and what the vendor's table makes of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::problem::Problem;
use crate::Told;
use crate::policy::verdict::{Broken, Finding, Verdict};

/// What every number of JSON holds for certain: no wait and no attempt is as long.
const MOST_MS: u64 = (1 << 53) - 1;

/// As it comes in: `status` or `error`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Said {
    status: Option<u32>,
    code: Option<String>,
    text: Option<String>,
    retry_after_ms: Option<u64>,
    error: Option<How>,
    elapsed_ms: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum How {
    NotConnected,
    Interrupted,
    TimedOut,
    NotSent,
}

/// What came of an attempt.
pub(super) struct Outcome {
    seen: Seen,
    /// By the caller's own clock.
    pub elapsed: Option<Duration>,
}

enum Seen {
    Answer { status: u16, code: Option<String>, text: Option<String>, retry_after: Option<Duration> },
    Broken(Broken),
    NotSent,
}

impl Said {
    /// What it means.
    ///
    /// # Errors
    /// It is neither an answer nor an error, or a number is none that can be.
    pub fn outcome(self) -> Result<Outcome, Problem> {
        let Self { status, code, text, retry_after_ms, error, elapsed_ms } = self;
        let elapsed = match elapsed_ms {
            Some(ms) if !(0.0..=MOST_MS as f64).contains(&ms) => {
                return Err(Problem::bad_request(format!("elapsed_ms lies between 0 and {MOST_MS}")));
            }
            ms => ms.map(|ms| Duration::from_secs_f64(ms / 1000.0)),
        };
        if retry_after_ms.is_some_and(|ms| ms > MOST_MS) {
            return Err(Problem::bad_request(format!("retry_after_ms lies between 0 and {MOST_MS}")));
        }
        let seen = match (status, error) {
            (Some(status), None) => match u16::try_from(status) {
                Ok(status @ 100..=599) => {
                    Seen::Answer { status, code, text, retry_after: retry_after_ms.map(Duration::from_millis) }
                }
                _ => return Err(Problem::bad_request(format!("status is {status}: it lies between 100 and 599"))),
            },
            (None, Some(_)) if code.is_some() || text.is_some() || retry_after_ms.is_some() => {
                return Err(Problem::bad_request("code, text and retry_after_ms are an answer's: say its status too"));
            }
            (None, Some(How::NotConnected)) => Seen::Broken(Broken::NotConnected),
            (None, Some(How::Interrupted)) => Seen::Broken(Broken::Interrupted),
            (None, Some(How::TimedOut)) => Seen::Broken(Broken::TimedOut),
            (None, Some(How::NotSent)) => Seen::NotSent,
            _ => return Err(Problem::bad_request("say either status, where an answer came, or error, where none did")),
        };
        Ok(Outcome { seen, elapsed })
    }
}

impl Outcome {
    /// None: it was not sent.
    pub fn told(&self) -> Option<Told<'_>> {
        match &self.seen {
            Seen::Answer { status, code, text, retry_after } => Some(Told::Answer {
                status: *status,
                code: code.as_deref(),
                text: text.as_deref(),
                retry_after: *retry_after,
            }),
            Seen::Broken(how) => Some(Told::Broken(*how)),
            Seen::NotSent => None,
        }
    }
}

/// What the vendor's table makes of it.
#[derive(Serialize)]
pub(super) struct Settled {
    verdict: &'static str,
    code: Option<String>,
    meaning: String,
    throttled: bool,
    outcome_unknown: bool,
    never_again: bool,
    no_data: bool,
}

impl Settled {
    pub fn not_sent() -> Self {
        Self {
            verdict: word(Verdict::None),
            code: None,
            meaning: "It was not sent: nothing was seen of the vendor, and the slot is spent.".into(),
            throttled: false,
            outcome_unknown: false,
            never_again: false,
            no_data: false,
        }
    }
}

impl From<Finding> for Settled {
    fn from(finding: Finding) -> Self {
        let Finding { verdict, code, throttled, outcome_unknown, never_again, no_data, meaning, .. } = finding;
        let (code, meaning) = (code.map(|code| code.to_string()), meaning.to_string());
        Self { verdict: word(verdict), code, meaning, throttled, outcome_unknown, never_again, no_data }
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Bad => "bad",
        Verdict::None => "none",
    }
}
