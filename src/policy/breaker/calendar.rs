//! Windows of the week in which a vendor is expected to fail, or is closed.
//!
//! A window is counted from its start day, in its own time zone. Where the local clock leaps over a time, that time means the
//! first moment after the leap; where it shows a time twice, a window begins at the first and ends at the second.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};

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
    /// Start days on which it does not happen.
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
    /// The stretch around this moment, looking 8 days back and forth: where nothing changes in them, it ends there. Without
    /// windows: all of time.
    pub fn at(&self, wall: Wall) -> Span {
        if self.windows.is_empty() {
            return Span { from: Wall::from_unix_us(i64::MIN), to: Wall::from_unix_us(i64::MAX), mode: None };
        }
        let mut span = Span { from: wall - LOOK, to: wall + LOOK, mode: None };
        for mode in [Mode::Closed, Mode::Expect] {
            for stretch in self.stretches(mode, span.from, span.to) {
                if stretch.to <= wall {
                    span.from = span.from.max(stretch.to);
                } else if stretch.from > wall {
                    span.to = span.to.min(stretch.from);
                } else {
                    return Span { from: span.from.max(stretch.from), to: span.to.min(stretch.to), mode: Some(mode) };
                }
            }
        }
        span
    }

    /// The first end of an `expect` window later than `from` and earlier than `until`, at most 8 days after `from`. Windows that
    /// touch are one.
    pub fn cut(&self, from: Wall, until: Wall) -> Option<Wall> {
        let until = until.min(from + LOOK);
        self.stretches(Mode::Expect, from, until).into_iter().map(|stretch| stretch.to).find(|end| *end < until)
    }

    /// The latest end of a stretch of `closed` that is not later than this moment, looking back 8 days. Windows that touch are
    /// one.
    pub fn last_closed_end(&self, wall: Wall) -> Option<Wall> {
        let ends = self.stretches(Mode::Closed, wall - LOOK, wall).into_iter().map(|stretch| stretch.to);
        ends.filter(|end| *end <= wall).max()
    }

    /// The windows of this mode that end after `from` and begin no later than `until`, in order, each whole; those that
    /// overlap or touch are one.
    fn stretches(&self, mode: Mode, from: Wall, until: Wall) -> Vec<Stretch> {
        let windows = self.windows.iter().filter(|window| window.mode == mode);
        let mut all: Vec<_> = windows.flat_map(|window| window.around(from, until)).collect();
        all.sort_unstable_by_key(|stretch| stretch.from);
        let mut joined: Vec<Stretch> = Vec::with_capacity(all.len());
        for stretch in all {
            match joined.last_mut() {
                Some(last) if stretch.from <= last.to => last.to = last.to.max(stretch.to),
                _ => joined.push(stretch),
            }
        }
        joined.retain(|stretch| stretch.to > from && stretch.from <= until);
        joined
    }
}

impl Window {
    /// Each time that it happens between these moments, and a few more on both sides, with which those may be one.
    fn around(&self, from: Wall, until: Wall) -> impl Iterator<Item = Stretch> {
        let local_date = |wall: Wall| self.tz.to_datetime(timestamp(wall)).date();
        let last = local_date(until).saturating_add(SIDE);
        let days = local_date(from).saturating_sub(SIDE).series(jiff::Span::new().days(1));
        days.take_while(move |day| *day <= last).filter_map(|day| self.on(day))
    }

    /// What it is on this start day; `None` where it does not happen, or the local clock leaps over it.
    fn on(&self, day: Date) -> Option<Stretch> {
        let weekday = usize::try_from(day.weekday().to_monday_zero_offset()).ok()?;
        if !*self.days.get(weekday)? || self.holidays.contains(&day) {
            return None;
        }
        let last = if self.to > self.from { day } else { day.tomorrow().ok()? };
        let from = self.moment(day.to_datetime(self.from), Twice::First)?;
        let to = self.moment(last.to_datetime(self.to), Twice::Second)?;
        (from < to).then_some(Stretch { from, to })
    }

