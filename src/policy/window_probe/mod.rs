//! Which kind of window a vendor counts in: fixed, first-call or sliding; found out with few refused calls.
//!
//! A trial is a short pattern of calls after a quiet time in which every kind forgets everything. Three patterns do:
//!
//! * spread: one call opens, then the limit's calls come evenly over almost a window, and one more. A sliding window is full
//!   and refuses that one. A first-call window has ended in between, a fixed one too, wherever its boundaries lie.
//! * straddle: one call opens, the rest of the limit comes shortly before that window ends, one more at once, and two after
//!   the end. A first-call window refuses the one and admits the two; a fixed one does otherwise in half of its phases.
//! * twice: where only a fixed window is left, the whole limit comes before its boundary and once more after it. Nothing
//!   else lets that through, not even a first-call window that somebody else has opened.
//!
//! Trials start at different phases, so that a fixed window cannot hide behind one. What was seen is then held against each
//! kind, each limit and each phase ([`evidence`](self)), by the times between which each call must have arrived:
//!
//! * What was let through is strong: no vendor lets through more than its limit.
//! * What was refused is weak: somebody else may be calling, or the vendor refuses at random. It counts by how likely it is
//!   that a vendor of that kind refused just these calls for no reason and none of the others.
//!
//! A kind is told when it explains everything and every other is dead or that unlikely. Otherwise nothing is told.

mod evidence;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use self::evidence::{Call, Evidence};
use super::Instant;

/// Patterns tried at most.
pub const TRIALS: u32 = 9;
/// Refused calls at most. Most probes need 3 to 6.
pub const REFUSALS: u32 = 16;
/// Calls under way at once, at most: as many may still be refused when the first refusal is known.
pub const IN_FLIGHT: u32 = 6;

/// How long before and after the boundary of a fixed window the pattern twice calls, as a part of the window.
const BEFORE: f64 = 0.35;
const AFTER: f64 = 0.2;

/// What is believed of the vendor, and is not wrong by much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// Calls in a window: 2 or more. With 1, first-call and sliding are the same.
    pub limit: u32,
    pub window: Duration,
}

/// How a vendor's window runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Windows end to end, by the vendor's clock.
    Fixed,
    /// A window opens with the first call after the last one has ended.
    FirstCall,
    /// The window that ends at each call.
    Sliding,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Decided(Kind),
    Undecided(Reason),
}

/// Why no kind can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first call after a quiet time was refused.
    RefusedAfterQuiet,
    /// Everything fits only if the limit is another: this at least, and this at most where a call was refused.
    OtherLimit { at_least: u32, at_most: Option<u32> },
    /// No kind explains what was refused and what was let through.
    Contradiction,
    /// Nothing contradicts, but it is not enough. The slowest answer took this long.
    TooLittle { slowest: Duration },
}

/// What whoever makes the calls is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send one call, not before this moment; answers may come meanwhile, after which to ask again.
    Send(Instant),
    /// Wait for an answer.
    Await,
    Done(Verdict),
}

/// Names a call that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(usize);

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub trials: u32,
    pub calls: u32,
    pub refused: u32,
    /// From the sending of a call to the end of its answer, the longest.
    pub slowest: Duration,
}

/// The probe: it says when to call, is told what came of it, and ends with a verdict.
#[derive(Debug)]
pub struct WindowProbe {
    belief: Belief,
    origin: Instant,
    evidence: Evidence,
    trial: Trial,
    counts: Counts,
    verdict: Option<Verdict>,
}

#[derive(Debug)]
struct Trial {
    pattern: Pattern,
    begins: Instant,
    calls: Vec<Pending>,
    in_flight: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Spread,
    Straddle,
    Twice,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    sent: Instant,
    answer: Option<(Instant, bool)>,
}

impl Belief {
    /// The most calls that a probe sends.
    pub fn most_calls(&self) -> u32 {
        TRIALS * (2 * self.limit).max(self.limit + 3)
    }

