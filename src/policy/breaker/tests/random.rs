//! What holds whatever happens: random sequences of events. `BREAKER_SEED=n` repeats the run that failed.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use jiff::civil::time;
use jiff::tz::TimeZone;

use super::world::secs;
use crate::policy::breaker::calendar::{Calendar, Mode, Window};
use crate::policy::breaker::rules::{Over, Probes, Rate, Slow};
use crate::policy::breaker::{
    Breaker, Caller, Counted, Event, Moment, Order, Outcome, Pass, Refusal, Rules, Shown, View,
};
use crate::policy::verdict::Verdict;
use crate::policy::{Instant, Wall};

const RUNS: u64 = 125;
const EVENTS: usize = 2000;

#[test]
fn whatever_happens_every_promise_holds() {
    let first = std::env::var("BREAKER_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = first.map_or(0..RUNS, |seed| seed..seed + 1);
    let mut reached = BTreeSet::new();
    for seed in seeds {
        let told = std::panic::catch_unwind(|| run(seed));
        match told {
            Ok(shown) => reached.extend(shown),
            Err(_) => panic!("BREAKER_SEED={seed}: see above"),
        }
    }
    if first.is_none() {
        assert_eq!(reached.len(), 8, "every state was reached: {reached:?}");
    }
}

/// One sequence; which states it reached.
fn run(seed: u64) -> BTreeSet<&'static str> {
    let mut rng = Rng::with_seed(seed);
    let rules = rules(&mut rng);
    let mut run = Run {
        breaker: Breaker::new(rules.clone(), seed).expect("these rules make sense"),
        probes: rules.probes,
        rules,
        at: Moment { now: Instant::from_boot(secs(50)), wall: Wall::from_unix_us(1_783_468_800_000_000) },
        passes: Vec::new(),
        next_call: 0,
        begun: 0,
        ended: 0,
        order_without_end: false,
        last: None,
        reached: BTreeSet::new(),
        rng,
    };
    for turn in 0..EVENTS {
        run.step();
        run.look(turn);
    }
    run.breaker.tend(run.at);
    run.look(0);
    let running = u32::from(run.breaker.view(run.at).episode.is_some());
    assert_eq!(run.ended + running, run.begun, "one summary an episode");
    run.reached
}

fn rules(rng: &mut Rng) -> Rules {
    let over = |rng: &mut Rng| {
        if rng.bool() { Over::Calls(rng.u32(5..30)) } else { Over::Time(secs(rng.u64(1..100))) }
    };
    let share = |rng: &mut Rng| [0.2, 0.5, 1.0][rng.usize(..3)];
    let mut rules = Rules {
        streak: rng.bool().then(|| rng.u32(1..7)),
        rate: rng.bool().then(|| Rate { over: over(rng), min: rng.u32(1..=5), at_least: share(rng) }),
        slow: rng.bool().then(|| Slow { limit: secs(3), over: over(rng), min: rng.u32(1..=5), at_least: share(rng) }),
        schedule: (0..rng.usize(1..5)).map(|_| secs(rng.u64(1..300))).collect(),
        jitter: if rng.bool() { 0.1 } else { 0.0 },
        probes: Probes {
            needed: rng.u32(1..4),
            allowed_bad: rng.u32(0..3),
            parallel: rng.u32(1..5),
            timeout: secs(rng.u64(1..60)),
        },
        episode_good: rng.u32(1..5),
        episode_quiet: secs(rng.u64(1..300)),
        calendar: Calendar::default(),
    };
    if rng.u8(..4) == 0 {
        let window = |from, to, mode| Window {
            tz: TimeZone::UTC,
            days: [true; 7],
            holidays: BTreeSet::new(),
            from: time(from, 0, 0, 0),
            to: time(to, 0, 0, 0),
            mode,
        };
        rules.calendar.windows =
            vec![window(1, 2, Mode::Closed), window(0, 3, Mode::Expect), window(5, 6, Mode::Closed)];
    }
    rules
}

struct Run {
    breaker: Breaker,
    rules: Rules,
    probes: Probes,
    at: Moment,
    passes: Vec<Pass>,
    next_call: u64,
    begun: u32,
    ended: u32,
    order_without_end: bool,
    last: Option<Wall>,
    reached: BTreeSet<&'static str>,
    rng: Rng,
}

impl Run {
    fn step(&mut self) {
        match self.rng.u32(..1000) {
            0..350 => self.admit(),
            350..650 => self.settle(),
            650..700 => self.send(),
            700..740 => {
                if let Some(pass) = self.some_pass() {
                    self.breaker.abandon(self.at, pass, self.rng.bool());
                }
            }
            740..950 => self.pass_time(),
            950..980 => self.breaker.tend(self.at),
            980..985 => self.at.wall = self.at.wall + Duration::from_millis(self.rng.u64(..100_000_000)),
            985..990 => self.at.wall = self.at.wall - Duration::from_millis(self.rng.u64(..100_000_000)),
            990..992 => self.at.now = self.at.now - secs(self.rng.u64(..10)),
            _ => self.order(),
        }
    }

    fn admit(&mut self) {
        self.next_call += self.rng.u64(..2);
        let caller = Caller { call: self.next_call, may_probe: self.rng.u8(..4) > 0, starts_now: self.rng.u8(..4) > 0 };
        match self.breaker.admit(self.at, caller) {
            Ok(pass) => {
                assert!(caller.may_probe || !pass.probe, "who may not probe does not");
                self.passes.push(pass);
            }
            Err(refusal) => self.check(&refusal),
        }
    }

