use std::time::Duration;

use super::event::Cause;
use super::{Breaker, Hand, Mode, Moment, State};
use crate::policy::{Instant, Wall};

/// What there is to see of a breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub shown: Shown,
    /// 0 to 1 over the window of the rate rule; none without that rule or below its minimum.
    pub failure_rate: Option<f64>,
    pub slow_rate: Option<f64>,
    /// Bad verdicts in a row.
    pub streak: u32,
    /// Outcomes since the epoch began: calls = successes + failures.
    pub calls: u64,
    pub successes: u64,
    pub failures: u64,
    /// Since it was made.
    pub rejected: u64,
    pub stale: u64,
    /// Why it is not simply closed, in a few words; empty where it is.
    pub why: String,
    pub retry_at: Option<Instant>,
    pub rung: usize,
    pub epoch: u64,
    pub episode: Option<EpisodeView>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpisodeView {
    pub started_at: Wall,
    pub total_open: Duration,
    pub reopen_count: u32,
    pub probe_count: u32,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    Closed,
    Open,
    ProbeDue,
    Probing,
    /// A closed window of the calendar; with the coordinator's holds also a held surface.
    Held,
    ForcedOpen,
    Bypass,
    Observe,
}

impl Shown {
    /// As logs, status and settings write it, such as `probe_due`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Shown::Closed => "closed",
            Shown::Open => "open",
            Shown::ProbeDue => "probe_due",
            Shown::Probing => "probing",
            Shown::Held => "held",
            Shown::ForcedOpen => "forced_open",
            Shown::Bypass => "bypass",
            Shown::Observe => "observe",
        }
    }
}

impl Breaker {
    /// What there is to see, with what time has made due. A running call that is overdue shows once a call or
    /// [`Breaker::tend`] has seen it. Changes nothing.
    pub fn view(&self, at: Moment) -> View {
        let mut seen = self.clone();
        let at = seen.forward(at);
        seen.catch_up(at);
        seen.count_time(at.now);
        let shown = seen.shown(at);
        // A call of nobody's, which may probe.
        let obstacle = seen.obstacle(at, u64::MAX, true);
        View {
            shown,
            failure_rate: seen.trip.failure_rate(at.now),
            slow_rate: seen.trip.slow_rate(at.now),
            streak: seen.trip.streak.count(),
            calls: seen.counts.successes + seen.counts.failures,
            successes: seen.counts.successes,
            failures: seen.counts.failures,
            rejected: seen.counts.rejected,
            stale: seen.counts.stale,
            why: seen.why(shown),
            retry_at: obstacle.map(|refusal| refusal.retry_at),
            rung: seen.schedule.rung(),
            epoch: seen.epoch,
            episode: seen.episode.as_ref().map(|episode| episode.view()),
        }
    }

    fn shown(&self, at: Moment) -> Shown {
        match (self.hand(), &self.state) {
            (Some(Hand::ForceOpen), _) => Shown::ForcedOpen,
            (Some(Hand::Bypass), _) => Shown::Bypass,
            (Some(Hand::Observe), _) => Shown::Observe,
            _ if self.stretch.mode == Some(Mode::Closed) => Shown::Held,
            (None, State::Closed) => Shown::Closed,
            (None, State::Open(open)) if open.until > at.now => Shown::Open,
            (None, State::Open(open)) if open.round.out() > 0 => Shown::Probing,
            (None, State::Open(_)) => Shown::ProbeDue,
        }
    }

    fn why(&self, shown: Shown) -> String {
        match (shown, &self.by_hand, &self.state) {
            (_, Some(in_force), _) => format!("{}: {}", in_force.order.who, in_force.order.why),
            (Shown::Held, _, _) => "a closed window of the calendar".to_owned(),
            (_, _, State::Closed) => String::new(),
            (_, _, State::Open(open)) => {
                let after_window = "a closed window has passed: a probe goes first";
                open.cause.map_or(after_window, Cause::as_words).to_owned()
            }
        }
    }
}
