//! The breaker as programs hold it: one lock, one clock, events told when the lock is free.
//!
//! The lock is held for one step of the machine, never across an await and never while somebody is told. Events are told
//! in the order in which they happened, by whoever caused one and found nobody telling; so a subscriber that is slow, that
//! asks the breaker, or that panics, damages no call. Nobody tells for all others without end, and what waits to be told
//! is bounded: where failures come faster than they can be told, the older of them are merged into the latest.

pub(crate) mod tell;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::tz::TimeZone;
use tokio::sync::watch;

use crate::clock::{Clock, SystemClock};
use crate::config::SettingsError;
use crate::figures::BreakerBook;
use crate::policy::breaker::{
    self as machine, Caller, Counted, Event, Moment, Order, Outcome, Reason, Refusal, Rules, View,
};
use crate::policy::verdict::Verdict;
use crate::policy::{Instant, Wall};

/// So many events wait to be told; failures beyond are merged.
const UNTOLD: usize = 1000;
/// So many are told by one caller in a row.
const TURN: usize = 100;

/// A circuit breaker, usable alone. Cheap to clone; clones share everything.
pub struct Breaker<C: Clock = SystemClock>(Arc<Inner<C>>);

struct Inner<C: Clock> {
    name: Arc<str>,
    clock: C,
    /// Where people live who read its log; none: UTC.
    zone: Option<TimeZone>,
    /// The rules hold windows of the wall clock: it is read each time.
    by_the_wall: bool,
    state: Mutex<State>,
    /// The epoch, for those who wait with a pass in hand.
    epoch: watch::Sender<u64>,
    book: BreakerBook,
    changed: Option<Box<Changed>>,
}

/// Is told of every change that others may want to see.
type Changed = dyn Fn() + Send + Sync;

struct State {
    machine: machine::Breaker,
    /// What the wall showed when the clock showed that.
    seen: Moment,
    untold: VecDeque<Untold>,
    /// Somebody is telling, and will tell what comes.
    telling: bool,
    /// The end of the closed window of which others were told.
    window_told: Instant,
}

struct Untold {
    event: Event,
    /// Failures before it that nobody is told of.
    left_out: u64,
}

/// Leave for one attempt. Dropping it abandons it.
#[must_use = "settle it: a pass that is dropped says nothing of the vendor"]
pub struct Pass<C: Clock = SystemClock> {
    breaker: Breaker<C>,
    /// None once it is over.
    pass: Option<machine::Pass>,
    heard: AtomicBool,
}

impl Breaker {
    /// A closed breaker on the system's clock. `name` is what logs call it.
    ///
    /// # Errors
    /// Rules that make no sense.
    pub fn new(name: &str, rules: Rules) -> Result<Self, SettingsError> {
        Self::with_clock(name, rules, SystemClock)
    }
}

impl<C: Clock> Breaker<C> {
    /// A closed breaker on another clock.
    ///
    /// # Errors
    /// Rules that make no sense.
    pub fn with_clock(name: &str, rules: Rules, clock: C) -> Result<Self, SettingsError> {
        Self::build(name.into(), rules, clock, None)
    }

    /// `changed` is called with every change of state, and with the first call that a closed window refuses; no lock is held.
    pub(crate) fn build(
        name: Arc<str>,
        rules: Rules,
        clock: C,
        changed: Option<Box<Changed>>,
    ) -> Result<Self, SettingsError> {
        let zone = rules.calendar.windows.first().map(|window| window.tz.clone());
        let mut machine = machine::Breaker::new(rules, fastrand::u64(..))
            .map_err(|why| SettingsError(format!("the breaker \"{name}\": {why}")))?;
        let seen = Moment { now: clock.now(), wall: clock.wall() };
        machine.tend(seen);
        let epoch = watch::Sender::new(machine.epoch());
        let (untold, window_told) = (VecDeque::new(), Instant::default());
        let state = Mutex::new(State { machine, seen, untold, telling: false, window_told });
        let (by_the_wall, book) = (zone.is_some(), BreakerBook::default());
        Ok(Self(Arc::new(Inner { name, clock, by_the_wall, zone, state, epoch, book, changed })))
    }

