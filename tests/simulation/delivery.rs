//! What each event does: requests on their way, the store's lock, answers on their way back, timers.

use std::task::Waker;
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::store::memory;
use call_budget::store::{Ask, Failing};

use crate::events::{Event, Later};
use crate::faults::Kind;
use crate::network::{Answered, Delivery, Question, Request};
use crate::service::{Act, Done};
use crate::time::{MS, True};
use crate::timers::Key;
use crate::world::{ProcessId, State};

/// A transaction that has waited for the lock for so long is rolled back, as the server's own timeout says.
const LOCK_TIMEOUT: True = 500 * MS;

/// What is left to do once the lock on the world is released.
pub enum Effect {
    Nothing,
    Wake(Waker),
    /// A process is to be started with this part.
    Start(Vec<usize>),
    End,
}

impl State {
    /// A process asks the store.
    pub fn requests(&mut self, process: ProcessId, question: Question) -> Key {
        let call = self.calls.add(Waker::noop().clone());
        let leaves = self.moment_of(process);
        self.trace.record(leaves, 10, process as u64, 0);
        let lost = self.hits(Kind::RequestsLost) || self.is_cut_off(process, leaves);
        if !lost {
            let mut takes = self.leg();
            if self.hits(Kind::RequestsLate) {
                takes += self.rng.u64(0..=3000 * MS);
            }
            let sent_astray = self.spells.hits(Kind::OldServer, self.now, &mut self.rng);
            let to_old_server = sent_astray && self.knows_better(process);
            if to_old_server {
                self.takes_effect(Kind::OldServer);
            }
            let (arrived, epoch) = (leaves + takes, 0);
            let request = Request { process, call, question, epoch, to_old_server };
            self.events.push(arrived, Event::Arrives(Box::new(request)));
        }
        call
    }

    /// Whoever has seen the new server's timeline refuses what the old one says. Whoever has not is for the database to keep
    /// away from it.
    fn knows_better(&self, process: ProcessId) -> bool {
        self.service.old.as_ref().is_some_and(|old| old.timeline < self.processes[process].newest_timeline)
    }

    /// Nothing of a process's gets through at this moment.
    fn is_cut_off(&mut self, process: ProcessId, at: True) -> bool {
        let cut_off = self.processes[process].cut_off.filter(|(_, until)| *until > at);
        if let Some((kind, _)) = cut_off {
            self.takes_effect(kind);
        }
        cut_off.is_some()
    }

    /// How long one leg takes now.
    fn leg(&mut self) -> True {
        let (least, most) = (self.plan.network.least, self.plan.network.most);
        let mut takes = self.rng.u64(least..=most);
        if self.hits(Kind::LongRoundTrips) {
            takes += self.rng.u64(5 * MS..=60 * MS);
        }
        takes
    }

    fn answers(&mut self, process: ProcessId, call: Key, from: True, answer: Answered) {
        let lost = self.hits(Kind::AnswersLost) || self.hits(Kind::Silence) || self.is_cut_off(process, self.now);
        if lost {
            return;
        }
        let mut takes = self.leg();
        if self.hits(Kind::AnswersLate) {
            takes += self.rng.u64(0..=3000 * MS);
        }
        let reset = self.hits(Kind::Resets);
        let failed = Answered::Failed(Stage::Query, Failing::Uncertain, "the connection was reset");
        let answer = if reset { failed } else { answer };
        self.events.push(from + takes, Event::Answers(Box::new(Delivery { process, call, answer })));
    }

    /// The next event. What is then to be done outside.
    pub fn next_event(&mut self) -> Effect {
        let Some((at, event)) = self.events.pop() else { return Effect::End };
        self.now = at;
        match event {
            Event::Timer(process, key) => self.fires(process, key),
            Event::Arrives(request) => self.arrives(request),
            Event::Decides(request) => self.decides(*request),
            Event::Answers(delivery) => self.reaches(delivery),
            Event::Counts(arrival) => {
                self.reaches_vendor(&arrival);
                Effect::Nothing
            }
            Event::Fault(number) => {
                let kind = self.plan.faults[number].1;
                self.begins(kind)
            }
            Event::Later(later) => self.goes_on(later),
            Event::Heals => self.heals(),
            Event::Measures => Effect::Nothing,
            Event::Ends => Effect::End,
        }
    }

    fn fires(&mut self, process: ProcessId, key: Key) -> Effect {
        let one = &self.processes[process];
        if one.dead {
            return Effect::Nothing;
        }
        if one.frozen_until > self.now {
            self.events.push(one.frozen_until, Event::Timer(process, key));
            return Effect::Nothing;
        }
        match self.timers.cancel(key) {
            Some(waker) => {
                self.trace.record(self.now, 11, process as u64, 0);
                Effect::Wake(waker)
            }
            None => Effect::Nothing,
        }
    }