    /// When the local clock shows this.
    fn moment(&self, local: DateTime, twice: Twice) -> Option<Wall> {
        let ambiguous = self.tz.to_ambiguous_timestamp(local);
        let moment = match (ambiguous.offset(), twice) {
            (AmbiguousOffset::Gap { before, after }, _) => {
                // The leap is later than the one reading and not later than the other.
                let least = after.to_timestamp(local).ok()?;
                let most = before.to_timestamp(local).ok()?;
                let mut leaps = self.tz.following(least).map(|leap| (leap.timestamp(), leap.offset()));
                leaps.find(|(at, offset)| *at > most || *offset == after).map_or(most, |(at, _)| at.min(most))
            }
            (_, Twice::First) => ambiguous.earlier().ok()?,
            (_, Twice::Second) => ambiguous.later().ok()?,
        };
        Some(Wall::from_unix_us(moment.as_microsecond()))
    }
}

/// From inclusive, to exclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    from: Wall,
    to: Wall,
}

/// Which one is meant where the local clock shows a time twice.
#[derive(Clone, Copy)]
enum Twice {
    First,
    Second,
}

/// The nearest moment that calendars reach: the years -9999 to 9999.
fn timestamp(wall: Wall) -> Timestamp {
    let ends = if wall.unix_us() < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_microsecond(wall.unix_us()).unwrap_or(ends)
}

/// What happens happens every week: a week, and a day for a window that began before.
const LOOK: Duration = Duration::from_secs(8 * 86_400);
/// A window is over two days after its start day began, whatever the local clock leaps over.
const SIDE: jiff::SignedDuration = jiff::SignedDuration::from_hours(3 * 24);

#[cfg(test)]
mod tests {
    use jiff::civil::{date, time};

    use super::*;

    const WEEKDAYS: [bool; 7] = [true, true, true, true, true, false, false];
    const EVERY_DAY: [bool; 7] = [true; 7];

    fn wall(text: &str) -> Wall {
        Wall::from_unix_us(text.parse::<Timestamp>().unwrap().as_microsecond())
    }

    fn shown(wall: Wall) -> String {
        timestamp(wall).to_string()
    }

    fn window(tz: &str, days: [bool; 7], from: Time, to: Time, mode: Mode) -> Window {
        Window { tz: TimeZone::get(tz).unwrap(), days, holidays: BTreeSet::new(), from, to, mode }
    }

    fn of(windows: impl IntoIterator<Item = Window>) -> Calendar {
        Calendar { windows: windows.into_iter().collect() }
    }

    fn daily(tz: &str, from: Time, to: Time) -> Calendar {
        of([window(tz, EVERY_DAY, from, to, Mode::Closed)])
    }

    /// The opening of the Korean exchange: the vendor's connections break from 09:00 to 09:05.
    fn krx_open() -> Calendar {
        of([window("Asia/Seoul", WEEKDAYS, time(9, 0, 0, 0), time(9, 5, 0, 0), Mode::Expect)])
    }

    #[track_caller]
    fn is(calendar: &Calendar, at: &str, mode: Option<Mode>, from: &str, to: &str) {
        let span = calendar.at(wall(at));
        assert_eq!(
            (span.mode, shown(span.from), shown(span.to)),
            (mode, shown(wall(from)), shown(wall(to))),
            "at {at}"
        );
    }

    #[test]
    fn a_window_is_in_its_own_time_zone_and_not_in_utc() {
        // 2026-03-02 is a Monday.
        assert_eq!(krx_open().at(wall("2026-03-02T09:02:00+09:00")).mode, Some(Mode::Expect));
        assert_eq!(krx_open().at(wall("2026-03-02T09:02:00Z")).mode, None);
        assert_eq!(
            krx_open().cut(wall("2026-03-02T00:04:00Z"), wall("2026-03-02T00:09:00Z")),
            Some(wall("2026-03-02T00:05:00Z"))
        );
    }

    #[test]
    fn the_opening_in_seoul_begins_and_ends_to_the_second() {
        let calendar = krx_open();
        let (open, over) = ("2026-03-02T09:00:00+09:00", "2026-03-02T09:05:00+09:00");
        // Over the weekend before, from Friday's end.
        is(&calendar, "2026-03-02T08:59:59.999999+09:00", None, "2026-02-27T09:05:00+09:00", open);
        is(&calendar, open, Some(Mode::Expect), open, over);
        is(&calendar, "2026-03-02T09:04:59.999999+09:00", Some(Mode::Expect), open, over);
        is(&calendar, over, None, over, "2026-03-03T09:00:00+09:00");
    }