    /// How long a probe takes at most, with quick answers.
    pub fn longest(&self) -> Duration {
        self.window * TRIALS * 4
    }
}

impl WindowProbe {
    /// A probe whose first call may leave now. The vendor must have been left alone for a window before.
    pub fn new(belief: Belief, now: Instant) -> Self {
        let trial = Trial::new(Pattern::Spread, now);
        let counts = Counts { trials: 0, calls: 0, refused: 0, slowest: Duration::ZERO };
        Self { belief, origin: now, evidence: Evidence::new(belief.window), trial, counts, verdict: None }
    }

    /// What to do next.
    pub fn next(&mut self, now: Instant) -> Step {
        if let Some(verdict) = self.verdict {
            return Step::Done(verdict);
        }
        if let Some(step) = self.trial.step(self.belief) {
            return step;
        }
        self.finish_trial();
        match self.judge() {
            Some(verdict) => {
                self.verdict = Some(verdict);
                Step::Done(verdict)
            }
            None => {
                self.trial = self.next_trial(now);
                Step::Send(self.trial.begins)
            }
        }
    }

    /// A call leaves now.
    pub fn sent(&mut self, now: Instant) -> CallId {
        self.counts.calls += 1;
        self.trial.in_flight += 1;
        self.trial.calls.push(Pending { sent: now, answer: None });
        CallId(self.trial.calls.len() - 1)
    }

    /// The answer of a call is here: the vendor let it through, or refused it as one too many.
    pub fn answered(&mut self, call: CallId, now: Instant, refused: bool) {
        let Some(pending) = self.trial.calls.get_mut(call.0).filter(|pending| pending.answer.is_none()) else { return };
        pending.answer = Some((now, refused));
        self.trial.in_flight -= 1;
        self.counts.refused += u32::from(refused);
        self.counts.slowest = self.counts.slowest.max(now.saturating_since(pending.sent));
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The calls that were refused although a vendor of this kind, at the limit that suits it best, would have let them
    /// through; none where it would never have let through what was let through.
    pub fn unexplained(&self, kind: Kind) -> Option<u32> {
        self.evidence.unexplained(kind, self.belief.limit)
    }

    fn finish_trial(&mut self) {
        self.counts.trials += 1;
        let us = |at: Instant| i64::try_from(at.saturating_since(self.origin).as_micros()).unwrap_or(i64::MAX);
        let calls = self.trial.calls.iter().filter_map(|call| {
            let (answered, refused) = call.answer?;
            Some(Call { sent: us(call.sent), answered: us(answered), refused })
        });
        self.evidence.add(&calls.collect::<Vec<_>>());
    }

    fn judge(&self) -> Option<Verdict> {
        let limit = self.belief.limit;
        if self.trial.calls.first().and_then(|first| first.answer).is_some_and(|(_, refused)| refused) {
            return Some(Verdict::Undecided(Reason::RefusedAfterQuiet));
        }
        let possible: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| self.evidence.explains(*kind, limit)).collect();
        let told = |kind: &Kind| {
            let shown = *kind != Kind::Fixed || self.evidence.closest() >= 2 * limit;
            shown && Kind::ALL.into_iter().all(|other| other == *kind || self.evidence.is_out(other))
        };
        let goes_on = self.counts.trials < TRIALS && self.counts.refused + IN_FLIGHT <= REFUSALS;
        if let Some(kind) = possible.iter().copied().find(told) {
            return Some(Verdict::Decided(kind));
        }
        let reason = match self.evidence.fitting_limits() {
            _ if !possible.is_empty() && goes_on => return None,
            _ if !possible.is_empty() => Reason::TooLittle { slowest: self.counts.slowest },
            Some((at_least, at_most)) => Reason::OtherLimit { at_least, at_most },
            None => Reason::Contradiction,
        };
        Some(Verdict::Undecided(reason))
    }