    /// What logs call it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Leave for one attempt of a call of its own, which begins now and may be a probe.
    ///
    /// # Errors
    /// Why not, and when something can change.
    pub fn admit(&self) -> Result<Pass<C>, Refusal> {
        self.admit_as(Caller { call: next_call(), may_probe: true, starts_now: true })
    }

    /// As [`Breaker::admit`], for a caller who says more.
    ///
    /// # Errors
    /// As [`Breaker::admit`].
    pub fn admit_as(&self, caller: Caller) -> Result<Pass<C>, Refusal> {
        let pass = self.ask(|machine, at| machine.admit(at, caller))?;
        Ok(Pass { breaker: self.clone(), pass: Some(pass), heard: AtomicBool::new(false) })
    }

    /// What there is to see. Changes nothing.
    pub fn view(&self) -> View {
        let state = self.0.state();
        state.machine.view(Moment { now: self.0.clock.now(), wall: self.0.clock.wall() })
    }

    /// What it has come to so far.
    pub(crate) fn book(&self) -> &BreakerBook {
        &self.0.book
    }

    /// Does what time alone has made due, so that it is told even while nobody calls. A breaker that is used needs it not.
    pub fn tend(&self) {
        self.step(Reading::Exact, machine::Breaker::tend);
    }

    /// Lets nobody pass, until then or until it is taken back by [`Breaker::reset`].
    pub fn force_open(&self, who: &str, why: &str, until: Option<Duration>) {
        self.by_hand(who, why, until, machine::Breaker::force_open);
    }

    /// Lets everybody pass and counts nothing, until then or until it is taken back by [`Breaker::reset`].
    pub fn bypass(&self, who: &str, why: &str, until: Option<Duration>) {
        self.by_hand(who, why, until, machine::Breaker::bypass);
    }

    /// Counts and never trips, until then or until it is taken back by [`Breaker::reset`].
    pub fn observe(&self, who: &str, why: &str, until: Option<Duration>) {
        self.by_hand(who, why, until, machine::Breaker::observe);
    }

    /// Closed, with nothing counted and no order in force.
    pub fn reset(&self, who: &str, why: &str) {
        self.by_hand(who, why, None, machine::Breaker::reset);
    }

    fn by_hand(
        &self,
        who: &str,
        why: &str,
        until: Option<Duration>,
        what: impl FnOnce(&mut machine::Breaker, Moment, Order),
    ) {
        self.step(Reading::Exact, |machine, at| {
            what(machine, at, Order { who: who.into(), why: why.into(), until: until.map(|until| at.now + until) });
        });
    }

    /// Waits until the epoch is a later one than that of this pass: then it no longer counts.
    pub(crate) async fn outdates(&self, pass: &Pass<C>) {
        if let Some(pass) = &pass.pass {
            let epoch = pass.epoch;
            // The sender lives in self: waiting cannot fail while self is borrowed.
            let _ = self.0.epoch.subscribe().wait_for(|now| *now > epoch).await;
        }
    }

    /// A step that may refuse. A closed window makes no event: its first refusal is where it is noticed.
    fn ask<T>(&self, work: impl FnOnce(&mut machine::Breaker, Moment) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let answer = self.step(Reading::Enough, work);
        if let Err(Refusal { reason: Reason::ClosedWindow, retry_at }) = &answer {
            let told = std::mem::replace(&mut self.0.state().window_told, *retry_at);
            if told <= self.0.clock.now() {
                self.changed();
            }
        }
        answer
    }

