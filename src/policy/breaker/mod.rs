//! One state machine in front of a vendor.
//!
//! Stored are CLOSED or OPEN(until); half-open is computed: OPEN and due. There is no timer and no transition made by a
//! reader, so nothing can get stuck.

mod by_hand;
pub mod calendar;
mod episode;
pub mod event;
mod obstacle;
mod pass;
mod probes;
pub mod rules;
mod schedule;
mod transition;
mod trip;
pub mod view;
mod window;

#[cfg(test)]
mod tests;

use std::time::Duration;

use by_hand::{Hand, InForce};
use calendar::{Mode, Span};
use episode::Episode;
use event::Cause;
use probes::Round;
use schedule::Schedule;
use trip::Trip;

use super::verdict::Verdict;
use super::{Instant, Wall};

pub use event::Event;
pub use pass::{Caller, Counted, Moment, Order, Outcome, Pass, Reason, Refusal};
pub use rules::Rules;
pub use view::{Shown, View};

/// The machine. Calls on it are cheap; time is an argument, and one that goes backwards stands still.
#[derive(Clone, Debug)]
pub struct Breaker {
    rules: Rules,
    state: State,
    epoch: u64,
    next_pass: u64,
    /// The latest moment that it has seen.
    latest: Instant,
    trip: Trip,
    schedule: Schedule,
    episode: Option<Episode>,
    by_hand: Option<InForce>,
    /// The stretch of the calendar that was read last.
    stretch: Span,
    /// When the calendar was read last, by the wall clock.
    calendar_read: Option<Wall>,
    /// No open wait of this epoch ends earlier: the vendor asked for it.
    asked_until: Option<Instant>,
    counts: Counts,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
enum State {
    Closed,
    Open(Open),
}

#[derive(Clone, Debug)]
struct Open {
    /// From here on a probe is due.
    until: Instant,
    /// The stretch of the calendar around `until`, once somebody asked.
    around_until: Option<Span>,
    round: Round,
    /// None after a closed window.
    cause: Option<Cause>,
    passed_over: Option<PassedOver>,
}

/// The call that failed the last probe: others go first.
#[derive(Clone, Copy, Debug)]
struct PassedOver {
    call: u64,
    failed: Instant,
    /// Another one was refused since.
    others_wait: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    successes: u64,
    failures: u64,
    rejected: u64,
    stale: u64,
}

impl Breaker {
    /// A closed breaker. `seed` draws the jitter of its waits.
    ///
    /// # Errors
    /// Rules that make no sense, in a sentence.
    pub fn new(rules: Rules, seed: u64) -> Result<Self, String> {
        rules.check()?;
        // Read at the first call, and never where there are no windows.
        let (from, to) = if rules.calendar.windows.is_empty() { (i64::MIN, i64::MAX) } else { (0, 0) };
        Ok(Self {
            trip: Trip::new(&rules),
            schedule: Schedule::new(seed),
            rules,
            state: State::Closed,
            epoch: 0,
            next_pass: 0,
            latest: Instant::default(),
            episode: None,
            by_hand: None,
            stretch: Span { from: Wall::from_unix_us(from), to: Wall::from_unix_us(to), mode: None },
            calendar_read: None,
            asked_until: None,
            counts: Counts::default(),
            events: Vec::new(),
        })
    }

    /// Leave for one attempt, or why not.
    ///
    /// # Errors
    /// The reason, and the next instant at which something can change.
    pub fn admit(&mut self, at: Moment, caller: Caller) -> Result<Pass, Refusal> {
        let at = self.forward(at);
        self.catch_up(at);
        self.see_overdue(at);
        if let Some(refusal) = self.obstacle(at, caller.call, caller.may_probe) {
            self.rejected();
            if let State::Open(Open { passed_over: Some(passed_over), .. }) = &mut self.state {
                passed_over.others_wait |= caller.may_probe && caller.call != passed_over.call;
            }
            return Err(refusal);
        }
        let id = self.next_pass;
        self.next_pass += 1;
        let probe = self.is_probing();
        if let State::Open(open) = &mut self.state
            && probe
        {
            open.round.enter(id, at.now);
        }
        let mut pass =
            Pass { id, epoch: self.epoch, call: caller.call, probe, admitted: at.now, began: None, running: None };
        if caller.starts_now {
            self.begin(at, &mut pass);
        }
        Ok(pass)
    }

    /// The attempt begins now. Refused where the pass no longer counts: then nothing may be sent, and the pass is over.
    ///
    /// # Errors
    /// It is of an older epoch, a probe that was replaced, or a closed window has begun.
    pub fn sending(&mut self, at: Moment, pass: &mut Pass) -> Result<(), Refusal> {
        let at = self.forward(at);
        self.catch_up(at);
        self.see_overdue(at);
        if self.is_stale(pass) {
            self.rejected();
            let retry_at = self.obstacle(at, pass.call, true).map_or(at.now + AT_ONCE, |refusal| refusal.retry_at);
            return Err(Refusal { reason: Reason::Stale, retry_at });
        }
        if pass.began.is_some() {
            return Ok(());
        }
        if let Some(refusal) = self.closed_window(at) {
            self.rejected();
            if let State::Open(open) = &mut self.state {
                open.round.leave(pass.id);
            }
            return Err(refusal);
        }
        self.begin(at, pass);
        Ok(())
    }

