//! Surfaces: what joins a kind of call to its budget, class, vendor table, breaker and retry.
//!
//! Written in the settings file alone, as tables: `docs/surfaces.md` shows how. All of it is checked at start: what is not
//! known, not there, or could never work is refused by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{Settings, SettingsError};
use crate::policy::breaker::Rules;
use crate::policy::retry::Retry;
use crate::vendor::Vendor;
use table::{Choices, Table};

mod breakers;
mod calendars;
mod joined;
mod retries;
mod table;

#[cfg(test)]
mod tests;

/// The surfaces of this process, checked.
#[derive(Clone, Debug, Default)]
pub struct Surfaces {
    by_name: BTreeMap<Arc<str>, Arc<Surface>>,
    /// By class.
    may_probe: BTreeMap<String, bool>,
}

/// One kind of call, such as `kis/real/quote`.
#[derive(Clone, Debug)]
pub struct Surface {
    pub name: Arc<str>,
    /// All but the last part of the name, such as `kis/real`: where a credential is known.
    pub account: Arc<str>,
    pub budget: Arc<str>,
    /// The class of a call that names none.
    pub class: Arc<str>,
    pub vendor: Arc<Vendor>,
    /// The breaker in front and its name, which surfaces that share it have in common; none: there is none. It is called as
    /// the surface that it was written for.
    pub breaker: Option<(Arc<str>, Rules)>,
    pub retry: Option<Retry>,
    /// Whether a call of which nobody knows if it was carried out may be sent again.
    pub idempotent: bool,
    /// 10 ms to 10 min.
    pub attempt_timeout: Duration,
    /// The surface that issues its tokens.
    pub token_surface: Option<Arc<str>>,
    /// Whose key a call uses that names none.
    pub credential: Arc<str>,
}

impl Surfaces {
    /// The surfaces that the settings name; files (vendor tables, holidays) are read here.
    ///
    /// # Errors
    /// What cannot be, by name and with the way out.
    pub fn of(settings: &Settings) -> Result<Self, SettingsError> {
        let calendars = calendars::read(&settings.calendar, &settings.directory)?;
        let parts = Parts {
            breakers: breakers::read(&settings.breaker, &calendars)?,
            retries: retries::read(&settings.retry)?,
            vendors: vendors(&settings.vendor, &settings.directory)?,
        };
        let said = classes(&settings.class)?;
        let drafts =
            settings.surface.iter().map(|(name, value)| Ok((name.as_str(), Draft::read(name, value, &parts)?)));
        let drafts = drafts.collect::<Result<BTreeMap<_, _>, SettingsError>>()?;
        let may_probe = probing(said, drafts.values().map(|draft| &draft.surface));
        let surfaces = Self { by_name: BTreeMap::new(), may_probe };
        let joined = joined::joined(&drafts, &surfaces)?;
        let by_name = joined.into_iter().map(|surface| (Arc::clone(&surface.name), Arc::new(surface))).collect();
        Ok(Self { by_name, ..surfaces })
    }

    /// The surface of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Surface>> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Surface>> {
        self.by_name.values()
    }

    /// Whether calls of this class may be probes. Where its table does not say it: if there is a surface of this class, and
    /// all of them are idempotent, so that a forgotten line makes no order a probe.
    pub fn may_probe(&self, class: &str) -> bool {
        self.may_probe.get(class).copied().unwrap_or(false)
    }
}

/// What surfaces name.
struct Parts {
    breakers: Choices<Option<Rules>>,
    retries: Choices<Retry>,
    vendors: Choices<Arc<Vendor>>,
}

/// A surface as it is written: what it says of others is not looked up yet.
struct Draft<'a> {
    table: Table<'a>,
    surface: Surface,
    breaker_of: Option<&'a str>,
    token: Option<&'a str>,
}

impl<'a> Draft<'a> {
    const KEYS: [&'static str; 10] = [
        "budget",
        "class",
        "vendor",
        "breaker",
        "breaker_of",
        "retry",
        "idempotent",
        "attempt_timeout",
        "token",
        "credential",
    ];

