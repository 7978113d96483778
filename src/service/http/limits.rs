//! What callers may ask for: what cannot be is refused before anything is asked.

use std::time::Duration;

use super::problem::Problem;

pub(super) fn cost(units: u64) -> Result<u32, Problem> {
    const HIGHEST: u32 = i32::MAX.unsigned_abs();
    match u32::try_from(units) {
        Ok(cost @ 1..=HIGHEST) => Ok(cost),
        _ => Err(Problem::bad_request(format!("cost is {units}: it is at least 1, and at most the budget's max_cost"))),
    }
}

/// As the schema has it for names: what cannot be one is not looked for.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), Problem> {
    const LONGEST: usize = 100;
    if (1..=LONGEST).contains(&name.chars().count()) && !name.contains(char::is_control) {
        Ok(())
    } else {
        Err(Problem::bad_request(format!(
            "{what} is a name of 1 to {LONGEST} characters, none of them a control character"
        )))
    }
}

pub(super) fn max_wait(ms: Option<u64>) -> Result<Option<Duration>, Problem> {
    const LONGEST_MS: u64 = 86_400_000;
    match ms {
        Some(ms) if ms > LONGEST_MS => {
            Err(Problem::bad_request(format!("max_wait_ms is {ms}: it is at most {LONGEST_MS}, a day")))
        }
        ms => Ok(ms.map(Duration::from_millis)),
    }
}

pub(super) const fn one() -> u64 {
    1
}
