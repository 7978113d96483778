//! When a granted call may leave, on the caller's own clock.
//!
//! The store read its clock somewhere between the caller's `asked` and `answered`, so a slot that is `wait` after that
//! reading lies in [asked + wait, answered + wait] on the caller's clock. A call that leaves in
//! [answered + wait, asked + wait + send_window] therefore lies in [slot, slot + send_window], whatever the two clocks show.
//! Only equal clock rates are assumed, over about a second.

use std::time::Duration;

use super::Instant;

/// The span in which one granted call may leave. Both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow {
    opens: Instant,
    closes: Instant,
}

/// Where `now` lies relative to a send window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Too early.
    Before,
    /// The call may leave.
    Inside,
    /// Too late: the slot is spent, ask again.
    After,
}

impl SendWindow {
    /// The window of a slot that starts `wait` after the store read its clock, or `None` where the round trip has eaten it.
    pub fn of_slot(asked: Instant, answered: Instant, wait: Duration, send_window: Duration) -> Option<Self> {
        let (opens, closes) = (answered + wait, asked + wait + send_window);
        (opens <= closes).then_some(Self { opens, closes })
    }

    /// The first moment at which the call may leave.
    pub const fn opens(self) -> Instant {
        self.opens
    }

    /// The last moment at which the call may leave.
    pub const fn closes(self) -> Instant {
        self.closes
    }

    /// Where `now` lies.
    pub fn position(self, now: Instant) -> Position {
        if now < self.opens {
            Position::Before
        } else if now <= self.closes {
            Position::Inside
        } else {
            Position::After
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(ms))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_call_leaves_after_the_latest_and_before_the_earliest_that_the_slot_can_be() {
        let window = SendWindow::of_slot(at(100), at(120), ms(30), ms(50)).unwrap();
        assert_eq!((window.opens(), window.closes()), (at(150), at(180)));
        assert_eq!(window.position(at(149)), Position::Before);
        assert_eq!(window.position(at(150)), Position::Inside);
        assert_eq!(window.position(at(180)), Position::Inside);
        assert_eq!(window.position(at(181)), Position::After);
    }

    #[test]
    fn a_round_trip_longer_than_the_send_window_leaves_no_window() {
        assert!(SendWindow::of_slot(at(100), at(150), ms(0), ms(50)).is_some());
        assert!(SendWindow::of_slot(at(100), at(151), ms(0), ms(50)).is_none());
    }
}
