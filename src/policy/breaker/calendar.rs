//! Windows of the week in which a vendor is expected to fail, or is closed.

use std::collections::BTreeSet;

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

use crate::policy::Wall;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calendar {
    pub windows: Vec<Window>,
}

/// A window of the week, in local time. Where `to` is not later than `from` it ends on the next day; it belongs to the day on
/// which it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub tz: TimeZone,
    /// Monday first.
    pub days: [bool; 7],
    /// Days on which it does not happen.
    pub holidays: BTreeSet<Date>,
    pub from: Time,
    pub to: Time,
    pub mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Failures are expected: blocks nothing, and a wait that would end after the window ends with it.
    Expect,
    /// Nobody passes, and a probe goes first afterwards. Beats [`Mode::Expect`].
    Closed,
}

/// A stretch of time, from inclusive, to exclusive, in which nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Wall,
    pub to: Wall,
    pub mode: Option<Mode>,
}

impl Calendar {
    /// The stretch around this moment. Without windows: all of time.
    pub fn at(&self, wall: Wall) -> Span {
        let _ = wall;
        todo!()
    }

    /// The first end of an `expect` window later than `from` and earlier than `until`, of those that begin before `until`.
    pub fn cut(&self, from: Wall, until: Wall) -> Option<Wall> {
        let _ = (from, until);
        todo!()
    }

    /// The latest end of a stretch of `closed` that is not later than this moment, looking back 8 days.
    pub fn last_closed_end(&self, wall: Wall) -> Option<Wall> {
        let _ = wall;
        todo!()
    }
}