    /// The attempt ended as `outcome` says.
    pub fn settle(&mut self, at: Moment, pass: Pass, outcome: Outcome) -> Counted {
        let at = self.forward(at);
        self.catch_up(at);
        if self.is_stale(&pass) {
            self.counts.stale += 1;
            return Counted::Stale;
        }
        let elapsed = outcome.elapsed.or_else(|| pass.began.map(|began| at.now.saturating_since(began)));
        let is_slow = self.trip.is_slow(elapsed.unwrap_or_default());
        if outcome.verdict == Verdict::Bad {
            let asked_until = outcome.retry_after.map(|wait| at.now + wait);
            self.asked_until = self.asked_until.max(asked_until);
        }
        if pass.probe {
            self.settle_probe(at, &pass, outcome.verdict, is_slow);
        } else if self.hand() != Some(Hand::Bypass) {
            self.settle_normal(at, &pass, outcome.verdict, is_slow);
        }
        Counted::Yes
    }

    /// The caller gave up. `heard`: at least one byte of an answer had come; without one, an attempt that had already taken
    /// longer than the slow limit counts as slow, or as a failed probe. Other than that nothing was learned: a probe that was
    /// sent counts among those without evidence, and one that never was does not.
    pub fn abandon(&mut self, at: Moment, pass: Pass, heard: bool) {
        let at = self.forward(at);
        self.catch_up(at);
        if self.is_stale(&pass) {
            return;
        }
        let is_slow = !heard && pass.began.is_some_and(|began| self.trip.is_slow(at.now.saturating_since(began)));
        if pass.probe && pass.began.is_none() {
            if let State::Open(open) = &mut self.state {
                open.round.leave(pass.id);
            }
        } else if pass.probe {
            let verdict = if is_slow { Verdict::Bad } else { Verdict::None };
            self.settle_probe(at, &pass, verdict, is_slow);
        } else {
            let counted = self.trip.ends(pass.running);
            if is_slow && !counted && self.hand() != Some(Hand::Bypass) {
                self.trip.count_slow(at.now, true);
                self.trip_if_due(at);
            }
        }
    }

    /// Does what time alone has made due (a quiet episode ends, probes are lost, running calls are overdue), so that it is
    /// told even while nobody calls.
    pub fn tend(&mut self, at: Moment) {
        let at = self.forward(at);
        self.catch_up(at);
        self.see_overdue(at);
    }

    /// What happened since it was last asked, in order. Does not allocate while nothing happens.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The count of state changes; each change makes older passes stale.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    fn settle_probe(&mut self, at: Moment, pass: &Pass, verdict: Verdict, is_slow: bool) {
        let State::Open(open) = &mut self.state else { return };
        open.round.leave(pass.id);
        // As the trip rules would see it: a vendor that answers too late has not recovered.
        let bad = verdict == Verdict::Bad || is_slow && verdict == Verdict::Good;
        if verdict == Verdict::None {
            open.round.silent();
        } else if bad {
            open.round.bad();
            open.passed_over = Some(PassedOver { call: pass.call, failed: at.now, others_wait: false });
            self.counts.failures += 1;
        } else {
            open.round.good();
            self.counts.successes += 1;
        }
        self.decide(at);
    }

    fn settle_normal(&mut self, at: Moment, pass: &Pass, verdict: Verdict, is_slow: bool) {
        let counted = self.trip.ends(pass.running);
        if verdict == Verdict::None {
            self.see_overdue(at);
            return;
        }
        let bad = verdict == Verdict::Bad;
        if !counted {
            self.trip.count_slow(at.now, is_slow);
        }
        self.trip.count(at.now, bad);
        self.trip.see_overdue(at.now);
        if bad {
            self.counts.failures += 1;
            self.trip.streak.bad(pass.call, self.next_pass);
            let fail_count = self.trip.streak.count();
            self.tell(Event::Failure { fail_count, threshold: self.rules.streak });
        } else {
            self.counts.successes += 1;
            self.trip.streak.good(pass.id);
        }
        if !self.trip_if_due(at) {
            self.heal(at, bad);
        }
    }

    /// The attempt of this pass begins.
    fn begin(&mut self, at: Moment, pass: &mut Pass) {
        pass.began = Some(at.now);
        if !pass.probe {
            if self.hand() != Some(Hand::Bypass) {
                pass.running = self.trip.begins(at.now);
            }
            return;
        }
        if let State::Open(open) = &mut self.state {
            open.round.begins(pass.id, at.now);
        }
        if let Some(episode) = &mut self.episode {
            episode.probe_count += 1;
        }
    }

    fn is_stale(&self, pass: &Pass) -> bool {
        let replaced = || !matches!(&self.state, State::Open(open) if open.round.holds(pass.id));
        pass.epoch != self.epoch || pass.probe && replaced()
    }

    fn rejected(&mut self) {
        self.counts.rejected += 1;
        if let Some(episode) = &mut self.episode {
            episode.rejected += 1;
        }
    }

    /// Time that goes backwards stands still.
    fn forward(&mut self, at: Moment) -> Moment {
        self.latest = self.latest.max(at.now);
        Moment { now: self.latest, wall: at.wall }
    }

    fn tell(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// The wait of a caller who could pass at once.
const AT_ONCE: Duration = Duration::from_millis(1);
