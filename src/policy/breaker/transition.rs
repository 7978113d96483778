//! The transitions, and what time alone makes due.

use super::event::Cause;
use super::probes::{Round, Shows};
use super::{Breaker, Episode, Event, Instant, Moment, Open, State, Wall};

impl Breaker {
    /// What time has made due, each at its own instant: an order ran out, an episode is over, a closed window has passed,
    /// probes are lost. Costs a few comparisons while nothing is.
    pub(super) fn catch_up(&mut self, at: Moment) {
        if self.by_hand.is_some() {
            self.run_out(at.now);
        }
        if let Some(episode) = &self.episode
            && matches!(self.state, State::Closed)
            && self.by_hand.is_none()
        {
            let over = episode.quiet_since + self.rules.episode_quiet;
            if over <= at.now {
                self.end_episode(over);
            }
        }
        if at.wall < self.stretch.from || at.wall >= self.stretch.to {
            self.read_calendar(at);
        }
        while let State::Open(open) = &mut self.state
            && let Some(lost) = open.round.lose(at.now, self.rules.probes.timeout)
        {
            if let Some(episode) = &mut self.episode {
                episode.lost_probes += u32::from(lost.was_sent);
            }
            self.decide(earlier(at, lost.at));
        }
    }

    /// Counts the running calls that have become overdue.
    pub(super) fn see_overdue(&mut self, at: Moment) {
        if self.trip.see_overdue(at.now) {
            self.trip_if_due(at);
        }
    }

    /// Opens it if the trip rules say so. Whether it did.
    pub(super) fn trip_if_due(&mut self, at: Moment) -> bool {
        if self.by_hand.is_some() || !matches!(self.state, State::Closed) {
            return false;
        }
        let cause = self.trip.due(at.now);
        if let Some(cause) = cause {
            self.open(at, cause);
        }
        cause.is_some()
    }

    /// A good one in CLOSED brings the end of an episode nearer; a bad one puts it off, and so does a slow one where slow
    /// matters: a vendor that answers too late has not recovered.
    pub(super) fn heal(&mut self, at: Moment, bad: bool) {
        let Some(episode) = &mut self.episode else { return };
        if self.by_hand.is_some() || !matches!(self.state, State::Closed) {
            return;
        }
        if bad {
            episode.quiet_from(at.now);
            return;
        }
        episode.good_in_row += 1;
        if episode.good_in_row >= self.rules.episode_good {
            self.end_episode(at.now);
        }
    }

    /// What the round of probes has shown by now.
    pub(super) fn decide(&mut self, at: Moment) {
        let State::Open(open) = &self.state else { return };
        match open.round.shows(&self.rules.probes) {
            Shows::Nothing => {}
            Shows::Recovery => self.close(at),
            Shows::Failure => self.open(at, Cause::Probe),
            Shows::NoEvidence => self.open(at, Cause::NoEvidence),
        }
    }

    /// OPEN from now on. The first time in an episode begins it; each other one is a rung higher, but without evidence:
    /// that is no failure, so it does neither.
    fn open(&mut self, at: Moment, cause: Cause) {
        self.count_time(at.now);
        let (passed_over, bad_probes) = match &self.state {
            State::Open(open) => (open.passed_over, open.round.bad_count()),
            State::Closed => (None, 0),
        };
        let by_probes = matches!(cause, Cause::Probe | Cause::NoEvidence);
        let fail_count = if by_probes { bad_probes } else { self.trip.streak.count() };
        let reopen_count = match &mut self.episode {
            Some(episode) => {
                episode.reopen_count += 1;
                if cause != Cause::NoEvidence {
                    self.schedule.up(&self.rules);
                }
                episode.reopen_count
            }
            None if cause == Cause::NoEvidence => 0,
            None => {
                self.episode = Some(Episode::new(at, cause));
                0
            }
        };
        let wait = self.schedule.draw(&self.rules, at);
        let until = self.asked.map_or(at.now + wait, |asked| asked.until.max(at.now + wait));
        self.state =
            State::Open(Open { until, around_until: None, round: Round::default(), cause: Some(cause), passed_over });
        self.next_epoch();
        let (open_for, rung) = (until.saturating_since(at.now), self.schedule.rung());
        self.tell(if by_probes && (reopen_count > 0 || self.episode.is_none()) {
            Event::Reopened { cause, reopen_count, open_for, rung }
        } else {
            Event::Opened { cause, fail_count, reopen_count, open_for, rung }
        });
    }

    pub(super) fn close(&mut self, at: Moment) {
        self.count_time(at.now);
        self.state = State::Closed;
        self.next_epoch();
        let probe_count = self.episode.as_ref().map_or(0, |episode| episode.probe_count);
        if let Some(episode) = &mut self.episode {
            episode.quiet_from(at.now);
        }
        self.tell(Event::Closed { probe_count });
    }

    /// After a closed window a probe goes first: OPEN and due, without an episode of its own.
    fn read_calendar(&mut self, at: Moment) {
        let last_read = self.calendar_read.replace(at.wall);
        self.stretch = self.rules.calendar.at(at.wall);
        let Some(last_read) = last_read else { return };
        let passed = self.rules.calendar.last_closed_end(at.wall).is_some_and(|end| end > last_read);
        if passed && matches!(self.state, State::Closed) {
            self.count_time(at.now);
            let round = Round::default();
            self.state = State::Open(Open { until: at.now, around_until: None, round, cause: None, passed_over: None });
            self.next_epoch();
        }
    }

    pub(super) fn end_episode(&mut self, ended: Instant) {
        if let Some(episode) = self.episode.take() {
            self.schedule.back_to_the_start();
            self.tell(Event::EpisodeSummary(episode.summary(ended)));
        }
    }

    /// Everything handed out before is stale from now on, and what was counted is forgotten.
    pub(super) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.trip.clear();
        (self.counts.successes, self.counts.failures) = (0, 0);
        self.asked = None;
        if let State::Open(open) = &mut self.state {
            open.round = Round::default();
        }
    }

    /// Counts blocked time up to now. To be called before state or order change.
    pub(super) fn count_time(&mut self, now: Instant) {
        let blocked = matches!(self.state, State::Open(_)) && !self.lets_all_pass();
        if let Some(episode) = &mut self.episode {
            episode.count_time(now, blocked);
        }
    }

    fn lets_all_pass(&self) -> bool {
        self.hand().is_some_and(|hand| hand != super::Hand::ForceOpen)
    }
}

/// The same clocks at an earlier instant.
fn earlier(at: Moment, then: Instant) -> Moment {
    let wall: Wall = at.wall - at.now.saturating_since(then);
    Moment { now: then, wall }
}