    #[test]
    fn a_wait_is_cut_at_the_end_of_the_window_and_only_where_it_would_end_later() {
        let calendar = krx_open();
        let at = |clock: &str| wall(&format!("2026-03-02T{clock}+09:00"));
        let end = Some(at("09:05:00"));
        assert_eq!(calendar.cut(at("09:04:07"), at("09:09:07")), end);
        assert_eq!(calendar.cut(at("08:59:59"), at("09:05:01")), end, "the window begins in the wait");
        assert_eq!(calendar.cut(at("09:04:00"), at("09:05:00")), None, "the wait ends with the window anyway");
        assert_eq!(calendar.cut(at("09:00:07"), at("09:00:37")), None);
        assert_eq!(calendar.cut(at("09:05:00"), at("09:10:00")), None, "the window is over");
        assert_eq!(calendar.cut(at("08:00:00"), at("08:59:00")), None);
        assert_eq!(calendar.cut(at("09:05:00"), Wall::from_unix_us(i64::MAX)), Some(wall("2026-03-03T09:05:00+09:00")));
        assert_eq!(calendar.cut(at("09:04:00"), at("09:03:00")), None, "no wait at all");
    }

    #[test]
    fn without_windows_nothing_ever_changes() {
        let calendar = Calendar::default();
        let now = wall("2026-03-02T09:02:00+09:00");
        let span = Span { from: Wall::from_unix_us(i64::MIN), to: Wall::from_unix_us(i64::MAX), mode: None };
        assert_eq!(calendar.at(now), span);
        assert_eq!(calendar.cut(now, now + LOOK), None);
        assert_eq!(calendar.last_closed_end(now), None);
        let never = of([window("Asia/Seoul", [false; 7], time(9, 0, 0, 0), time(9, 5, 0, 0), Mode::Closed)]);
        assert_eq!(never.at(now), Span { from: now - LOOK, to: now + LOOK, mode: None });
    }

    #[test]
    fn moments_beyond_every_calendar_are_answered_too() {
        for us in [i64::MIN, i64::MIN + 1, 0, i64::MAX - 1, i64::MAX] {
            let wall = Wall::from_unix_us(us);
            let span = krx_open().at(wall);
            assert!(span.from <= wall && wall <= span.to, "{span:?}");
            krx_open().cut(wall, wall + LOOK);
            krx_open().last_closed_end(wall);
        }
    }

    #[test]
    fn an_overnight_window_belongs_to_the_day_on_which_it_starts() {
        let friday = [false, false, false, false, true, false, false];
        let night = of([window("Asia/Seoul", friday, time(22, 0, 0, 0), time(6, 0, 0, 0), Mode::Closed)]);
        let (from, to) = ("2026-03-06T22:00:00+09:00", "2026-03-07T06:00:00+09:00");
        is(&night, "2026-03-06T05:00:00+09:00", None, "2026-02-28T06:00:00+09:00", from);
        is(&night, "2026-03-07T05:59:59+09:00", Some(Mode::Closed), from, to);
        assert_eq!(night.last_closed_end(wall("2026-03-07T05:59:59+09:00")), Some(wall("2026-02-28T06:00:00+09:00")));
        assert_eq!(night.last_closed_end(wall(to)), Some(wall(to)));
    }

    #[test]
    fn a_window_over_the_weekend_is_one_stretch() {
        // The paper host: each of two days from midnight to midnight.
        let weekend = [false, false, false, false, false, true, true];
        let calendar = of([window("Asia/Seoul", weekend, Time::midnight(), Time::midnight(), Mode::Closed)]);
        let (from, to) = ("2026-03-07T00:00:00+09:00", "2026-03-09T00:00:00+09:00");
        for inside in [from, "2026-03-07T23:59:59+09:00", "2026-03-08T00:00:00+09:00", "2026-03-08T23:59:59+09:00"] {
            is(&calendar, inside, Some(Mode::Closed), from, to);
        }
        assert_eq!(
            calendar.last_closed_end(wall("2026-03-08T12:00:00+09:00")),
            Some(wall("2026-03-02T00:00:00+09:00"))
        );
        assert_eq!(calendar.last_closed_end(wall("2026-03-11T12:00:00+09:00")), Some(wall(to)));
    }

