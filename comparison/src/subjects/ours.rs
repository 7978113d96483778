use std::time::Duration;

use call_budget::Breaker;
use call_budget::clock::Clock;
use call_budget::policy::Wall;
use call_budget::policy::breaker::Caller;
use call_budget::policy::breaker::rules::{Over, Probes, Rate, Rules};
use call_budget::policy::verdict::Verdict;
use call_budget::test_util::{Instant, ManualClock};

use crate::subject::{Kind, OPEN, Policy, Report, Subject, Ticket};

pub struct Ours;

struct Alone {
    breaker: Breaker<ManualClock>,
    clock: ManualClock,
}

struct Pass(call_budget::Pass<ManualClock>);

impl Kind for Ours {
    fn name(&self) -> &'static str {
        "call-budget"
    }

    fn package(&self) -> Option<&'static str> {
        Some("call-budget")
    }

    fn expressed(&self) -> &'static str {
        "`Breaker` alone, on a clock that the scenario moves. Streak of 5; rate: half of the last 20, of at least 10; one \
         probe, lost after three open waits. Excluded errors: the verdict `None`; local refusals: the pass is abandoned. \
         State: `view()`. Listeners: `tracing`."
    }

    fn make(&self, policy: Policy, _: fn()) -> Box<dyn Subject> {
        let mut rules = Rules::per_provider();
        rules.schedule = vec![OPEN];
        rules.jitter = 0.0;
        rules.probes = Probes { needed: 1, allowed_bad: 0, parallel: 1, timeout: OPEN * 3 };
        if policy == Policy::Rate {
            rules.streak = None;
            rules.rate = Some(Rate { over: Over::Calls(20), min: 10, at_least: 0.5 });
        }
        let clock = ManualClock::at(Instant::from_boot(Duration::from_secs(1000)));
        clock.set_wall(Wall::from_unix_us(1_800_000_000_000_000));
        let breaker = Breaker::with_clock("compared", rules, clock.clone()).expect("the rules make sense");
        Box::new(Alone { breaker, clock })
    }
}

impl Subject for Alone {
    fn admit(&self, call: u64) -> Option<Box<dyn Ticket>> {
        let pass = self.breaker.admit_as(Caller { call, may_probe: true, starts_now: true }).ok()?;
        Some(Box::new(Pass(pass)))
    }

    fn pass(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn step_wall(&self, by: i64) {
        self.clock.set_wall(Wall::from_unix_us(self.clock.wall().unix_us() + by * 1_000_000));
    }

    fn read(&self) -> Option<String> {
        Some(self.breaker.view().shown.as_str().to_owned())
    }
}

impl Ticket for Pass {
    fn settle(self: Box<Self>, report: Report) {
        let verdict = match report {
            Report::Good => Verdict::Good,
            Report::Bad => Verdict::Bad,
            Report::Excluded => Verdict::None,
            Report::Local => return self.0.abandon(),
        };
        self.0.settle(verdict);
    }
}
