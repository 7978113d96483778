//! What stands in a caller's way, and when that can change. Changes nothing that counts.

use std::time::Duration;

use super::{Breaker, Hand, Instant, Mode, Moment, Open, PassedOver, Reason, Refusal, State};

/// Something can change at any time, so it is worth to ask again after this long.
const ANY_TIME: Duration = Duration::from_secs(1);
/// How long after a probe is due the call that failed the last one lets others go first.
const PASSED_OVER: Duration = Duration::from_secs(1);

impl Breaker {
    /// Why this caller may not pass now.
    pub(super) fn obstacle(&mut self, at: Moment, call: u64, may_probe: bool) -> Option<Refusal> {
        if let Some(in_force) = &self.by_hand {
            let order = &in_force.order;
            return (in_force.hand == Hand::ForceOpen).then(|| Refusal {
                reason: Reason::ForcedOpen { who: order.who.clone(), why: order.why.clone() },
                retry_at: order.until.unwrap_or(at.now + ANY_TIME),
            });
        }
        if let Some(refusal) = self.closed_window(at) {
            return Some(refusal);
        }
        if self.opens_at().is_some_and(|until| until > at.now) {
            return Some(Refusal { reason: Reason::Open, retry_at: self.after_closed_window(at) });
        }
        let State::Open(open) = &self.state else { return None };
        let probes = &self.rules.probes;
        let (reason, retry_at) = if !open.round.has_place(probes) || !may_probe && open.round.out() > 0 {
            let lost = open.round.next_lost(probes.timeout);
            (Reason::Probing, lost.map_or(at.now + ANY_TIME, |lost| lost.min(at.now + ANY_TIME)))
        } else if !may_probe {
            (Reason::NoProbe, at.now + ANY_TIME)
        } else {
            (Reason::NoProbe, open.others_first(call).filter(|until| *until > at.now)?)
        };
        Some(Refusal { reason, retry_at })
    }

    /// A calendar says that the vendor is closed now, and no order says otherwise.
    pub(super) fn closed_window(&mut self, at: Moment) -> Option<Refusal> {
        if self.stretch.mode != Some(Mode::Closed) || self.by_hand.is_some() {
            return None;
        }
        let end = at.now + self.stretch.to.saturating_since(at.wall);
        let waits_longer = self.opens_at().is_some_and(|until| until > end);
        let retry_at = if waits_longer { self.after_closed_window(at) } else { end };
        Some(Refusal { reason: Reason::ClosedWindow, retry_at })
    }

    /// Whether a probe is due or under way, and no order makes that irrelevant.
    pub(super) fn is_probing(&self) -> bool {
        matches!(self.state, State::Open(_)) && self.by_hand.is_none()
    }

    fn opens_at(&self) -> Option<Instant> {
        match &self.state {
            State::Open(open) => Some(open.until),
            State::Closed => None,
        }
    }

    /// When the open wait ends, or the closed window in which it ends.
    fn after_closed_window(&mut self, at: Moment) -> Instant {
        let State::Open(open) = &mut self.state else { return at.now };
        if self.rules.calendar.windows.is_empty() {
            return open.until;
        }
        let wall = at.wall + open.until.saturating_since(at.now);
        let known = open.around_until.filter(|stretch| stretch.from <= wall && wall < stretch.to);
        let stretch = known.unwrap_or_else(|| self.rules.calendar.at(wall));
        open.around_until = Some(stretch);
        if stretch.mode == Some(Mode::Closed) { open.until + stretch.to.saturating_since(wall) } else { open.until }
    }
}

impl Open {
    /// Until when this call lets others go first.
    fn others_first(&self, call: u64) -> Option<Instant> {
        let PassedOver { call: failed_call, failed, others_wait } = self.passed_over?;
        (others_wait && call == failed_call).then(|| self.until.max(failed) + PASSED_OVER)
    }
}
