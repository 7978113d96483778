//! Durations as people write and read them: `50ms`, `1s`, `1m 30s`. Inside: microseconds, as in the schema.

use jiff::SignedDuration;

/// Reads a duration into microseconds, for clap.
pub fn parse_us(text: &str) -> Result<i64, String> {
    let duration: SignedDuration =
        text.parse().map_err(|_| "a duration has a unit, such as 50ms, 1s or \"1m 30s\"".to_owned())?;
    if duration.is_negative() {
        return Err("a duration is not negative, write for example 50ms".to_owned());
    }
    if duration.subsec_nanos() % 1000 != 0 {
        return Err("a duration is in whole microseconds, write for example 50us".to_owned());
    }
    i64::try_from(duration.as_micros()).map_err(|_| "a duration is at most 10 days here".to_owned())
}

/// The duration in full: `61ms 174µs`.
pub fn friendly(us: i64) -> String {
    format!("{:#}", SignedDuration::from_micros(us))
}

/// The duration, rounded, as far as it says something at a glance: `61ms`, `3s 20ms`, `2h 5m`.
pub fn rough(us: i64) -> String {
    let unit = match us.unsigned_abs() {
        0..1_000 => 1,
        1_000..10_000_000 => 1_000,
        10_000_000..600_000_000 => 1_000_000,
        _ => 60_000_000,
    };
    friendly(us.saturating_add(us.signum() * unit / 2) / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_read_again() {
        for us in [0, 1, 61_174, 1_000_000, 90_000_000, 864_000_000_000] {
            assert_eq!(parse_us(&friendly(us)), Ok(us), "{}", friendly(us));
        }
        assert_eq!(friendly(61_174), "61ms 174µs");
    }

    #[test]
    fn a_duration_without_sense_is_refused_with_an_example() {
        for text in ["", "1", "soon", "-1s", "1s ago", "1ns", "999999999999999999h", "NaN s"] {
            let refusal = parse_us(text).unwrap_err();
            assert!(refusal.starts_with("a duration"), "{text:?}: {refusal}");
        }
    }

    #[test]
    fn a_rough_duration_drops_what_nobody_reads() {
        assert_eq!(rough(61_174), "61ms");
        assert_eq!(rough(9_895), "10ms");
        assert_eq!(rough(-1_400), "1ms ago");
        assert_eq!(rough(999), "999µs");
        assert_eq!(rough(i64::MAX), rough(i64::MAX - 1));
        assert_eq!(rough(7_265_000_000), "2h 1m");
    }
}
