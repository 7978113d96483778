//! `[calendar.NAME]`: a window of the week, with its holidays.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::civil::{Date, Time};
use jiff::tz::{self, TimeZone};
use serde_json::{Map, Value};

use super::table::{Choices, Table};
use crate::config::SettingsError;
use crate::policy::breaker::calendar::{Mode, Window};

pub const KEYS: [&str; 6] = ["tz", "days", "from", "to", "mode", "holidays"];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

pub fn read(tables: &Map<String, Value>, directory: &Path) -> Result<Choices<Window>, SettingsError> {
    Choices::read("calendar", [], |_| None, tables, &KEYS, |table| window(table, directory))
}

fn window(table: &Table<'_>, directory: &Path) -> Result<Window, SettingsError> {
    Ok(Window {
        tz: zone(table)?,
        days: days(table)?,
        from: time(table, "from")?,
        to: time(table, "to")?,
        mode: match table.text("mode")? {
            Some("expect") => Mode::Expect,
            Some("closed") => Mode::Closed,
            Some(mode) => {
                return Err(table.refused("mode", format_args!("is {mode:?}: write \"expect\" or \"closed\"")));
            }
            None => return Err(table.missing("mode", "write \"expect\" (failures are expected) or \"closed\"")),
        },
        holidays: match table.file("holidays", directory)? {
            Some((path, text)) => holidays(&text).map_err(|why| {
                table.refused("holidays", format_args!("names the file {path}, which is wrong: {why}"))
            })?,
            None => BTreeSet::new(),
        },
    })
}

fn zone(table: &Table<'_>) -> Result<TimeZone, SettingsError> {
    let name = table.text("tz")?.ok_or_else(|| table.missing("tz", "write a time zone such as \"Asia/Seoul\""))?;
    TimeZone::get(name).map_err(|_| {
        let zones: Vec<String> = tz::db().available().map(|zone| zone.to_string()).collect();
        let near = super::super::nearest::nearest(name, zones.iter().map(String::as_str));
        let meant =
            near.map_or_else(|| "write one such as \"Asia/Seoul\"".into(), |near| format!("did you mean {near:?}?"));
        table.refused("tz", format_args!("names {name:?}, which is no time zone: {meant}"))
    })
}

/// `"mon-fri"`, `"sat"`, or a list of both.
fn days(table: &Table<'_>) -> Result<[bool; 7], SettingsError> {
    const HOW: &str = "write \"mon-fri\", or a list such as [\"mon\", \"wed\"]";
    let said = table.texts("days")?.ok_or_else(|| table.missing("days", HOW))?;
    let mut days = [false; 7];
    for item in &said {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let place = |day: &str| DAYS.iter().position(|known| *known == day.trim().to_lowercase());
        let (Some(first), Some(last)) = (place(first), place(last)) else {
            return Err(table.refused("days", format_args!("holds {item:?}, which is no day: {HOW}")));
        };
        // "fri-mon" goes over the end of the week.
        (0..=(last + 7 - first) % 7).for_each(|after| days[(first + after) % 7] = true);
    }
    if said.is_empty() {
        return Err(table.refused("days", format_args!("is empty, so that it would never happen: {HOW}")));
    }
    Ok(days)
}

fn time(table: &Table<'_>, key: &str) -> Result<Time, SettingsError> {
    const HOW: &str = "write it as \"09:00\" or \"09:00:30\"; a day ends at \"00:00\"";
    let text = table.text(key)?.ok_or_else(|| table.missing(key, HOW))?;
    let parts: Vec<&str> = text.split(':').collect();
    let two_digits = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let numbers: Option<Vec<i8>> =
        parts.iter().map(|part| Some(part).filter(|part| two_digits(part))?.parse().ok()).collect();
    let time = match numbers.as_deref() {
        Some([hour, minute]) => Time::new(*hour, *minute, 0, 0).ok(),
        Some([hour, minute, second]) => Time::new(*hour, *minute, *second, 0).ok(),
        _ => None,
    };
    time.ok_or_else(|| table.refused(key, format_args!("is {text:?}, which is no time of day: {HOW}")))
}

/// One ISO date a line; `#` begins a comment.
fn holidays(text: &str) -> Result<BTreeSet<Date>, String> {
    let lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    let said = lines.map(|(line, number)| (line.split('#').next().unwrap_or_default().trim(), number));
    said.filter(|(date, _)| !date.is_empty())
        .map(|(date, number)| {
            let iso = date.len() == 10 && date.parse::<Date>().is_ok();
            iso.then(|| date.parse().ok())
                .flatten()
                .ok_or_else(|| format!("line {number}: {date:?} is no date: write one a line, such as 2026-01-01"))
        })
        .collect()
}
