//! One direction of one connection: the chain of stages between a socket that is read and a socket that is written.
//! It knows neither sockets nor clocks: `now` is an argument, and it says when it wants to be asked again.
//!
//! Toxics stand in the order of their coming, triggers behind them: a trigger counts what really leaves.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::listener::Shape;
use super::stage::{Rule, Stage, Step};
use super::toxic::{Stream, Toxic};

/// What travels along the chain.
#[derive(Debug)]
pub(super) enum Item {
    /// Bytes, and when they came (or should have come, once a stage delayed them).
    Data(Bytes, Instant),
    /// Nothing follows.
    End,
}

/// How the direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Fin,
    Reset,
}

#[derive(Debug)]
pub(super) struct Pipe {
    stream: Stream,
    stages: Vec<Stage>,
    /// Ready to be written, each entry on its own.
    pub out: VecDeque<Bytes>,
    passed: u64,
    source_ended: bool,
    reset: bool,
    ended: bool,
}

impl Pipe {
    pub fn new(stream: Stream) -> Pipe {
        Pipe {
            stream,
            stages: Vec::new(),
            out: VecDeque::new(),
            passed: 0,
            source_ended: false,
            reset: false,
            ended: false,
        }
    }

    /// Takes over toxics and triggers as they are now. What a stage that is gone still held goes on to the next, at
    /// once. Only a removed timeout closes the connection: its data is lost already.
    pub fn adopt(&mut self, shape: &Shape, now: Instant) {
        let gone = |stage: &Stage| {
            !shape.toxics.iter().any(|t| t.id == stage.id) && !shape.triggers.iter().any(|t| t.id == stage.id)
        };
        while let Some(place) = self.stages.iter().position(gone) {
            let mut old = self.stages.remove(place);
            if old.closes_when_removed() {
                old.queue = VecDeque::from([Item::End]);
            }
            for item in old.queue {
                self.hand_on(place, item);
            }
        }
        for (place, toxic) in shape.toxics.iter().filter(|toxic| toxic.placed.stream == self.stream).enumerate() {
            match self.stages.get_mut(place).filter(|stage| stage.id == toxic.id) {
                Some(stage) => stage.set_toxic(toxic.placed.toxic, now),
                None => {
                    let acts = fastrand::f64() < toxic.placed.toxicity;
                    self.stages.insert(place, Stage::new(toxic.id, Rule::Toxic(toxic.placed.toxic), acts, now));
                }
            }
        }
        for set in shape.triggers.iter().filter(|set| set.trigger.stream() == self.stream) {
            if !self.stages.iter().any(|stage| stage.id == set.id) {
                let left = set.trigger.left(self.passed);
                let rule = Rule::Trigger { set: Arc::clone(set), left: left.unwrap_or(0), fired: false };
                self.stages.push(Stage::new(set.id, rule, left.is_some(), now));
            }
        }
    }

    pub fn push(&mut self, item: Item) {
        self.source_ended |= matches!(item, Item::End);
        self.hand_on(0, item);
    }

    /// Moves what may move. Returns when something more may, if time alone can bring that about.
    pub fn step(&mut self, now: Instant) -> Option<Instant> {
        let mut wake: Option<Instant> = None;
        for place in 0..self.stages.len() {
            loop {
                match self.stages[place].step(now) {
                    Step::Pass(item) => self.hand_on(place + 1, item),
                    Step::Lost => {}
                    Step::Close(ending) => {
                        self.reset |= ending == Ending::Reset;
                        self.hand_on(place + 1, Item::End);
                    }
                    Step::WaitUntil(due) => {
                        wake = Some(wake.map_or(due, |wake| wake.min(due)));
                        break;
                    }
                    Step::Wait => break,
                }
            }
        }
        wake
    }

    /// The end of the stream has come out, and everything before it is written.
    pub fn ending(&self) -> Option<Ending> {
        (self.ended && self.out.is_empty()).then_some(if self.reset { Ending::Reset } else { Ending::Fin })
    }

    /// Nothing comes in any more, and what is inside never comes out by itself.
    pub fn stuck(&self) -> bool {
        self.source_ended && self.stages.iter().any(Stage::stuck)
    }

    pub fn wants_more(&self) -> bool {
        let held: usize = self.stages.iter().map(Stage::held).sum();
        let waiting: usize = self.out.iter().map(Bytes::len).sum();
        let delayed = |stage: &Stage| matches!(stage.rule, Rule::Toxic(Toxic::Latency { .. }));
        let room = if self.stages.iter().any(delayed) { LONG_WIRE } else { SHORT_WIRE };
        !self.source_ended && !self.ended && held + waiting < room
    }

    fn hand_on(&mut self, place: usize, item: Item) {
        match (self.stages.get_mut(place), item) {
            (Some(stage), item) => stage.take(item),
            (None, _) if self.ended => {}
            (None, Item::Data(bytes, _)) => {
                self.passed += bytes.len() as u64;
                self.out.push_back(bytes);
            }
            (None, Item::End) => self.ended = true,
        }
    }
}

/// Bytes on their way before the sender feels it: about what one read and the kernel hold.
const SHORT_WIRE: usize = 64 << 10;
/// A long line holds more: else latency would limit the bandwidth, which is another toxic's work.
const LONG_WIRE: usize = 32 << 20;
