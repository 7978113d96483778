//! What is kept of a budget, as the tables keep it.

/// What may be set of a budget. Whether the interval is safe for the vendor's limit is [`crate::policy::spacing`]'s
/// question; here it is taken as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Between two slots: 1 us to 10 days.
    pub interval_us: i64,
    /// How far ahead of now a slot may be promised: 1 ms to 5 s.
    pub lookahead_us: i64,
    /// How long after its slot a call may leave: 1 ms to 60 s.
    pub send_window_us: i64,
    /// The largest cost of one call: 1 or more.
    pub max_cost: i32,
}

/// The budget's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    pub settings: Settings,
    pub version: i64,
    pub paused: bool,
    pub last_slot_us: i64,
    pub last_cost: i32,
    pub last_seen_us: i64,
    pub blocked_until_us: i64,
    pub fenced_until_us: i64,
    pub fences: i64,
    /// The widest promise that a forgotten commit can have made since the last fence.
    pub widest_lookahead_us: i64,
    pub widest_max_cost: i32,
}

/// A class's row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub priority: i32,
    pub floor_ppm: i32,
    pub due_us: i64,
    pub last_slot_us: i64,
    pub granted: i64,
}

/// A lane's row: what it still wants and when it is to come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub class: String,
    pub units: i64,
    pub place_us: i64,
    pub appointment_us: i64,
}