    #[test]
    fn a_holiday_takes_away_the_window_that_starts_on_it_and_no_other() {
        let mut night = window("Asia/Seoul", EVERY_DAY, time(22, 0, 0, 0), time(6, 0, 0, 0), Mode::Closed);
        night.holidays.insert(date(2026, 3, 3));
        let calendar = of([night]);
        is(
            &calendar,
            "2026-03-03T05:00:00+09:00",
            Some(Mode::Closed),
            "2026-03-02T22:00:00+09:00",
            "2026-03-03T06:00:00+09:00",
        );
        is(&calendar, "2026-03-03T23:00:00+09:00", None, "2026-03-03T06:00:00+09:00", "2026-03-04T22:00:00+09:00");
        let mut open = krx_open();
        open.windows[0].holidays.insert(date(2026, 3, 2));
        let at = |clock: &str| wall(&format!("2026-03-02T{clock}+09:00"));
        assert_eq!(open.cut(at("09:04:07"), at("09:09:07")), None);
    }

    #[test]
    fn closed_beats_expect() {
        let at = |hour| time(hour, 0, 0, 0);
        let calendar = of([
            window("Asia/Seoul", EVERY_DAY, at(8), at(12), Mode::Expect),
            window("Asia/Seoul", EVERY_DAY, at(9), at(10), Mode::Closed),
        ]);
        for (clock, mode, from, to) in [
            ("08:30", Some(Mode::Expect), "08:00", "09:00"),
            ("09:00", Some(Mode::Closed), "09:00", "10:00"),
            ("10:00", Some(Mode::Expect), "10:00", "12:00"),
        ] {
            let day = |clock: &str| format!("2026-03-02T{clock}:00+09:00");
            is(&calendar, &day(clock), mode, &day(from), &day(to));
        }
    }

    #[test]
    fn windows_that_overlap_or_touch_are_one() {
        let at = |hour| time(hour, 0, 0, 0);
        let expect = |from, to| window("Asia/Seoul", EVERY_DAY, at(from), at(to), Mode::Expect);
        let calendar = of([expect(11, 12), expect(8, 10), expect(9, 11)]);
        let day = |clock: &str| format!("2026-03-02T{clock}:00+09:00");
        is(&calendar, &day("10:30"), Some(Mode::Expect), &day("08:00"), &day("12:00"));
        assert_eq!(calendar.cut(wall(&day("08:30")), wall(&day("11:30"))), None);
        assert_eq!(calendar.cut(wall(&day("08:30")), wall(&day("12:30"))), Some(wall(&day("12:00"))));
    }

    #[test]
    fn a_time_that_the_clock_leaps_over_means_the_first_moment_after_it() {
        // 2026-03-08, 02:00 -> 03:00.
        let leap = "2026-03-08T03:00:00-04:00";
        let calendar = daily("America/New_York", time(2, 30, 0, 0), time(4, 0, 0, 0));
        is(&calendar, leap, Some(Mode::Closed), leap, "2026-03-08T04:00:00-04:00");
        assert_eq!(calendar.at(wall("2026-03-08T01:59:59.999999-05:00")).mode, None);
        let calendar = daily("America/New_York", time(1, 0, 0, 0), time(2, 30, 0, 0));
        is(&calendar, "2026-03-08T01:30:00-05:00", Some(Mode::Closed), "2026-03-08T01:00:00-05:00", leap);
        // Both in the gap: it does not happen that day.
        let calendar = daily("America/New_York", time(2, 10, 0, 0), time(2, 50, 0, 0));
        is(&calendar, leap, None, "2026-03-07T02:50:00-05:00", "2026-03-09T02:10:00-04:00");
    }

