//! The bound of `policy::spacing` for settings as the schema holds them.

use std::time::Duration;

use crate::policy::spacing::Limit;
use crate::store::admin::Settings;

/// What the vendor counts. Numbers below zero count as zero, which no interval makes safe.
pub fn limit(settings: &Settings) -> Limit {
    let duration = |us: i64| Duration::from_micros(us.try_into().unwrap_or(0));
    Limit {
        units: settings.limit.try_into().unwrap_or(0),
        window: duration(settings.window_us),
        send_window: duration(settings.send_window_us),
        arrival_jitter: duration(settings.arrival_jitter_us),
        max_cost: settings.max_cost.try_into().unwrap_or(0),
    }
}

/// The shortest safe interval in microseconds, if there is one.
pub fn safe_interval_us(settings: &Settings) -> Option<i64> {
    i64::try_from(limit(settings).interval().ok()?.as_micros()).ok()
}

/// Whether the settings keep every window within the limit.
pub fn is_safe(settings: &Settings) -> bool {
    limit(settings).is_safe_at(Duration::from_micros(settings.interval_us.try_into().unwrap_or(0)))
}
