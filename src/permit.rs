//! The guard in hand: one granted call, good for one short span.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::clock::{Clock, SystemClock};
use crate::figures::ClassBook;
use crate::policy::Instant;
use crate::policy::send_window::{Position, SendWindow};

/// Leave for one call.
///
/// It is good until [`closes_at`](Permit::closes_at) and is checked again at the moment of use, since the program may have
/// been stopped in between. Dropping it unused gives nothing back: the slot is spent (lapsed).
#[must_use = "a permit that is not used is a slot wasted"]
#[derive(Debug)]
pub struct Permit<C: Clock = SystemClock> {
    kind: Kind,
    clock: C,
    book: Arc<ClassBook>,
    /// On whose behalf, by number: 0 is nobody.
    surface: usize,
    used: bool,
}

#[derive(Debug)]
enum Kind {
    Governed {
        window: SendWindow,
        nonce: u64,
        cost: u32,
    },
    /// The switch is off: the process's own pace, and its one place for a call in flight.
    Polite {
        place: Option<OwnedSemaphorePermit>,
    },
}

/// The window had closed before the call could leave: do not send, acquire again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the permit's send window has closed: do not send, acquire again")
    }
}

impl std::error::Error for Closed {}

/// A call under way. Keep it until the answer is in: while the switch is off it holds the class's place.
#[must_use = "keep it until the vendor's answer is in"]
#[derive(Debug)]
pub struct Sending {
    _place: Option<OwnedSemaphorePermit>,
}

impl<C: Clock> Permit<C> {
    pub(crate) fn of_slot(window: SendWindow, nonce: u64, cost: u32, clock: C, book: Arc<ClassBook>) -> Self {
        book.permits(1);
        Self { kind: Kind::Governed { window, nonce, cost }, clock, book, surface: 0, used: false }
    }

    pub(crate) fn polite(place: OwnedSemaphorePermit, clock: C, book: Arc<ClassBook>) -> Self {
        book.permits(1);
        Self { kind: Kind::Polite { place: Some(place) }, clock, book, surface: 0, used: false }
    }

    /// The call is one of this surface.
    pub(crate) fn on_behalf_of(mut self, surface: usize) -> Self {
        self.surface = surface;
        self
    }

    /// Whether the shared budget stands behind this permit; false while the switch is off.
    pub fn governed(&self) -> bool {
        matches!(self.kind, Kind::Governed { .. })
    }

    /// The last moment at which the call may leave; `None` while the switch is off.
    pub fn closes_at(&self) -> Option<Instant> {
        match self.kind {
            Kind::Governed { window, .. } => Some(window.closes()),
            Kind::Polite { .. } => None,
        }
    }

    /// A number that no other permit of the fleet has, for the vendor's log or one's own; `None` while the switch is off.
    pub fn nonce(&self) -> Option<u64> {
        match self.kind {
            Kind::Governed { nonce, .. } => Some(nonce),
            Kind::Polite { .. } => None,
        }
    }

    /// The units that the slot was granted for; `None` while the switch is off.
    pub fn cost(&self) -> Option<u32> {
        match self.kind {
            Kind::Governed { cost, .. } => Some(cost),
            Kind::Polite { .. } => None,
        }
    }

    /// Spends the permit, if the call may still leave now. Send at once, and drop what comes back when the answer is in.
    ///
    /// # Errors
    /// [`Closed`]: the window has closed, nothing may be sent.
    pub fn start(self) -> Result<Sending, Closed> {
        self.start_if(|| true)
    }

    /// As [`Permit::start`], if inside the window `also` says yes. Else the slot lapses.
    pub(crate) fn start_if(mut self, also: impl FnOnce() -> bool) -> Result<Sending, Closed> {
        // The window again afterwards: `also` may be long, since it may tell others what it does.
        if !self.is_inside() || !also() || !self.is_inside() {
            return Err(Closed);
        }
        self.used = true;
        self.book.sent(self.surface);
        let place = match &mut self.kind {
            Kind::Governed { .. } => None,
            Kind::Polite { place } => place.take(),
        };
        Ok(Sending { _place: place })
    }

    fn is_inside(&self) -> bool {
        match self.kind {
            Kind::Governed { window, .. } => window.position(self.clock.now()) == Position::Inside,
            Kind::Polite { .. } => true,
        }
    }

    /// Makes the call: checks the window in the same poll in which it starts the future that `send` makes.
    ///
    /// # Errors
    /// [`Closed`]: the window has closed; `send` was not called.
    pub async fn call<F, Fut>(self, send: F) -> Result<Fut::Output, Closed>
    where
        F: FnOnce() -> Fut,
        Fut: Future,
    {
        let sending = self.start()?;
        let output = send().await;
        drop(sending);
        Ok(output)
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        if !self.used {
            self.book.lapsed(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::counters::Tally;
    use crate::figures::Ledger;
    use crate::test_util::ManualClock;

    #[test]
    fn a_window_that_closes_while_others_are_told_lets_nothing_leave() {
        let ms = Duration::from_millis;
        let now = Instant::default() + ms(1000);
        for (takes, leaves) in [(50, true), (51, false)] {
            let clock = ManualClock::at(now);
            let tally = Arc::<Tally>::default();
            let book = Ledger::new(Arc::clone(&tally), [].iter()).open(&"kis-real".into(), &"order".into(), 0);
            let window = SendWindow::of_slot(now, now, ms(0), ms(50)).expect("the round trip took nothing");
            let permit = Permit::of_slot(window, 1, 1, clock.clone(), book);
            let telling = || {
                clock.advance(ms(takes));
                true
            };
            assert_eq!(permit.start_if(telling).is_ok(), leaves, "{takes} ms");
            assert_eq!(tally.read().lapsed, u64::from(!leaves));
        }
    }
}
