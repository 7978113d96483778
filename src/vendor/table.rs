//! Reads a table from TOML: every word is checked, and what is wrong is said with the name of its rule.

use std::ops::RangeInclusive;
use std::time::Duration;

use figment::providers::{Format, Toml};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Vendor;
use super::body::Reading;
use crate::policy::verdict::{Action, Rule, Table, Verdict, When};

/// The words that stand above the rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    body: Body,
    #[serde(default)]
    code: Vec<String>,
    #[serde(default)]
    text: Vec<String>,
    retry_after_max: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Body {
    Json,
    Any,
}

/// The words of a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    code: Option<Vec<String>>,
    status: Option<Vec<Status>>,
    text: Option<Vec<String>>,
    retry_after: Option<bool>,
    malformed: Option<bool>,
    verdict: Word,
    hold: Option<Hold>,
    r#for: Option<String>,
    #[serde(default)]
    obey_retry_after: bool,
    #[serde(default)]
    refresh_token: bool,
    #[serde(default)]
    throttled: bool,
    #[serde(default)]
    outcome_unknown: bool,
    #[serde(default)]
    never_again: bool,
    #[serde(default)]
    no_data: bool,
    meaning: String,
}

/// A status, or a range of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a status is a number such as 429, or a range such as \"500-599\"")]
enum Status {
    One(u16),
    Range(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Good,
    Bad,
    None,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Hold {
    Credential,
    Surface,
    TokenSurface,
    Budget,
    BudgetAndCredential,
}

/// In place of a duration: as long as the credential stays what it is.
const UNTIL_CHANGED: &str = "until-changed";

pub(super) fn read(toml: &str) -> Result<Vendor, String> {
    let mut words: Map<String, Value> = Toml::from_str(toml).map_err(|error| {
        let before = error.span().and_then(|span| toml.get(..span.start)).unwrap_or_default();
        format!("near line {}: {}", before.lines().count().max(1), error.message())
    })?;
    let rules = match words.remove("rule") {
        Some(Value::Array(rules)) => rules,
        _ => return Err("a table has rules, each under a line [[rule]]".to_owned()),
    };
    let head: Head = serde_json::from_value(Value::Object(words)).map_err(|error| error.to_string())?;
    let retry_after_max = duration(&head.retry_after_max).map_err(|why| format!("retry_after_max: {why}"))?;
    let rules = rules.into_iter().enumerate().map(|(place, words)| rule(place + 1, words));
    let rules = rules.collect::<Result<Vec<Rule>, String>>()?;
    for rule in &rules {
        let blind = |word| {
            Err(format!(
                "rule \"{}\": it looks at {word}, and no {word} = [...] above the rules says where that is",
                rule.name
            ))
        };
        if head.code.is_empty() && !rule.when.codes.is_empty() {
            return blind("code");
        }
        if head.text.is_empty() && !rule.when.text.is_empty() {
            return blind("text");
        }
    }
    Ok(Vendor {
        reading: Reading {
            json: matches!(head.body, Body::Json),
            code: paths(&head.code).map_err(|why| format!("code: {why}"))?,
            text: paths(&head.text).map_err(|why| format!("text: {why}"))?,
        },
        retry_after_max,
        table: Table::new(rules)?,
    })
}

/// The rule at this place, counted from 1.
fn rule(place: usize, words: Value) -> Result<Rule, String> {
    let Value::Object(mut words) = words else {
        return Err(format!("rule {place} is no table: begin it with [[rule]]"));
    };
    let name = match words.remove("name") {
        Some(Value::String(name)) if !name.trim().is_empty() => name,
        _ => return Err(format!("rule {place} needs a name, such as name = \"too many calls\"")),
    };
    let refused = |why: String| format!("rule \"{name}\": {why}");
    let row: Row = serde_json::from_value(Value::Object(words)).map_err(|error| refused(error.to_string()))?;
    let action = row.action().map_err(refused)?;
    if row.meaning.trim().is_empty() {
        return Err(refused("meaning tells a person what it means and what to do".to_owned()));
    }
    Ok(Rule {
        when: When {
            codes: listed("code", row.code).map_err(refused)?,
            statuses: statuses(row.status).map_err(refused)?,
            text: listed("text", row.text).map_err(refused)?,
            retry_after: row.retry_after,
            malformed: row.malformed,
        },
        verdict: match row.verdict {
            Word::Good => Verdict::Good,
            Word::Bad => Verdict::Bad,
            Word::None => Verdict::None,
        },
        action,
        obey_retry_after: row.obey_retry_after,
        throttled: row.throttled,
        outcome_unknown: row.outcome_unknown,
        never_again: row.never_again,
        no_data: row.no_data,
        meaning: row.meaning.into(),
        name: name.into(),
    })
}

impl Row {
    fn action(&self) -> Result<Action, String> {
        let Some(hold) = self.hold else {
            return match (&self.r#for, self.obey_retry_after, self.refresh_token) {
                (None, false, true) => Ok(Action::RefreshToken),
                (None, false, false) => Ok(Action::Nothing),
                _ => Err("\"for\" and \"obey_retry_after\" say how long a hold lasts: say hold = ... too".to_owned()),
            };
        };
        if self.refresh_token {
            return Err("a rule has refresh_token or hold, not both".to_owned());
        }
        let wait = match self.r#for.as_deref() {
            Some(UNTIL_CHANGED) if hold == Hold::Credential && !self.obey_retry_after => {
                return Ok(Action::HoldCredentialUntilChanged);
            }
            Some(UNTIL_CHANGED) => {
                return Err(format!("for = \"{UNTIL_CHANGED}\" is for hold = \"credential\" without obey_retry_after"));
            }
            Some(text) => duration(text)?,
            // Never used: a Retry-After is there, and takes its place.
            None if self.obey_retry_after && self.retry_after == Some(true) => Duration::ZERO,
            None => {
                return Err("how long? Say for = \"1s\", or both retry_after and obey_retry_after = true".to_owned());
            }
        };
        Ok(match hold {
            Hold::Credential => Action::HoldCredential(wait),
            Hold::Surface => Action::HoldSurface(wait),
            Hold::TokenSurface => Action::HoldTokenSurface(wait),
            Hold::Budget => Action::PushBack(wait),
            Hold::BudgetAndCredential => Action::PushBackAndHoldCredential(wait),
        })
    }
}

/// What a condition lists. An empty list would fit nothing, or everything: nobody means either.
fn listed(word: &str, list: Option<Vec<String>>) -> Result<Vec<String>, String> {
    let Some(list) = list else { return Ok(Vec::new()) };
    if list.is_empty() || list.iter().any(|entry| entry.trim().is_empty()) {
        return Err(format!("{word} lists nothing, or an empty text: leave it out, or say what it looks for"));
    }
    Ok(list)
}

fn statuses(list: Option<Vec<Status>>) -> Result<Vec<RangeInclusive<u16>>, String> {
    let Some(list) = list else { return Ok(Vec::new()) };
    if list.is_empty() {
        return Err("status lists nothing: leave it out, or say which".to_owned());
    }
    list.iter().map(Status::range).collect()
}

impl Status {
    fn range(&self) -> Result<RangeInclusive<u16>, String> {
        let range = match self {
            Self::One(status) => Some(*status..=*status),
            Self::Range(text) => {
                text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..=to.parse().ok()?))
            }
        };
        range.filter(|range| !range.is_empty() && *range.start() >= 100 && *range.end() <= 999).ok_or_else(|| {
            "a status is a number from 100 to 999 such as 429, or a range such as \"500-599\"".to_owned()
        })
    }
}

/// `error.message`: the field `message` in the field `error`.
fn paths(fields: &[String]) -> Result<Vec<Vec<String>>, String> {
    let path = |field: &String| {
        let path: Vec<String> = field.split('.').map(str::to_owned).collect();
        match path.iter().any(String::is_empty) {
            true => Err(format!("\"{field}\" is no field: write msg_cd, or error.message for a field in a field")),
            false => Ok(path),
        }
    };
    fields.iter().map(path).collect()
}

fn duration(text: &str) -> Result<Duration, String> {
    let signed: Option<SignedDuration> = text.parse().ok();
    signed.and_then(|signed| Duration::try_from(signed).ok()).filter(|wait| !wait.is_zero()).ok_or_else(|| {
        format!("\"{text}\" is not a duration longer than 0: write it with its unit, such as 500ms, 1s or 1h")
    })
}
