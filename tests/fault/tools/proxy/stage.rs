//! One toxic or trigger on one direction of one connection: what it does to the item in front of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::pipe::{Ending, Item};
use super::toxic::Toxic;
use super::trigger::{Action, Set};

#[derive(Debug)]
pub(super) enum Rule {
    Toxic(Toxic),
    Trigger { set: Arc<Set>, left: u64, fired: bool },
}

/// What a stage does next.
#[derive(Debug)]
pub(super) enum Step {
    Pass(Item),
    /// Something was thrown away; ask again.
    Lost,
    /// Nothing passes any more: the stream ends here.
    Close(Ending),
    WaitUntil(Instant),
    /// For something to come, or for a change of the rules.
    Wait,
}

#[derive(Debug)]
pub(super) struct Stage {
    pub id: u64,
    pub rule: Rule,
    pub queue: VecDeque<Item>,
    acts: bool,
    closed: bool,
    /// When the item in front may pass, once that is decided.
    due: Option<Instant>,
    /// The start of what is counted: a timeout's silence, the end of the last piece in a limited bandwidth.
    since: Instant,
    /// Bytes that a limit let pass.
    spent: u64,
}

impl Stage {
    pub fn new(id: u64, rule: Rule, acts: bool, now: Instant) -> Stage {
        Stage { id, rule, acts, queue: VecDeque::new(), closed: false, due: None, since: now, spent: 0 }
    }

    /// New attributes, from now on. What a limit has counted stays counted.
    pub fn set_toxic(&mut self, toxic: Toxic, now: Instant) {
        if !matches!(self.rule, Rule::Toxic(old) if old == toxic) {
            self.rule = Rule::Toxic(toxic);
            self.due = None;
            self.since = now;
        }
    }

    pub fn take(&mut self, item: Item) {
        if !self.closed {
            self.queue.push_back(item);
        }
    }

    pub fn held(&self) -> usize {
        self.queue.iter().map(|item| if let Item::Data(bytes, _) = item { bytes.len() } else { 0 }).sum()
    }

    /// As toxiproxy does: what a timeout has dropped cannot be delivered, so the connection is of no use.
    pub fn closes_when_removed(&self) -> bool {
        self.acts && !self.closed && matches!(self.rule, Rule::Toxic(Toxic::Timeout { .. }))
    }

    /// Holds something that no time sets free.
    pub fn stuck(&self) -> bool {
        let endless = match &self.rule {
            Rule::Toxic(Toxic::Bandwidth { rate: 0 }) => true,
            Rule::Trigger { set, fired, .. } => {
                *fired && matches!(set.trigger.action(), Action::Hold | Action::Swallow)
            }
            Rule::Toxic(_) => false,
        };
        self.acts && endless && !self.queue.is_empty()
    }

    pub fn step(&mut self, now: Instant) -> Step {
        if self.closed {
            return Step::Wait;
        }
        let step = if self.acts { self.act(now) } else { self.pass_all() };
        if matches!(step, Step::Close(_) | Step::Pass(Item::End)) {
            self.closed = true;
            self.queue.clear();
        }
        step
    }

    fn act(&mut self, now: Instant) -> Step {
        match self.rule {
            Rule::Trigger { .. } => self.trigger(),
            Rule::Toxic(Toxic::Timeout { timeout }) => self.timeout(timeout, now),
            // Closed with the last byte, not with the first one too many.
            Rule::Toxic(Toxic::LimitData { bytes }) if self.spent > 0 && self.spent >= bytes => {
                Step::Close(Ending::Fin)
            }
            Rule::Toxic(toxic) => match self.queue.front() {
                None => Step::Wait,
                Some(Item::Data(bytes, at)) => {
                    let (len, at) = (bytes.len(), *at);
                    self.data(toxic, len, at, now)
                }
                Some(Item::End) => self.end(toxic, now),
            },
        }
    }