    fn arrives(&mut self, mut request: Box<Request>) -> Effect {
        self.store_calls += u64::from(matches!(request.question, Question::Slots(_)));
        let refused = self.hits(Kind::Refuses);
        if !self.service.up && !request.to_old_server || refused {
            let failed = Answered::Failed(Stage::Connect, Failing::Unavailable, "the store refuses the connection");
            self.answers(request.process, request.call, self.now, failed);
            return Effect::Nothing;
        }
        request.epoch = self.service.epoch;
        if matches!(request.question, Question::Probe) || request.to_old_server {
            return self.decides(*request);
        }
        let begins = self.now.max(self.service.free_at);
        if begins > self.now + LOCK_TIMEOUT {
            let failed = Answered::Failed(Stage::Query, Failing::Unavailable, "the lock was not free in time");
            self.answers(request.process, request.call, self.now + LOCK_TIMEOUT, failed);
            return Effect::Nothing;
        }
        if begins > self.now && self.spells.lasts(Kind::LockHeld, self.now) {
            self.takes_effect(Kind::LockHeld);
        }
        let takes = self.plan.store.transaction;
        self.service.free_at = begins + takes;
        self.events.push(begins, Event::Decides(request));
        Effect::Nothing
    }

    /// The transaction has the lock.
    fn decides(&mut self, request: Request) -> Effect {
        let Request { process, call, question, epoch, to_old_server, .. } = request;
        if epoch != self.service.epoch {
            // It was in the server's hands when the server ended.
            let failed = Answered::Failed(Stage::Query, Failing::Uncertain, "the server ended");
            if self.rng.bool() {
                self.answers(process, call, self.now, failed);
            }
            return Effect::Nothing;
        }
        let ends = self.now + self.plan.store.transaction;
        let answer = match question {
            Question::Probe => {
                let server = self.service.old.as_ref().filter(|_| to_old_server).unwrap_or(&self.service.primary);
                let store_us = server.clock.shows_us(self.now);
                Answered::Probed { store_us, seen: server.reading() }
            }
            Question::Slots(ask) => self.reserves(process, &ask, to_old_server),
            Question::Fence(name) => {
                let budget = self.budget_of(&name);
                match self.service.act(self.now, budget, Act::RequestFence, to_old_server).0 {
                    Done::Fenced(fenced) => Answered::Fenced(fenced),
                    _ => Answered::Fenced(false),
                }
            }
            Question::PushBack(name, duration) => {
                let budget = self.budget_of(&name);
                Answered::PushedBack(self.pushes_back(budget, duration))
            }
        };
        self.answers(process, call, ends, answer);
        Effect::Nothing
    }

    fn reserves(&mut self, process: ProcessId, ask: &Ask, on_old: bool) -> Answered {
        let (budget, costs) = (self.budget_of(&ask.budget), memory::costs(ask));
        let class = std::sync::Arc::clone(&ask.class);
        let patience_us = i64::try_from(ask.patience.as_micros()).unwrap_or(i64::MAX);
        let act = Act::Reserve { class, lane: ask.lane, costs, patience_us };
        let (done, _, seen) = self.service.act(self.now, budget, act, on_old);
        let Done::Reserved(answer) = done else { unreachable!("a reservation was made") };
        self.decided(process, ask, &answer, seen, on_old);
        Answered::Slots { answer: Some(answer), timeline: seen.timeline, seen }
    }

    /// The vendor said "too many". Returns how much of it is left, in microseconds.
    pub fn pushes_back(&mut self, budget: usize, duration: Duration) -> i64 {
        let duration_us = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let act = Act::PushBack { duration_us, cap_us: 60_000_000 };
        let Done::PushedBack(left_us) = self.service.act(self.now, budget, act, false).0 else { return 0 };
        let lasts = self.service.primary.clock.true_ns(duration_us.min(60_000_000));
        let until = self.now + lasts.unsigned_abs();
        let one = &mut self.budgets[budget];
        if until > one.blocked_until {
            (one.blocked_until, one.blocked_for) = (until, lasts);
        }
        left_us
    }

    /// An answer is at its process.
    fn reaches(&mut self, delivery: Box<Delivery>) -> Effect {
        let one = &self.processes[delivery.process];
        if one.dead {
            return Effect::Nothing;
        }
        if one.frozen_until > self.now {
            self.events.push(one.frozen_until, Event::Answers(delivery));
            return Effect::Nothing;
        }
        match self.calls.waiting(delivery.call) {
            Some(waker) => {
                self.trace.record(self.now, 12, delivery.process as u64, 0);
                self.answers.insert(delivery.call.number(), delivery.answer);
                if self.hits(Kind::StalledOnAnswer) {
                    let lasts = self.rng.u64(MS..=2000 * MS);
                    self.freeze(delivery.process, lasts);
                }
                Effect::Wake(waker)
            }
            None => Effect::Nothing,
        }
    }

    /// What a fault does after its beginning.
    fn goes_on(&mut self, later: Later) -> Effect {
        self.trace.record(self.now, 13, 0, 0);
        let now = self.now;
        self.trace.tell(now, || format!("{later:?}"));
        match later {
            Later::VendorLimit { budget, units } => self.budgets[budget].vendor.limit = units,
            Later::SetUnits { budget, units } => {
                self.budgets[budget].plan.limit.units = units;
                self.sets(budget);
            }
            Later::SetCostAndResume { budget, max_cost } => {
                self.budgets[budget].plan.limit.max_cost = max_cost;
                self.sets(budget);
                self.sets_paused(budget, false);
            }
            Later::Resume { budget } => self.sets_paused(budget, false),
            Later::ServerUp => self.service.up = true,
            Later::Start { part } => return Effect::Start(vec![part]),
        }
        Effect::Nothing
    }
}
