//! One table of the settings file, read key by key. What is wrong is refused by the whole name of its key.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::nearest::nearest;
use crate::config::{SettingsError, parse_duration};

/// A table, with the keys that it may have checked.
pub struct Table<'a> {
    /// As the file names it, such as `surface."kis/real/quote"`.
    name: String,
    values: &'a Map<String, Value>,
}

/// What is said of a rule that can be switched off.
pub enum Said<T> {
    Nothing,
    Off,
    On(T),
}

impl<'a> Table<'a> {
    /// The table `name` of the tables `of`, such as `mine` of `breaker`.
    pub fn new(of: &str, name: &str, value: &'a Value, known: &[&str]) -> Result<Self, SettingsError> {
        let bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let key = if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { format!("{name:?}") };
        let name = format!("{of}.{key}");
        let Value::Object(values) = value else {
            return Err(SettingsError(format!(
                "the setting {name} must be a table: write [{name}], and its keys below ({})",
                known.join(", ")
            )));
        };
        for key in values.keys() {
            if !known.contains(&key.as_str()) {
                let way_out = match nearest(key, known.iter().copied()) {
                    Some(nearest) => format!("did you mean \"{nearest}\"?"),
                    None => format!("known are {}", known.join(", ")),
                };
                return Err(SettingsError(format!("unknown setting \"{key}\" in {name}: {way_out}")));
            }
        }
        Ok(Self { name, values })
    }

    /// `the setting NAME.KEY WHY`.
    pub fn refused(&self, key: &str, why: impl Display) -> SettingsError {
        SettingsError(format!("the setting {}.{key} {why}", self.name))
    }

    /// For keys that do not go together.
    pub fn makes_no_sense(&self, why: &str) -> SettingsError {
        SettingsError(format!("the table [{}] makes no sense: {why}", self.name))
    }

    /// For a key that must be there; `what` it says.
    pub fn missing(&self, key: &str, what: impl Display) -> SettingsError {
        self.refused(key, format_args!("is missing: {what}"))
    }

