//! `[retry.NAME]`, and the retries that come along.

use std::time::Duration;

use serde_json::{Map, Value};

use super::table::{Choices, Table};
use crate::config::SettingsError;
use crate::policy::retry::{On, Retry};

const PRESETS: [&str; 2] = ["patient", "brief"];
pub const KEYS: [&str; 2] = ["waits", "on"];
/// A call of more attempts is a loop.
const MOST_WAITS: usize = 10;

pub fn read(tables: &Map<String, Value>) -> Result<Choices<Retry>, SettingsError> {
    Choices::read("retry", PRESETS, preset, tables, &KEYS, retry)
}

fn preset(name: &str) -> Option<Retry> {
    let ms = |waits: &[u64]| waits.iter().copied().map(Duration::from_millis).collect();
    match name {
        "patient" => Some(Retry { waits: ms(&[1_000, 2_000]), on: On::Bad }),
        "brief" => Some(Retry { waits: ms(&[500, 500]), on: On::Transport }),
        _ => None,
    }
}

fn retry(table: &Table<'_>) -> Result<Retry, SettingsError> {
    let waits = table.durations("waits", MOST_WAITS, Duration::ZERO..=Duration::from_secs(600))?;
    let waits = waits.ok_or_else(|| table.missing("waits", "those between the attempts, such as [\"1s\", \"2s\"]"))?;
    let on = match table.text("on")? {
        Some("bad") => On::Bad,
        Some("transport") => On::Transport,
        Some(on) => return Err(table.refused("on", format_args!("is {on:?}: write \"bad\" or \"transport\""))),
        None => return Err(table.missing("on", "write \"bad\" (every bad verdict) or \"transport\" (no whole answer)")),
    };
    Ok(Retry { waits, on })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patient_waits_1_and_2_s_on_bad_verdicts_and_brief_half_a_second_on_transport_errors() {
        let s = Duration::from_secs;
        assert_eq!(preset("patient").unwrap(), Retry { waits: vec![s(1), s(2)], on: On::Bad });
        assert_eq!(preset("brief").unwrap(), Retry { waits: vec![Duration::from_millis(500); 2], on: On::Transport });
        assert!(PRESETS.iter().all(|name| preset(name).is_some()) && preset("other").is_none());
    }
}