    fn read(name: &str, value: &'a Value, parts: &Parts) -> Result<Self, SettingsError> {
        let table = Table::new("surface", name, value, &Self::KEYS)?;
        let name: Arc<str> = name.into();
        let account = account(&name)?;
        let vendor = table.text("vendor")?;
        let vendor = vendor.ok_or_else(|| table.missing("vendor", one_of(&parts.vendors)))?;
        let breaker_of = table.text("breaker_of")?;
        let breaker = match (table.text("breaker")?, breaker_of) {
            (Some(_), Some(_)) => {
                return Err(
                    table.refused("breaker", "and breaker_of are both there: a breaker of its own, or another's")
                );
            }
            (None, None) => {
                let way_out = "; or breaker_of names the surface whose breaker it shares";
                return Err(table.missing("breaker", one_of(&parts.breakers) + way_out));
            }
            (None, Some(_)) => None,
            (Some(breaker), None) => parts.breakers.get(&table, "breaker", breaker)?,
        };
        let retry = table.text("retry")?.map(|retry| parts.retries.get(&table, "retry", retry)).transpose()?;
        let idempotent = table.switch("idempotent")?;
        if retry.is_some() && idempotent.is_none() {
            return Err(table.missing(
                "idempotent",
                "with retry, say whether a call may be sent again when nobody knows if it was carried out (orders: false)",
            ));
        }
        let attempt_timeout =
            table.duration("attempt_timeout", Duration::from_millis(10)..=Duration::from_secs(600))?;
        let surface = Surface {
            account,
            budget: table.name("budget", "it names the budget whose slots it takes, such as \"kis-real\"")?.into(),
            class: table.name("class", "it names the class of its calls, such as \"quote\"")?.into(),
            vendor: parts.vendors.get(&table, "vendor", vendor)?,
            breaker: breaker.map(|rules| (Arc::clone(&name), rules)),
            retry,
            idempotent: idempotent.unwrap_or(false),
            attempt_timeout: attempt_timeout.unwrap_or(ATTEMPT_TIMEOUT),
            token_surface: None,
            credential: match table.text("credential")? {
                Some(_) => table.name("credential", "a label of the key, never the key itself")?.into(),
                None => OWN_CREDENTIAL.into(),
            },
            name,
        };
        Ok(Self { token: table.text("token")?, table, surface, breaker_of })
    }
}

/// What the key is called where nobody names it.
const OWN_CREDENTIAL: &str = "default";

/// All but the last part of a surface's name.
fn account(name: &str) -> Result<Arc<str>, SettingsError> {
    let part = |part: &str| !part.trim().is_empty() && !part.chars().any(char::is_control);
    match name.rsplit_once('/') {
        Some((account, _)) if name.chars().count() <= 100 && name.split('/').all(part) => Ok(account.into()),
        _ => Err(SettingsError(format!(
            "the surface {name:?} cannot be called so: a name has two parts or more with / in between, such as \
             [surface.\"kis/real/quote\"], and at most 100 characters"
        ))),
    }
}

/// `[vendor.NAME]`: a table of one's own.
fn vendors(tables: &Map<String, Value>, directory: &Path) -> Result<Choices<Arc<Vendor>>, SettingsError> {
    let preset = |name: &str| Vendor::named(name).map(Arc::new);
    Choices::read("vendor", Vendor::names(), preset, tables, &VENDOR_KEYS, |table| {
        let file = table.file("file", directory)?;
        let (path, text) =
            file.ok_or_else(|| table.missing("file", "it names the vendor table, such as \"mine.toml\""))?;
        let wrong = |why| table.refused("file", format_args!("names the file {path}, which is wrong: {why}"));
        Ok(Arc::new(Vendor::parse(&text).map_err(wrong)?))
    })
}

/// `[class.NAME]`: whether its calls may be probes, where it says so.
fn classes(tables: &Map<String, Value>) -> Result<BTreeMap<String, bool>, SettingsError> {
    let read = |(name, value): (&String, &Value)| {
        let table = Table::new("class", name, value, &CLASS_KEYS)?;
        Ok(table.switch("may_probe")?.map(|may_probe| (name.clone(), may_probe)))
    };
    tables.iter().filter_map(|entry| read(entry).transpose()).collect()
}

/// What is said, and what follows for the classes of surfaces that say nothing.
fn probing<'s>(said: BTreeMap<String, bool>, surfaces: impl Iterator<Item = &'s Surface>) -> BTreeMap<String, bool> {
    let mut unsaid = BTreeMap::new();
    for surface in surfaces {
        *unsaid.entry(surface.class.to_string()).or_insert(true) &= surface.idempotent;
    }
    unsaid.extend(said);
    unsaid
}

fn one_of<T: Clone>(choices: &Choices<T>) -> String {
    format!("there are {}", choices.names().collect::<Vec<_>>().join(", "))
}

const CLASS_KEYS: [&str; 1] = ["may_probe"];
const VENDOR_KEYS: [&str; 1] = ["file"];
/// Longer than any answer that somebody still waits for, and short enough that a hanging vendor is noticed.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
