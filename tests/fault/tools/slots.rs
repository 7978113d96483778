//! What became of a process's slots.

use call_budget::Counters;

/// Slots that came and were not handed out, whatever the reason.
pub fn dropped(counters: &Counters) -> u64 {
    counters.dropped_round_trip + counters.dropped_late + counters.dropped_unwanted + counters.dropped_clock_step
}
