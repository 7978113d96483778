//! Moments as the clock on the wall shows them here.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};

use crate::policy::Wall;

/// The moment in the zone of this machine, or of the variable TZ.
pub fn local(wall: Wall) -> ZonedDateTime {
    Timestamp::from_microsecond(wall.unix_us()).unwrap_or_default().to_zoned_datetime(zone())
}

/// As the C library finds it, UTC where nothing says it.
fn zone() -> TimeZone {
    let from_file = |path: &str| std::fs::read(path).ok().and_then(|file| TimeZone::tzif(path, &file).ok());
    let zone = match std::env::var("TZ") {
        Ok(named) => match named.strip_prefix(':').unwrap_or(&named) {
            path if path.starts_with('/') => from_file(path),
            name => TimeZone::get(name).or_else(|_| TimeZone::posix(name)).ok(),
        },
        Err(_) => from_file("/etc/localtime"),
    };
    zone.unwrap_or(TimeZone::UTC)
}