    /// While it may be sliding, that pattern goes on, of which a sliding window refuses one call: the other would have two
    /// refused.
    fn next_trial(&self, now: Instant) -> Trial {
        let (window, limit) = (self.belief.window, self.belief.limit);
        let [fixed, first_call, sliding] = Kind::ALL.map(|kind| self.evidence.explains(kind, limit));
        let phase = match self.evidence.boundary(limit) {
            _ if sliding => None,
            Some(part) if fixed && !first_call && self.trial.pattern != Pattern::Twice => Some(part),
            _ => None,
        };
        let (pattern, phase) = match phase {
            // The calls before the boundary need some time, too.
            Some(boundary) if self.evidence.closest() < 2 * limit => {
                (Pattern::Twice, (boundary + 1.0 - BEFORE).fract())
            }
            _ if sliding => (Pattern::Spread, halves(self.counts.trials)),
            _ => (Pattern::Straddle, halves(self.counts.trials)),
        };
        // Longer than any window remembers.
        let earliest = now + window * 7 / 5;
        let first = self.origin + window.mul_f64(phase);
        let whole = earliest.saturating_since(first).as_nanos().div_ceil(window.as_nanos().max(1));
        Trial::new(pattern, first + window * u32::try_from(whole).unwrap_or(u32::MAX))
    }
}

impl Trial {
    fn new(pattern: Pattern, begins: Instant) -> Self {
        Self { pattern, begins, calls: Vec::new(), in_flight: 0 }
    }

    /// What to do next in this trial; none where it is over.
    fn step(&self, Belief { limit, window }: Belief) -> Option<Step> {
        let done = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let (begins, answered) = match self.calls.first() {
            None => return Some(Step::Send(self.begins)),
            Some(Pending { answer: None, .. }) => return Some(Step::Await),
            Some(Pending { sent, answer: Some((answered, _)) }) => (*sent, *answered),
        };
        let alone = |at| Some(if self.in_flight > 0 { Step::Await } else { Step::Send(at) });
        let together = |at| Some(if self.in_flight < IN_FLIGHT { Step::Send(at) } else { Step::Await });
        let over = || if self.in_flight > 0 { Some(Step::Await) } else { None };
        // The call that asks whether the limit is really reached: refused or not, the trial goes on.
        let asking = match self.pattern {
            Pattern::Spread => limit + 1,
            Pattern::Straddle => limit,
            Pattern::Twice => u32::MAX,
        };
        let refused = |(index, call): (usize, &Pending)| {
            call.answer.is_some_and(|(_, refused)| refused) && u32::try_from(index) != Ok(asking)
        };
        if self.calls.iter().enumerate().any(refused) {
            return over();
        }
        match self.pattern {
            Pattern::Spread if done <= limit => {
                let part = f64::from(done - 1) / f64::from(limit - 1);
                together(begins + window.mul_f64(0.35 + 0.85 * part))
            }
            Pattern::Spread if done == asking => alone(begins),
            Pattern::Spread => over(),
            Pattern::Straddle if done < limit => together(begins + window.mul_f64(0.7)),
            Pattern::Straddle if done == asking => alone(begins),
            Pattern::Straddle if done < limit + 3 => alone(answered + window.mul_f64(1.1)),
            Pattern::Straddle => over(),
            Pattern::Twice if done < limit => together(begins),
            // One goes ahead: where it is refused, the others need not be.
            Pattern::Twice if done == limit || done == limit + 1 => alone(begins + window.mul_f64(BEFORE + AFTER)),
            Pattern::Twice if done < 2 * limit => together(begins),
            Pattern::Twice => over(),
        }
    }
}

/// 0, 1/2, 1/4, 3/4, 1/8, 5/8, ...: every second one opposite the one before.
fn halves(mut index: u32) -> f64 {
    let (mut sum, mut part) = (0.0, 0.5);
    while index > 0 {
        sum += part * f64::from(index % 2);
        index /= 2;
        part /= 2.0;
    }
    sum
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Fixed, Kind::FirstCall, Kind::Sliding];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::FirstCall => "first-call",
            Self::Sliding => "sliding",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