    #[test]
    fn a_time_that_the_clock_shows_twice_is_the_first_for_the_start_and_the_second_for_the_end() {
        // 2026-11-01, 02:00 -> 01:00.
        let calendar = daily("America/New_York", time(1, 15, 0, 0), time(1, 45, 0, 0));
        let (from, to) = ("2026-11-01T01:15:00-04:00", "2026-11-01T01:45:00-05:00");
        for inside in [from, "2026-11-01T01:50:00-04:00", "2026-11-01T01:10:00-05:00", "2026-11-01T01:44:59-05:00"] {
            is(&calendar, inside, Some(Mode::Closed), from, to);
        }
        assert_eq!(calendar.at(wall(to)).mode, None);
    }

    #[test]
    fn an_overnight_window_over_a_clock_change_keeps_its_local_ends() {
        let calendar = daily("America/New_York", time(22, 0, 0, 0), time(6, 0, 0, 0));
        let seven_hours = ("2026-03-07T22:00:00-05:00", "2026-03-08T06:00:00-04:00");
        is(&calendar, "2026-03-08T03:00:00-04:00", Some(Mode::Closed), seven_hours.0, seven_hours.1);
        let nine_hours = ("2026-10-31T22:00:00-04:00", "2026-11-01T06:00:00-05:00");
        is(&calendar, "2026-11-01T01:30:00-05:00", Some(Mode::Closed), nine_hours.0, nine_hours.1);
        // Midnight itself is leapt over: 2026-04-24, 00:00 -> 01:00.
        let calendar = daily("Africa/Cairo", time(22, 0, 0, 0), time(0, 0, 0, 0));
        let leap = "2026-04-24T01:00:00+03:00";
        is(&calendar, "2026-04-23T23:59:59+02:00", Some(Mode::Closed), "2026-04-23T22:00:00+02:00", leap);
        let calendar = daily("Africa/Cairo", time(0, 0, 0, 0), time(2, 0, 0, 0));
        is(&calendar, leap, Some(Mode::Closed), leap, "2026-04-24T02:00:00+03:00");
    }

    #[test]
    fn a_day_that_the_clock_leaps_over_has_no_window() {
        // Samoa had no 2011-12-30.
        let after = "2011-12-31T00:00:00+14:00";
        let calendar = daily("Pacific/Apia", time(9, 0, 0, 0), time(10, 0, 0, 0));
        is(&calendar, after, None, "2011-12-29T10:00:00-10:00", "2011-12-31T09:00:00+14:00");
        let calendar = daily("Pacific/Apia", time(22, 0, 0, 0), time(6, 0, 0, 0));
        // The night before ends with the leap, and there the night of the missing day has begun.
        let (from, to) = ("2011-12-29T22:00:00-10:00", "2011-12-31T06:00:00+14:00");
        is(&calendar, "2011-12-29T23:00:00-10:00", Some(Mode::Closed), from, to);
    }

    /// What a person with a clock on the wall would say, minute by minute: it has begun once the clock has shown `from` or
    /// more, and is over once it will never again show less than `to`.
    fn told_by_a_clock(window: &Window, at: Wall) -> bool {
        const MINUTE: Duration = Duration::from_secs(60);
        let clock = |wall: Wall| window.tz.to_datetime(timestamp(wall));
        // No clock was ever set back by more.
        let minutes = || (0..=180).map(|count| MINUTE * count);
        let latest = minutes().map(|back| clock(at - back)).max().unwrap();
        let earliest = minutes().map(|forth| clock(at + forth)).min().unwrap();
        let today = clock(at).date();
        (-2_i64..=1).any(|days| {
            let day = today.saturating_add(jiff::SignedDuration::from_hours(24 * days));
            let happens = window.days[usize::try_from(day.weekday().to_monday_zero_offset()).unwrap()];
            let last = if window.to > window.from { day } else { day.tomorrow().unwrap() };
            happens
                && !window.holidays.contains(&day)
                && latest >= day.to_datetime(window.from)
                && earliest < last.to_datetime(window.to)
        })
    }

    fn told(calendar: &Calendar, at: Wall) -> Option<Mode> {
        [Mode::Closed, Mode::Expect]
            .into_iter()
            .find(|mode| calendar.windows.iter().any(|window| window.mode == *mode && told_by_a_clock(window, at)))
    }

