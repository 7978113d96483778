//! A breaker with its two clocks, and the few moves that tests are made of.

use std::time::Duration;

use crate::policy::breaker::{
    Breaker, Caller, Counted, Event, Moment, Order, Outcome, Pass, Refusal, Rules, Shown, View, event::Summary,
};
use crate::policy::verdict::Verdict::{self, Bad, Good};
use crate::policy::{Instant, Wall};

/// Wednesday, 2026-07-08 00:00 UTC.
const WEDNESDAY: i64 = 1_783_468_800_000_000;

pub struct World {
    pub breaker: Breaker,
    pub now: Instant,
    pub wall: Wall,
    next_call: u64,
}

impl World {
    /// No jitter; the monotonic clock begins at 1000 s.
    pub fn new(rules: Rules) -> Self {
        Self::seeded(Rules { jitter: 0.0, ..rules }, 1)
    }

    pub fn seeded(rules: Rules, seed: u64) -> Self {
        Self {
            breaker: Breaker::new(rules, seed).expect("these rules make sense"),
            now: Instant::from_boot(secs(1000)),
            wall: Wall::from_unix_us(WEDNESDAY),
            next_call: 1,
        }
    }

    pub fn at(&self) -> Moment {
        Moment { now: self.now, wall: self.wall }
    }

    pub fn pass_time(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.wall = self.wall + duration;
    }

    pub fn wait(&mut self, seconds: u64) {
        self.pass_time(secs(seconds));
    }

    /// A call of its own that begins now and may probe.
    pub fn caller(&mut self) -> Caller {
        self.next_call += 1;
        Caller { call: self.next_call, may_probe: true, starts_now: true }
    }

    pub fn admit(&mut self) -> Result<Pass, Refusal> {
        let caller = self.caller();
        self.breaker.admit(self.at(), caller)
    }

    pub fn admit_as(&mut self, call: u64) -> Result<Pass, Refusal> {
        self.breaker.admit(self.at(), Caller { call, may_probe: true, starts_now: true })
    }

    /// A call of a class that may not probe.
    pub fn order(&mut self) -> Result<Pass, Refusal> {
        let caller = Caller { may_probe: false, ..self.caller() };
        self.breaker.admit(self.at(), caller)
    }

    /// A call that waits for its slot first.
    pub fn queue(&mut self) -> Result<Pass, Refusal> {
        let caller = Caller { starts_now: false, ..self.caller() };
        self.breaker.admit(self.at(), caller)
    }

    pub fn pass(&mut self) -> Pass {
        self.admit().expect("it lets pass")
    }

    pub fn probe(&mut self) -> Pass {
        let pass = self.pass();
        assert!(pass.probe, "a probe is due");
        pass
    }

    pub fn settle(&mut self, pass: Pass, verdict: Verdict) -> Counted {
        self.settle_with(pass, Outcome { verdict, elapsed: None, retry_after: None })
    }

    pub fn settle_with(&mut self, pass: Pass, outcome: Outcome) -> Counted {
        self.breaker.settle(self.at(), pass, outcome)
    }

    pub fn abandon(&mut self, pass: Pass, heard: bool) {
        self.breaker.abandon(self.at(), pass, heard);
    }

    /// One call, answered at once.
    pub fn call(&mut self, verdict: Verdict) {
        let pass = self.pass();
        assert_eq!(self.settle(pass, verdict), Counted::Yes);
    }

    pub fn calls(&mut self, count: usize, verdict: Verdict) {
        for _ in 0..count {
            self.call(verdict);
        }
    }

    pub fn good(&mut self, count: usize) {
        self.calls(count, Good);
    }

    pub fn bad(&mut self, count: usize) {
        self.calls(count, Bad);
    }

    /// One call that takes so long.
    pub fn lasting(&mut self, elapsed: Duration, verdict: Verdict) {
        let pass = self.pass();
        self.settle_with(pass, Outcome { verdict, elapsed: Some(elapsed), retry_after: None });
    }

    pub fn view(&self) -> View {
        self.breaker.view(self.at())
    }

    pub fn shown(&self) -> Shown {
        self.view().shown
    }

    pub fn events(&mut self) -> Vec<Event> {
        self.breaker.take_events()
    }

    pub fn tend(&mut self) {
        let at = self.at();
        self.breaker.tend(at);
    }

    pub fn summaries(&mut self) -> Vec<Summary> {
        let summary = |event| if let Event::EpisodeSummary(summary) = event { Some(summary) } else { None };
        self.events().into_iter().filter_map(summary).collect()
    }

    /// How long the next caller is told to wait.
    pub fn refused_for(&mut self) -> Duration {
        let refusal = self.admit().expect_err("it refuses");
        refusal.retry_at.saturating_since(self.now)
    }

    /// From OPEN to the moment at which a probe is due.
    pub fn until_due(&mut self) {
        assert_eq!(self.shown(), Shown::Open);
        let wait = self.refused_for();
        self.pass_time(wait);
        assert_eq!(self.shown(), Shown::ProbeDue);
    }

    pub fn by_hand(&self, seconds: Option<u64>) -> Order {
        Order { who: "ann".into(), why: "a drill".into(), until: seconds.map(|seconds| self.now + secs(seconds)) }
    }
}

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