    fn settle(&mut self) {
        let Some(pass) = self.some_pass() else { return };
        let verdict = [Verdict::Good, Verdict::Good, Verdict::Bad, Verdict::None][self.rng.usize(..4)];
        let elapsed = self.rng.bool().then(|| secs(self.rng.u64(..5)));
        let retry_after = (self.rng.u8(..20) == 0).then(|| secs(self.rng.u64(..1000)));
        let (before, probe) = (self.breaker.view(self.at), pass.probe);
        let counted = self.breaker.settle(self.at, pass, Outcome { verdict, elapsed, retry_after });
        let after = self.breaker.view(self.at);
        if counted == Counted::Stale {
            assert_eq!(after, View { stale: before.stale + 1, ..before }, "a stale report changes nothing");
        } else if before.shown == Shown::Closed && verdict == Verdict::None && self.rules.slow.is_none() {
            assert_eq!(after, before, "none changes nothing");
        } else if probe {
            assert!(matches!(before.shown, Shown::Probing | Shown::Held), "{before:?}");
        }
    }

    fn send(&mut self) {
        let Some(mut pass) = self.some_pass() else { return };
        match self.breaker.sending(self.at, &mut pass) {
            Ok(()) => self.passes.push(pass),
            Err(refusal) => self.check(&refusal),
        }
    }

    fn order(&mut self) {
        let until = self.rng.bool().then(|| self.at.now + secs(self.rng.u64(..500)));
        let order = Order { who: "ann".into(), why: "a drill".into(), until };
        self.order_without_end = until.is_none();
        match self.rng.u8(..5) {
            0 => self.breaker.force_open(self.at, order),
            1 => self.breaker.bypass(self.at, order),
            2 => self.breaker.observe(self.at, order),
            _ => {
                self.breaker.reset(self.at, order);
                self.order_without_end = false;
                assert!(matches!(self.breaker.view(self.at).shown, Shown::Closed | Shown::Held));
            }
        }
    }

    fn pass_time(&mut self) {
        let us = match self.rng.u8(..20) {
            0..12 => self.rng.u64(..1_000_000),
            12..18 => self.rng.u64(..60_000_000),
            18 => self.rng.u64(..1_000_000_000),
            _ => {
                let retry_at = self.breaker.view(self.at).retry_at.unwrap_or(self.at.now);
                u64::try_from(retry_at.saturating_since(self.at.now).as_micros()).expect("not for ever")
            }
        };
        let time = Duration::from_micros(us);
        self.at = Moment { now: self.at.now + time, wall: self.at.wall + time };
    }

    /// What holds after each event.
    fn look(&mut self, turn: usize) {
        let untouched = turn.is_multiple_of(50).then(|| format!("{:?}", self.breaker));
        let view = self.breaker.view(self.at);
        assert_eq!(self.breaker.view(self.at), view);
        if let Some(untouched) = untouched {
            assert_eq!(format!("{:?}", self.breaker), untouched, "a view changes nothing");
        }
        self.reached.insert(view.shown.as_str());
        let timeout = self.probes.timeout;
        let waited_for = |pass: &&Pass| pass.probe && pass.began.unwrap_or(pass.admitted) + timeout > self.at.now;
        let out = self.passes.iter().filter(waited_for).filter(|pass| pass.epoch == view.epoch).count();
        assert!(out <= self.probes.parallel as usize, "{out} probes out");
        assert!(out <= (self.probes.needed + self.probes.allowed_bad) as usize, "{out} probes out");
        assert_eq!(view.calls, view.successes + view.failures);
        assert!(view.rung < self.rules.schedule.len());
        assert!(view.retry_at.is_none_or(|retry_at| retry_at > self.at.now));
        let started_at = view.episode.map(|episode| episode.started_at);
        if started_at.is_some() && started_at != self.last {
            self.begun += 1;
        }
        self.last = started_at;
        for event in self.breaker.take_events() {
            if let Event::EpisodeSummary(summary) = event {
                self.ended += 1;
                assert!(summary.total_open <= summary.duration, "{summary:?}");
            }
        }
        if turn.is_multiple_of(10) && !self.order_without_end {
            self.finds_the_way_out();
        }
    }

    /// From here on, time and good answers alone lead to CLOSED, and who comes back when told gets through.
    fn finds_the_way_out(&self) {
        let (mut breaker, mut at) = (self.breaker.clone(), self.at);
        for turn in 0..300 {
            match breaker.admit(at, Caller { call: u64::MAX - 1, may_probe: true, starts_now: true }) {
                Ok(pass) => {
                    let outcome = Outcome { verdict: Verdict::Good, elapsed: Some(Duration::ZERO), retry_after: None };
                    breaker.settle(at, pass, outcome);
                }
                Err(refusal) => {
                    let wait = refusal.retry_at.saturating_since(at.now);
                    assert!(!wait.is_zero(), "{refusal:?}");
                    at = Moment { now: at.now + wait, wall: at.wall + wait };
                }
            }
            let shown = breaker.view(at).shown;
            if shown == Shown::Closed {
                return;
            }
            if matches!(shown, Shown::Bypass | Shown::Observe) {
                at = Moment { now: at.now + secs(100), wall: at.wall + secs(100) };
            }
            assert!(turn < 299, "stuck: {:?}", breaker.view(at));
        }
    }

    fn some_pass(&mut self) -> Option<Pass> {
        // Some are never settled: lost calls.
        if self.passes.is_empty() || self.rng.u8(..20) == 0 {
            return None;
        }
        // The newest most of the time, so that reports are often of this epoch.
        let back = if self.rng.bool() { 1 } else { self.rng.usize(1..=self.passes.len()) };
        Some(self.passes.swap_remove(self.passes.len() - back))
    }

    fn check(&self, refusal: &Refusal) {
        assert!(refusal.retry_at > self.at.now, "{refusal:?} at {:?}", self.at.now);
    }
}