    /// For a key that names something which is not there.
    pub fn unknown<'n>(
        &self,
        key: &str,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
        none: &str,
    ) -> SettingsError {
        let known: Vec<&str> = known.into_iter().collect();
        let meant = match nearest(name, known.iter().copied()) {
            Some(nearest) => format!("did you mean \"{nearest}\"? "),
            None => String::new(),
        };
        let all = if known.is_empty() { none.to_owned() } else { format!("there are {}", known.join(", ")) };
        self.refused(key, format_args!("names {name:?}, which does not exist: {meant}{all}"))
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>, SettingsError> {
        self.read(key, "text in quotes", Value::as_str)
    }

    /// What a person or a table calls something: 1 to 100 characters, none of them a control character.
    pub fn name(&self, key: &str, what: &str) -> Result<&'a str, SettingsError> {
        let name = self.text(key)?.ok_or_else(|| self.missing(key, what))?;
        let fits = (1..=100).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        if fits {
            return Ok(name);
        }
        Err(self.refused(key, format_args!("is {name:?}: a name has 1 to 100 characters and no control character")))
    }

    /// A text, or a list of them.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, SettingsError> {
        self.read(key, "text in quotes, or a list of texts", |value| match value {
            Value::Array(list) => list.iter().map(Value::as_str).collect(),
            value => Some(vec![value.as_str()?]),
        })
    }

    pub fn switch(&self, key: &str) -> Result<Option<bool>, SettingsError> {
        self.read(key, "true or false", Value::as_bool)
    }

    pub fn count(&self, key: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, SettingsError> {
        let what = format!("a whole number from {} to {}", range.start(), range.end());
        let count = |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|count| range.contains(count));
        self.read(key, &what, count)
    }

    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, SettingsError> {
        let what = format!("a number from {} to {}", range.start(), range.end());
        self.read(key, &what, |value| value.as_f64().filter(|number| range.contains(number)))
    }

    pub fn duration(&self, key: &str, range: RangeInclusive<Duration>) -> Result<Option<Duration>, SettingsError> {
        self.values.get(key).map(|value| self.one_duration(key, value, &range)).transpose()
    }

    /// A list of 1 to `most` durations.
    pub fn durations(
        &self,
        key: &str,
        most: usize,
        range: RangeInclusive<Duration>,
    ) -> Result<Option<Vec<Duration>>, SettingsError> {
        let what = format!("a list of 1 to {most} durations");
        let list = self.read(key, &what, |value| value.as_array().filter(|list| (1..=most).contains(&list.len())))?;
        let read = |list: &Vec<Value>| list.iter().map(|value| self.one_duration(key, value, &range)).collect();
        list.map(read).transpose()
    }

    /// A table in this one.
    pub fn table(&self, key: &str, known: &[&str]) -> Result<Option<Table<'a>>, SettingsError> {
        self.values.get(key).map(|value| Table::new(&self.name, key, value, known)).transpose()
    }

    /// A rule: `false` switches it off.
    pub fn rule<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Self) -> Result<Option<T>, SettingsError>,
    ) -> Result<Said<T>, SettingsError> {
        match self.values.get(key) {
            None => Ok(Said::Nothing),
            Some(Value::Bool(false)) => Ok(Said::Off),
            Some(Value::Number(number)) if number.as_u64() == Some(0) => {
                Err(self.refused(key, "is 0: write false to switch the rule off"))
            }
            Some(Value::Bool(true)) => Err(self.refused(key, "is true: write its numbers, or false to switch it off")),
            Some(_) => Ok(read(self)?.map_or(Said::Nothing, Said::On)),
        }
    }

    /// The text of the file that a key names, relative to the directory of the settings file.
    pub fn file(&self, key: &str, directory: &Path) -> Result<Option<(String, String)>, SettingsError> {
        let Some(name) = self.text(key)? else { return Ok(None) };
        let path = directory.join(name);
        let refused = |why: &dyn Display| {
            self.refused(key, format_args!("names the file {}, which cannot be read: {why}", path.display()))
        };
        let found = std::fs::metadata(&path).map_err(|error| refused(&error))?;
        // Reading a pipe could take for ever.
        if !found.is_file() {
            return Err(refused(&"it is no plain file"));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| refused(&error))?;
        Ok(Some((path.display().to_string(), text)))
    }

    fn one_duration(
        &self,
        key: &str,
        value: &Value,
        range: &RangeInclusive<Duration>,
    ) -> Result<Duration, SettingsError> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let duration = parse_duration(&text).map_err(|why| self.refused(key, format_args!("is wrong: {why}")))?;
        if range.contains(&duration) {
            return Ok(duration);
        }
        let (least, most) = (range.start(), range.end());
        Err(self.refused(key, format_args!("is {duration:?}: it must lie between {least:?} and {most:?}")))
    }

    fn read<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.refused(key, format_args!("is {}: it must be {what}", shown(value)))),
        }
    }
}

/// As the file has it. A date or time without quotes is an object to the parser.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(values) => match values.get("$__toml_private_datetime").and_then(Value::as_str) {
            Some(text) => format!("{text} without quotes"),
            None => "a table".to_owned(),
        },
        value => value.to_string(),
    }
}

/// What a key can name: what comes along, and the tables of the file.
pub struct Choices<T> {
    of: &'static str,
    presets: Vec<&'static str>,
    preset: fn(&str) -> Option<T>,
    own: BTreeMap<String, T>,
}

impl<T: Clone> Choices<T> {
    /// Reads the tables `of` (`breaker`, ...); none of them may be called as what comes along.
    pub fn read(
        of: &'static str,
        presets: impl IntoIterator<Item = &'static str>,
        preset: fn(&str) -> Option<T>,
        tables: &Map<String, Value>,
        known: &[&str],
        read: impl Fn(&Table<'_>) -> Result<T, SettingsError>,
    ) -> Result<Self, SettingsError> {
        let presets: Vec<_> = presets.into_iter().collect();
        let mut own = BTreeMap::new();
        for (name, value) in tables {
            let table = Table::new(of, name, value, known)?;
            if presets.contains(&name.as_str()) {
                return Err(SettingsError(format!(
                    "the table [{}] has the name of a {of} that comes along: choose another",
                    table.name
                )));
            }
            own.insert(name.clone(), read(&table)?);
        }
        Ok(Self { of, presets, preset, own })
    }

    /// What the key of this table names as `name`.
    pub fn get(&self, table: &Table<'_>, key: &str, name: &str) -> Result<T, SettingsError> {
        let found = self.own.get(name).cloned().or_else(|| (self.preset)(name));
        found.ok_or_else(|| {
            let none = format!("there is no table [{}.NAME]", self.of);
            table.unknown(key, name, self.names(), &none)
        })
    }

    /// All that can be named.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.presets.iter().copied().chain(self.own.keys().map(String::as_str))
    }
}
