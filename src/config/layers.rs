//! Where settings come from: a file and the environment, laid over the defaults; unknown keys are refused.

use std::ffi::OsString;
use std::path::Path;

use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};
use serde::{Deserialize, Deserializer};

use super::connection::environment::Environment;
use super::nearest::nearest;
use super::{Settings, SettingsError};

const PREFIX: &str = "CALL_BUDGET_";
/// What stands in the table of the service can stand in variables too, as text.
const SERVE: &str = "serve_";
pub(super) const FILE_VARIABLE: &str = "CALL_BUDGET_CONFIG";

/// Settings that are text: in a variable, a password of digits, a user `true` or a name in brackets stays what it is.
const TEXTS: [&str; 13] = [
    "database_url",
    "host",
    "port",
    "user",
    "password",
    "password_file",
    "password_command",
    "dbname",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "application_name",
];

/// Settings that are tables, and too many for a variable.
const TABLES: [&str; 6] = ["surface", "breaker", "calendar", "retry", "class", "vendor"];

/// Reads the file, then the variables over it.
pub(super) fn read(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, SettingsError> {
    let mut layers = Figment::new();
    if let Some(path) = file {
        layers = layers.merge(Layer::of_file(path)?);
    }
    let variables: Vec<_> = variables.into_iter().collect();
    let directory = file.and_then(Path::parent).unwrap_or(Path::new(""));
    let settings = checked(&layers.merge(Layer::of_variables(&variables)?), directory)?;
    let text = |name: &str| {
        let (_, text) = variables.iter().find(|(variable, _)| variable == name)?;
        text.to_str().map(str::to_owned)
    };
    Ok(Settings { environment: Environment::read(text), ..settings })
}

/// Reads one text alone.
pub(super) fn of_toml(text: &str, directory: &Path) -> Result<Settings, SettingsError> {
    let values = toml(text).map_err(|why| SettingsError(format!("the settings cannot be read: {why}")))?;
    checked(&Figment::from(Layer { source: Metadata::named("TOML"), values }), directory)
}

/// Reads a port list that may be written as a number.
pub(super) fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Option::<Value>::deserialize(deserializer)? {
        None | Some(Value::Empty(..)) => None,
        Some(Value::String(_, text)) => Some(text),
        Some(value) => match (value.to_u128(), value.to_i128()) {
            (Some(number), _) => Some(number.to_string()),
            (_, Some(number)) => Some(number.to_string()),
            _ => return Err(serde::de::Error::custom("write a number from 1 to 65535, or \"5432,6432\"")),
        },
    })
}

fn checked(layers: &Figment, directory: &Path) -> Result<Settings, SettingsError> {
    let figment = Figment::from(Serialized::defaults(Settings::default())).merge(layers);
    let unreadable = |error: Error| SettingsError(format!("the settings cannot be read: {error}"));
    let known: Dict = Figment::from(Serialized::defaults(Settings::default())).extract().map_err(unreadable)?;
    let given: Dict = layers.extract().map_err(unreadable)?;
    for key in given.keys() {
        if !known.contains_key(key) {
            let way_out = match nearest(key, known.keys().map(String::as_str)) {
                Some(nearest) => format!("did you mean \"{nearest}\"?"),
                None => format!("known are {}", known.keys().cloned().collect::<Vec<_>>().join(", ")),
            };
            return Err(SettingsError(format!("unknown setting \"{key}\": {way_out}")));
        }
    }
    let settings: Settings = figment.extract().map_err(unreadable)?;
    let settings = Settings { directory: directory.into(), ..settings };
    settings.validate()?;
    Ok(settings)
}

/// What one source says, and how a message names it.
struct Layer {
    source: Metadata,
    values: Dict,
}

