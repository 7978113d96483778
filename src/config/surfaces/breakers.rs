//! `[breaker.NAME]`: a preset, and what is to be otherwise.

use std::time::Duration;

use serde_json::{Map, Value};

use super::table::{Choices, Said, Table};
use crate::config::SettingsError;
use crate::policy::breaker::Rules;
use crate::policy::breaker::calendar::Window;
use crate::policy::breaker::rules::{Over, Probes, Rate, Slow};

/// What a surface can name besides the tables of the file.
const PRESETS: [&str; 4] = ["escalating", "per-provider", "rate-kis", "rate-yahoo"];
/// Says that there is none.
const NONE: &str = "none";
pub const KEYS: [&str; 10] =
    ["preset", "streak", "rate", "slow", "schedule", "jitter", "probes", "episode_good", "episode_quiet", "calendar"];
/// The window of a rule over calls is memory.
const MOST_CALLS: u32 = 10_000;
const MS_10: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

pub fn read(tables: &Map<String, Value>, calendars: &Choices<Window>) -> Result<Choices<Option<Rules>>, SettingsError> {
    let preset = |name: &str| if name == NONE { Some(None) } else { Rules::preset(name).map(Some) };
    let presets = PRESETS.into_iter().chain([NONE]);
    Choices::read("breaker", presets, preset, tables, &KEYS, |table| rules(table, calendars).map(Some))
}

fn rules(table: &Table<'_>, calendars: &Choices<Window>) -> Result<Rules, SettingsError> {
    let preset = table.text("preset")?.unwrap_or(PRESETS[0]);
    let none = || table.unknown("preset", preset, PRESETS, "");
    let mut rules = Rules::preset(preset).ok_or_else(none)?;
    // One call alone never trips it: it adds one to a streak, whatever its attempts.
    match table.rule("streak", |table| table.count("streak", 2..=1_000))? {
        Said::Nothing => {}
        Said::Off => rules.streak = None,
        Said::On(streak) => rules.streak = Some(streak),
    }
    match table.rule("rate", |table| table.table("rate", &["last", "window", "min", "at_least"]))? {
        Said::Nothing => {}
        Said::Off => rules.rate = None,
        Said::On(rate) => {
            let so_far = rules.rate.map(|rate| (rate.over, rate.min, rate.at_least));
            let (over, min, at_least) = share(&rate, so_far)?;
            rules.rate = Some(Rate { over, min, at_least });
        }
    }
    match table.rule("slow", |table| table.table("slow", &["limit", "last", "window", "min", "at_least"]))? {
        Said::Nothing => {}
        Said::Off => rules.slow = None,
        Said::On(slow) => {
            let (over, min, at_least) = share(&slow, rules.slow.map(|slow| (slow.over, slow.min, slow.at_least)))?;
            let limit = slow.duration("limit", MS_10..=HOUR)?.or(rules.slow.map(|slow| slow.limit));
            let limit =
                limit.ok_or_else(|| slow.missing("limit", "from here on an attempt is slow, such as \"3s\""))?;
            rules.slow = Some(Slow { limit, over, min, at_least });
        }
    }
    if let Some(schedule) = table.durations("schedule", 20, MS_10..=DAY)? {
        rules.schedule = schedule;
    }
    rules.jitter = table.number("jitter", 0.0..=0.1)?.unwrap_or(rules.jitter);
    if let Some(said) = table.table("probes", &["needed", "allowed_bad", "parallel", "timeout"])? {
        rules.probes = Probes {
            needed: said.count("needed", 1..=100)?.unwrap_or(rules.probes.needed),
            allowed_bad: said.count("allowed_bad", 0..=100)?.unwrap_or(rules.probes.allowed_bad),
            parallel: said.count("parallel", 1..=100)?.unwrap_or(rules.probes.parallel),
            timeout: said.duration("timeout", MS_10..=HOUR)?.unwrap_or(rules.probes.timeout),
        };
    }
    rules.episode_good = table.count("episode_good", 1..=1_000)?.unwrap_or(rules.episode_good);
    rules.episode_quiet = table.duration("episode_quiet", MS_10..=DAY)?.unwrap_or(rules.episode_quiet);
    for name in table.texts("calendar")?.unwrap_or_default() {
        rules.calendar.windows.push(calendars.get(table, "calendar", name)?);
    }
    rules.check().map_err(|why| table.makes_no_sense(&why))?;
    Ok(rules)
}

/// What rate and slow have in common; what is not said is as in the preset, where that has the rule.
fn share(table: &Table<'_>, so_far: Option<(Over, u32, f64)>) -> Result<(Over, u32, f64), SettingsError> {
    let over = match (table.count("last", 1..=MOST_CALLS)?, table.duration("window", MS_10..=HOUR)?) {
        (Some(_), Some(_)) => return Err(table.refused("last", "and window are both there: keep one of them")),
        (Some(calls), None) => Some(Over::Calls(calls)),
        (None, Some(time)) => Some(Over::Time(time)),
        (None, None) => so_far.map(|(over, ..)| over),
    };
    let over = over.ok_or_else(|| {
        table.missing("last", "say how many calls count (last = 20), or which time (window = \"60s\")")
    })?;
    let min = table.count("min", 1..=MOST_CALLS)?.or(so_far.map(|(_, min, _)| min));
    let min =
        min.ok_or_else(|| table.missing("min", "the outcomes that there must be before it says anything, such as 10"))?;
    let at_least = table.number("at_least", 0.001..=1.0)?.or(so_far.map(|(_, _, at_least)| at_least));
    let at_least = at_least.ok_or_else(|| table.missing("at_least", "the share that trips it, such as 0.5"))?;
    Ok((over, min, at_least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_that_can_be_named_is_there() {
        for name in PRESETS {
            assert!(Rules::preset(name).is_some(), "{name}");
        }
    }
}
