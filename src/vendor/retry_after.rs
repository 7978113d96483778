//! Retry-After: seconds, or a date.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;

use crate::policy::Wall;

/// How long this Retry-After asks to wait. None where it cannot be read, and where the wait is over already: an answer that
/// says "too many, at once" has said nothing that a caller could keep to.
pub(super) fn read(text: &str, wall: Wall) -> Option<Duration> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wait = if digits {
        // More digits than fit is a long wait, not none.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        const DATES: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);
        let until = DATES.parse_timestamp(text).ok()?;
        Wall::from_unix_us(until.as_microsecond()).saturating_since(wall)
    };
    Some(wait).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wed, 21 Oct 2015 07:28:00 GMT.
    const NOW: Wall = Wall::from_unix_us(1_445_412_480_000_000);

    #[test]
    fn seconds_and_dates_are_both_understood() {
        let seconds = |text| read(text, NOW).map(|wait| wait.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 7 "), Some(7));
        assert_eq!(seconds("Wed, 21 Oct 2015 07:28:30 GMT"), Some(30));
        assert_eq!(seconds("Thu, 22 Oct 2015 07:28:00 GMT"), Some(86_400));
        assert_eq!(seconds("99999999999999999999999999"), Some(u64::MAX));
    }

    #[test]
    fn a_wait_that_is_over_or_cannot_be_read_is_none() {
        for text in ["0", "Wed, 21 Oct 2015 07:28:00 GMT", "Tue, 20 Oct 2015 07:28:00 GMT", "", "soon", "-5", "1.5"] {
            assert_eq!(read(text, NOW), None, "{text:?}");
        }
    }

    #[test]
    fn a_date_with_the_wrong_day_of_the_week_is_still_a_date() {
        assert_eq!(read("Mon, 21 Oct 2015 07:28:30 GMT", NOW), Some(Duration::from_secs(30)));
    }
}