    const ZONES: [&str; 6] =
        ["Asia/Seoul", "America/New_York", "Africa/Cairo", "America/Havana", "Australia/Lord_Howe", "Europe/Dublin"];

    fn random_calendar(random: &mut fastrand::Rng) -> Calendar {
        let time = |random: &mut fastrand::Rng| time(random.i8(0..24), random.i8(0..60), 0, 0);
        let windows = (0..random.usize(1..4)).map(|_| {
            let tz = ZONES[random.usize(..ZONES.len())];
            let from = time(random);
            let to = if random.u8(..4) == 0 { from } else { time(random) };
            let mode = if random.bool() { Mode::Closed } else { Mode::Expect };
            let mut window = window(tz, std::array::from_fn(|_| random.u8(..4) > 0), from, to, mode);
            window.holidays = (0..5).map(|_| date(2026, random.i8(1..13), random.i8(1..29))).collect();
            window
        });
        of(windows.collect::<Vec<_>>())
    }

    #[test]
    fn the_stretch_around_any_moment_is_what_a_clock_on_the_wall_says() {
        const MINUTE: i64 = 60_000_000;
        const MICROSECOND: Duration = Duration::from_micros(1);
        let mut random = fastrand::Rng::with_seed(4);
        let year = wall("2026-01-01T00:00:00Z").unix_us();
        // Half of them around the changes of the clocks.
        let changes = ["2026-03-08T06:00:00Z", "2026-11-01T06:00:00Z", "2026-04-23T22:00:00Z", "2026-10-03T15:30:00Z"];
        for _ in 0..1_000 {
            let calendar = random_calendar(&mut random);
            let minute = match random.bool() {
                true => year + random.i64(0..365 * 1440) * MINUTE,
                false => wall(changes[random.usize(..changes.len())]).unix_us() + random.i64(-600..600) * MINUTE,
            };
            let at = Wall::from_unix_us(minute - random.i64(0..2));
            let span = calendar.at(at);
            assert_eq!(span.mode, told(&calendar, at), "at {} in {calendar:?}", shown(at));
            assert!(span.from <= at && at < span.to, "{span:?}");
            for edge in [span.from, span.to - MICROSECOND] {
                assert_eq!(told(&calendar, edge), span.mode, "{span:?} at {} in {calendar:?}", shown(edge));
            }
            let inside = i64::try_from(span.to.saturating_since(span.from).as_micros()).unwrap() / MINUTE;
            let inside = span.from + Duration::from_secs(60 * random.u64(0..=u64::try_from(inside - 1).unwrap_or(0)));
            assert_eq!(told(&calendar, inside), span.mode, "{span:?} at {} in {calendar:?}", shown(inside));
            for (outside, looked_to) in
                [(span.from - MICROSECOND, span.from == at - LOOK), (span.to, span.to == at + LOOK)]
            {
                assert!(
                    looked_to || told(&calendar, outside) != span.mode,
                    "{span:?} goes on at {} in {calendar:?}",
                    shown(outside)
                );
            }
            if span.mode != Some(Mode::Closed) && told(&calendar, span.from - MICROSECOND) == Some(Mode::Closed) {
                assert_eq!(calendar.last_closed_end(at), Some(span.from).filter(|from| *from > at - LOOK));
            }
            let expected = of(calendar.windows.iter().filter(|window| window.mode == Mode::Expect).cloned());
            let stretch = expected.at(at);
            if stretch.mode == Some(Mode::Expect) && stretch.to < at + LOOK {
                assert_eq!(expected.cut(at, stretch.to + MICROSECOND), Some(stretch.to));
                assert_eq!(
                    calendar.cut(at, stretch.to + MICROSECOND),
                    Some(stretch.to),
                    "whatever is closed meanwhile"
                );
                assert_eq!(expected.cut(at, stretch.to), None);
            }
            if let Some(end) = calendar.last_closed_end(at) {
                assert_eq!(told(&calendar, end - MICROSECOND), Some(Mode::Closed));
                assert_ne!(told(&calendar, end), Some(Mode::Closed));
                assert!(end <= at);
            }
        }
    }
}