    fn data(&mut self, toxic: Toxic, len: usize, at: Instant, now: Instant) -> Step {
        match toxic {
            Toxic::Latency { latency, jitter } => {
                let due = *self.due.get_or_insert_with(|| at + with_jitter(latency, jitter));
                if now < due { Step::WaitUntil(due) } else { self.pass(len, due) }
            }
            Toxic::Bandwidth { rate: 0 } => Step::Wait,
            Toxic::Bandwidth { rate } => {
                // Long data goes in pieces of 100 ms, short data as a whole when its time is over.
                let piece = len.min(usize::try_from(rate.saturating_mul(100)).unwrap_or(usize::MAX));
                let takes = Duration::from_nanos((piece as u64).saturating_mul(1_000_000) / rate);
                let due = *self.due.get_or_insert(self.since.max(at) + takes);
                if now < due {
                    return Step::WaitUntil(due);
                }
                self.since = due;
                self.pass(piece, due)
            }
            Toxic::ResetPeer { timeout } => self.close_later(timeout, Ending::Reset, now),
            Toxic::Slicer { average_size, size_variation, delay } => {
                if let Some(due) = self.due.filter(|due| now < *due) {
                    return Step::WaitUntil(due);
                }
                let step = self.pass(slice(average_size, size_variation, len), now);
                self.due = Some(now + Duration::from_micros(delay));
                step
            }
            Toxic::LimitData { bytes } => {
                let piece = len.min(usize::try_from(bytes.saturating_sub(self.spent)).unwrap_or(usize::MAX));
                if piece == 0 {
                    return Step::Close(Ending::Fin);
                }
                self.spent += piece as u64;
                self.pass(piece, at)
            }
            Toxic::SlowClose { .. } | Toxic::Timeout { .. } => self.pass(len, at),
        }
    }

    fn end(&mut self, toxic: Toxic, now: Instant) -> Step {
        match toxic {
            Toxic::SlowClose { delay } => {
                let due = *self.due.get_or_insert_with(|| now + Duration::from_millis(delay));
                if now < due { Step::WaitUntil(due) } else { self.pass_all() }
            }
            Toxic::ResetPeer { timeout } => self.close_later(timeout, Ending::Reset, now),
            // The pause after the last slice belongs to the slice.
            Toxic::Slicer { .. } => match self.due.filter(|due| now < *due) {
                Some(due) => Step::WaitUntil(due),
                None => self.pass_all(),
            },
            _ => self.pass_all(),
        }
    }

    fn timeout(&mut self, timeout: u64, now: Instant) -> Step {
        match self.queue.pop_front() {
            Some(Item::End) => return Step::Pass(Item::End),
            Some(Item::Data(..)) => {
                self.since = now;
                return Step::Lost;
            }
            None => {}
        }
        let due = self.since + Duration::from_millis(timeout);
        match timeout {
            0 => Step::Wait,
            _ if now < due => Step::WaitUntil(due),
            _ => Step::Close(Ending::Fin),
        }
    }

    fn trigger(&mut self) -> Step {
        let Rule::Trigger { set, left, fired } = &mut self.rule else { return Step::Wait };
        if *left == 0 && !*fired {
            *fired = true;
            set.fire();
        }
        if *fired {
            return match set.trigger.action() {
                Action::Fin => Step::Close(Ending::Fin),
                Action::Reset => Step::Close(Ending::Reset),
                Action::Swallow if matches!(self.queue.front(), Some(Item::Data(..))) => {
                    self.queue.pop_front();
                    Step::Lost
                }
                Action::Hold | Action::Swallow => Step::Wait,
            };
        }
        match self.queue.front() {
            None => Step::Wait,
            Some(Item::End) => self.pass_all(),
            Some(Item::Data(bytes, at)) => {
                let (piece, at) = ((bytes.len() as u64).min(*left), *at);
                *left -= piece;
                self.pass(usize::try_from(piece).expect("not more than there is"), at)
            }
        }
    }

    fn close_later(&mut self, timeout: u64, ending: Ending, now: Instant) -> Step {
        let due = *self.due.get_or_insert_with(|| now + Duration::from_millis(timeout));
        if now < due { Step::WaitUntil(due) } else { Step::Close(ending) }
    }

    fn pass_all(&mut self) -> Step {
        self.queue.pop_front().map_or(Step::Wait, Step::Pass)
    }

    /// The first `len` bytes of the data in front.
    fn pass(&mut self, len: usize, at: Instant) -> Step {
        self.due = None;
        let Some(Item::Data(bytes, _)) = self.queue.front_mut() else { return Step::Wait };
        let piece: Bytes = bytes.split_to(len);
        if bytes.is_empty() {
            self.queue.pop_front();
        }
        Step::Pass(Item::Data(piece, at))
    }
}

fn with_jitter(latency: u64, jitter: u64) -> Duration {
    let least = latency.saturating_sub(jitter);
    Duration::from_millis(fastrand::u64(least..=latency.saturating_add(jitter)))
}

fn slice(average: u64, variation: u64, len: usize) -> usize {
    let least = average.saturating_sub(variation);
    let size = fastrand::u64(least..=average.saturating_add(variation)).max(1);
    usize::try_from(size).unwrap_or(usize::MAX).min(len)
}