    /// One step of the machine; then tells what happened.
    fn step<T>(&self, reading: Reading, work: impl FnOnce(&mut machine::Breaker, Moment) -> T) -> T {
        let (result, news, changed) = {
            let mut state = self.0.state();
            // Under the lock: whoever read them earlier and came later would set the wall back.
            let now = self.0.clock.now();
            let wall = (self.0.by_the_wall || reading == Reading::Exact).then(|| self.0.clock.wall());
            let at = Moment { now, wall: wall.unwrap_or_else(|| state.wall_at(now)) };
            if wall.is_some() {
                state.seen = at;
            }
            let before = state.machine.epoch();
            let result = work(&mut state.machine, at);
            let events = state.machine.take_events();
            let after = state.machine.epoch();
            let nothing_left = state.telling || state.untold.is_empty();
            if events.is_empty() && before == after && nothing_left {
                return result;
            }
            let changed = before != after || !events.iter().all(is_failure);
            self.0.book.happened(&events, || state.machine.view(at).shown);
            if before != after {
                state.window_told = Instant::default();
            }
            state.keep(events);
            (result, after, changed)
        };
        self.0.epoch.send_if_modified(|epoch| {
            let later = news > *epoch;
            *epoch = news.max(*epoch);
            later
        });
        if changed {
            self.changed();
        }
        self.tell();
        result
    }

    #[cold]
    fn changed(&self) {
        if let Some(changed) = &self.0.changed {
            tell::unharmed(changed);
        }
    }

    /// Tells what nobody was told, unless somebody does. After a turn the rest is for the next one to come.
    #[cold]
    fn tell(&self) {
        let mut state = self.0.state();
        if std::mem::replace(&mut state.telling, true) {
            return;
        }
        for _ in 0..TURN {
            let Some(Untold { event, left_out }) = state.untold.pop_front() else { break };
            drop(state);
            tell::unharmed(|| tell::event(&self.0.name, self.0.zone.as_ref(), &event, left_out));
            state = self.0.state();
        }
        state.telling = false;
        let rest = !state.untold.is_empty();
        drop(state);
        if rest {
            // So that somebody comes.
            self.changed();
        }
    }
}

/// How well the wall clock has to be read where no calendar is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// As good as the last time: an episode that an admission begins is a rare one.
    Enough,
    Exact,
}

impl<C: Clock> Pass<C> {
    /// The attempt begins now.
    ///
    /// # Errors
    /// The pass no longer counts: nothing may be sent.
    pub fn sending(&mut self) -> Result<(), Refusal> {
        let Some(pass) = &mut self.pass else {
            return Ok(());
        };
        let begun = self.breaker.ask(|machine, at| machine.sending(at, pass));
        if begun.is_err() {
            self.pass = None;
        }
        begun
    }

    /// The first byte of an answer has come.
    pub fn heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// The attempt ended.
    pub fn settle(self, verdict: Verdict) -> Counted {
        self.settle_with(Outcome { verdict, elapsed: None, retry_after: None })
    }

    /// As [`Pass::settle`], saying more.
    pub fn settle_with(mut self, outcome: Outcome) -> Counted {
        match self.pass.take() {
            Some(pass) => self.breaker.step(Reading::Exact, |machine, at| machine.settle(at, pass, outcome)),
            None => Counted::Stale,
        }
    }

    /// Nothing was learned. The same as dropping it.
    pub fn abandon(self) {
        drop(self);
    }
}

impl<C: Clock> Drop for Pass<C> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            // A panic is our own failure, however long it took.
            let heard = *self.heard.get_mut() || std::thread::panicking();
            self.breaker.step(Reading::Exact, |machine, at| machine.abandon(at, pass, heard));
        }
    }
}

impl<C: Clock> Inner<C> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What the wall would show now if nobody had set it since it was read.
    fn wall_at(&self, now: Instant) -> Wall {
        self.seen.wall + now.saturating_since(self.seen.now)
    }

    /// Keeps them to be told.
    fn keep(&mut self, events: Vec<Event>) {
        for event in events {
            let full = self.untold.len() >= UNTOLD;
            match self.untold.back_mut() {
                Some(last) if full && is_failure(&event) && is_failure(&last.event) => {
                    (last.event, last.left_out) = (event, last.left_out + 1);
                }
                _ => self.untold.push_back(Untold { event, left_out: 0 }),
            }
        }
    }
}

fn is_failure(event: &Event) -> bool {
    matches!(event, Event::Failure { .. })
}

/// A number for a logical call that no other call of this process has.
pub(crate) fn next_call() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed)
}

impl<C: Clock> Clone for Breaker<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Clock> std::fmt::Debug for Breaker<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Breaker").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl<C: Clock> std::fmt::Debug for Pass<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").field("breaker", &self.breaker).field("pass", &self.pass).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
