//! Orders by hand: who, why, until when.

use std::time::Duration;

use super::{Breaker, Event, Instant, Moment, Order, State};

/// What was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    ForceOpen,
    Bypass,
    Observe,
}

#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) hand: Hand,
    pub(super) order: Order,
}

impl Hand {
    const fn given(self) -> &'static str {
        match self {
            Hand::ForceOpen => "force_open",
            Hand::Bypass => "bypass",
            Hand::Observe => "observe",
        }
    }

    const fn ran_out(self) -> &'static str {
        match self {
            Hand::ForceOpen => "force_open ran out",
            Hand::Bypass => "bypass ran out",
            Hand::Observe => "observe ran out",
        }
    }
}

impl Breaker {
    /// Nobody passes.
    pub fn force_open(&mut self, at: Moment, order: Order) {
        self.order(at, Hand::ForceOpen, order);
    }

    /// Lets everybody pass and counts nothing.
    pub fn bypass(&mut self, at: Moment, order: Order) {
        self.order(at, Hand::Bypass, order);
    }

    /// Lets everybody pass; counts, and never trips.
    pub fn observe(&mut self, at: Moment, order: Order) {
        self.order(at, Hand::Observe, order);
    }

    /// Closed, with nothing counted and no order in force. `order.until` means nothing here.
    pub fn reset(&mut self, at: Moment, order: Order) {
        let at = self.forward(at);
        self.catch_up(at);
        self.count_time(at.now);
        self.by_hand = None;
        self.tell_by_hand("reset", &order, None);
        if let State::Open(_) = self.state {
            self.close(at);
        } else {
            self.next_epoch();
        }
        self.end_episode(at.now);
    }

    fn order(&mut self, at: Moment, hand: Hand, order: Order) {
        let at = self.forward(at);
        self.catch_up(at);
        self.count_time(at.now);
        let in_force_for = order.until.map(|until| until.saturating_since(at.now));
        self.tell_by_hand(hand.given(), &order, in_force_for);
        self.by_hand = Some(InForce { hand, order });
        self.next_epoch();
    }

    /// Ends an order whose time is over: at its own instant, not when somebody looks.
    pub(super) fn run_out(&mut self, now: Instant) {
        let ended = |in_force: &InForce| in_force.order.until.filter(|until| *until <= now);
        let Some(until) = self.by_hand.as_ref().and_then(ended) else { return };
        self.count_time(until);
        if let Some(InForce { hand, order }) = self.by_hand.take() {
            self.tell_by_hand(hand.ran_out(), &order, None);
        }
        if let Some(episode) = &mut self.episode {
            episode.quiet_from(until.max(episode.quiet_since));
        }
        self.next_epoch();
    }

    pub(super) fn hand(&self) -> Option<Hand> {
        self.by_hand.as_ref().map(|in_force| in_force.hand)
    }

    pub(super) fn order_ends_at(&self) -> Option<Instant> {
        self.by_hand.as_ref().and_then(|in_force| in_force.order.until)
    }

    fn tell_by_hand(&mut self, what: &'static str, order: &Order, in_force_for: Option<Duration>) {
        self.tell(Event::ByHand { what, who: order.who.clone(), why: order.why.clone(), in_force_for });
    }
}