impl Layer {
    fn of_file(path: &Path) -> Result<Self, SettingsError> {
        let refused =
            |why: String| SettingsError(format!("the settings file {} cannot be read: {why}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| refused(format!("check the path in {FILE_VARIABLE} or --config ({error})")))?;
        Ok(Self { source: Metadata::from("TOML file", path), values: toml(&text).map_err(refused)? })
    }

    fn of_variables(variables: &[(OsString, OsString)]) -> Result<Self, SettingsError> {
        let (mut values, mut serve) = (Dict::new(), Dict::new());
        for (name, text) in variables {
            let name = name.to_string_lossy().to_uppercase();
            let Some(key) = name.strip_prefix(PREFIX).filter(|_| name != FILE_VARIABLE) else { continue };
            let key = if key == "ENABLED" { "call_budget_enabled".into() } else { key.to_lowercase() };
            if let Some(key) = key.strip_prefix(SERVE) {
                let Some(text) = text.to_str() else {
                    return Err(SettingsError(format!("the variable {name} is not UTF-8")));
                };
                // As for every text: set to nothing, it says nothing.
                if !text.is_empty() {
                    serve.insert(key.to_owned(), Value::from(text));
                }
                continue;
            }
            let of =
                |table: &&&str| key.strip_prefix(**table).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
            if let Some(table) = TABLES.iter().find(of) {
                return Err(SettingsError(format!(
                    "the variable {name} says nothing: a {table} is a table [{table}.NAME] of the settings file, which \
                     {FILE_VARIABLE} names"
                )));
            }
            let Some(text) = text.to_str() else {
                return Err(SettingsError(format!("the variable {name} is not UTF-8")));
            };
            let is_text = TEXTS.contains(&key.as_str());
            // A variable that is set to nothing says nothing; a switch, a number or a duration must say something.
            if text.is_empty() && (is_text || key == "nameservers") {
                continue;
            }
            let Ok(read) = text.parse::<Value>();
            values.insert(key, if is_text { Value::from(text) } else { read });
        }
        if !serve.is_empty() {
            values.insert("serve".to_owned(), Value::from(serve));
        }
        let source = Metadata::named("environment variable").interpolater(|_, keys| match keys {
            ["call_budget_enabled"] => format!("{PREFIX}ENABLED"),
            keys => format!("{PREFIX}{}", keys.join(".").to_uppercase()),
        });
        Ok(Self { source, values })
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        self.source.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// The parser's own message would show the line, and a password in it.
fn toml(text: &str) -> Result<Dict, String> {
    Toml::from_str(text).map_err(|error| {
        let line =
            error.span().and_then(|span| text.get(..span.start)).map_or(1, |before| before.lines().count().max(1));
        format!("near line {line}: {}", error.message())
    })
}

#[cfg(test)]
mod tests {
    use super::super::connection::{Connection, Password, keys};
    use super::*;

    fn of_variables(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        read(None, variables.iter().map(|(name, text)| (name.into(), text.into())))
    }

    #[test]
    fn text_in_a_variable_is_taken_as_it_stands() {
        for text in ["12345", "true", "[a]", "\"quoted\"", "{a=1}", "1.50", " 가 ", "%41"] {
            let settings = of_variables(&[("CALL_BUDGET_PASSWORD", text), ("CALL_BUDGET_USER", text)]).unwrap();
            assert_eq!(settings.password.unwrap().as_str(), text);
            assert_eq!(settings.user.as_deref(), Some(text));
        }
        for (key, _) in keys::KEYS {
            assert!(TEXTS.contains(&key), "{key}");
        }
    }

    #[test]
    fn lists_switches_numbers_and_durations_in_variables_are_read() {
        let settings = of_variables(&[
            ("CALL_BUDGET_ENABLED", "true"),
            ("CALL_BUDGET_NAMESERVERS", "[\"127.0.0.1:5353\", \"::1\"]"),
            ("CALL_BUDGET_PORT", "6432"),
            ("CALL_BUDGET_RTT_MAX", "40ms"),
            ("CALL_BUDGET_POOL_SIZE", "3"),
            ("UNRELATED", "x"),
        ])
        .unwrap();
        assert!(settings.enabled);
        assert_eq!(settings.nameservers, ["127.0.0.1:5353", "::1"]);
        assert_eq!(settings.port.as_deref(), Some("6432"));
        assert_eq!((settings.rtt_max.as_millis(), settings.pool_size), (40, 3));
        let settings = of_variables(&[("CALL_BUDGET_NAMESERVERS", "[127.0.0.1:5353,10.0.0.2]")]).unwrap();
        assert_eq!(settings.nameservers, ["127.0.0.1:5353", "10.0.0.2"]);
    }

    #[test]
    fn a_variable_that_is_set_to_nothing_leaves_what_the_file_says() {
        let file = File::of("empty", "host = \"db.example\"\nport = 6432\nnameservers = [\"10.0.0.2\"]\n");
        let empty = ["CALL_BUDGET_HOST", "CALL_BUDGET_NAMESERVERS"].map(|name| (name.into(), "".into()));
        let settings = read(Some(&file.0), empty).unwrap();
        assert_eq!(settings.host.as_deref(), Some("db.example"));
        assert_eq!(settings.port.as_deref(), Some("6432"));
        assert_eq!(settings.nameservers, ["10.0.0.2"]);
        let error = of_variables(&[("CALL_BUDGET_ENABLED", "")]).unwrap_err().to_string();
        assert!(error.contains("CALL_BUDGET_ENABLED"), "a switch set to nothing is no answer: {error}");
    }

    #[test]
    fn a_variable_that_tries_to_be_a_table_is_sent_to_the_settings_file() {
        for table in TABLES {
            let table = table.to_uppercase();
            let names = [&*table, &format!("{table}_KIS"), &format!("{table}.KIS"), &format!("{table}__KIS__CLASS")]
                .map(|name| format!("CALL_BUDGET_{name}"));
            for name in names {
                let error = of_variables(&[(&name, "{a = 1}")]).unwrap_err().to_string();
                assert!(error.contains(&name) && error.contains("settings file"), "{error}");
                assert!(error.contains("CALL_BUDGET_CONFIG"), "{error}");
            }
        }
        let error = of_variables(&[("CALL_BUDGET_SURFACES", "x")]).unwrap_err().to_string();
        assert!(error.contains("unknown setting \"surfaces\""), "{error}");
    }

    #[test]
    fn libpqs_variables_are_read_with_the_settings_and_only_then() {
        let variables =
            [("PGHOST", "pg.example"), ("PGUSER", "u"), ("PGPASSWORD", "not-a-real-password"), ("PGPORT", "")];
        let connection = Connection::of(&of_variables(&variables).unwrap()).unwrap();
        assert_eq!(connection.hosts[0].to_string(), "pg.example:5432");
        assert_eq!(connection.password, Password::Given("not-a-real-password".into()));
        Connection::of(&Settings::default()).unwrap_err();
    }

    #[test]
    fn no_message_about_a_file_or_a_variable_shows_a_password() {
        for text in [
            "password = \"not-a-real-password",
            "password = not-a-real-password",
            "password = 'not-a-real-password' x",
            "password = [\"not-a-real-password\"]",
            "database_url = {a = \"not-a-real-password\"}",
            "password = 'not-a-real-password'\npassword = 'not-a-real-password'",
        ] {
            let error = of_toml(text, Path::new("")).unwrap_err().to_string();
            assert!(!error.contains("real-password"), "{error}");
        }
        let error = of_toml("user = \"u\"\npassword = 1234567", Path::new("")).unwrap_err().to_string();
        assert!(error.contains("password") && error.contains("quotes") && !error.contains("1234567"), "{error}");
    }

    #[test]
    fn a_settings_file_that_is_not_there_or_not_toml_is_refused_by_its_path() {
        let error = read(Some(Path::new("/nowhere/settings.toml")), []).unwrap_err().to_string();
        assert!(error.contains("/nowhere/settings.toml") && error.contains("CALL_BUDGET_CONFIG"), "{error}");
        let file = File::of("broken", "user = \"u\"\nhost = \n");
        let error = read(Some(&file.0), []).unwrap_err().to_string();
        assert!(error.contains(&file.0.display().to_string()) && error.contains("line 2"), "{error}");
    }

    /// Removed with the value.
    struct File(std::path::PathBuf);

    impl File {
        fn of(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("call-budget-{}-{name}.toml", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}
