//! Who says a word: a setting of its own, `database_url`, or a variable of libpq, in this order.

use super::keys;
use super::text::{self, Words};
use crate::config::{Secret, Settings, SettingsError};

/// All that is said, the strongest first.
pub(super) struct Sources([(Origin, Words); 3]);

/// One word, and who said it as the beginning of a sentence.
pub(super) struct Word<'a> {
    pub text: &'a str,
    pub said_by: String,
}

impl Word<'_> {
    pub fn refused(&self, fault: &str) -> SettingsError {
        SettingsError(format!("{} {fault}", self.said_by))
    }
}

#[derive(Clone, Copy)]
enum Origin {
    Setting,
    DatabaseUrl,
    Variable,
}

impl Sources {
    pub fn of(settings: &Settings) -> Result<Self, SettingsError> {
        if let Some((variable, key)) = settings.environment.refused {
            let reason = keys::why_not(key).unwrap_or_default();
            return Err(SettingsError(format!("the variable {variable} is not supported, unset it: {reason}")));
        }
        let url = settings.database_url.as_ref().map_or("", Secret::as_str);
        let url = text::words(url).map_err(|fault| SettingsError(format!("database_url {fault}")))?;
        Ok(Self([
            (Origin::Setting, own_settings(settings)?),
            (Origin::DatabaseUrl, url),
            (Origin::Variable, settings.environment.words.clone()),
        ]))
    }

    /// The strongest that says something.
    pub fn word(&self, key: &'static str) -> Option<Word<'_>> {
        let (origin, text) = self.0.iter().find_map(|(origin, words)| Some((origin, words.get(key)?)))?;
        let said_by = match origin {
            Origin::Setting => format!("the setting {key}"),
            Origin::DatabaseUrl => format!("{key} in database_url"),
            Origin::Variable => {
                let variable = keys::KEYS.iter().find(|(known, _)| *known == key).map_or("", |(_, variable)| variable);
                format!("the variable {variable}")
            }
        };
        Some(Word { text, said_by })
    }
}

fn own_settings(settings: &Settings) -> Result<Words, SettingsError> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let path = |key: &str, path: &Option<std::path::PathBuf>| match path.as_ref().map(|path| path.to_str()) {
        None => Ok(String::new()),
        Some(Some(path)) => Ok(path.to_owned()),
        Some(None) => Err(SettingsError(format!("the setting {key} is not UTF-8: use another path"))),
    };
    let mut words = Words::new();
    for (key, text) in [
        ("host", text(&settings.host)),
        ("port", text(&settings.port)),
        ("user", text(&settings.user)),
        ("password", settings.password.as_ref().map_or_else(String::new, |password| password.as_str().to_owned())),
        ("dbname", text(&settings.dbname)),
        ("sslmode", text(&settings.sslmode)),
        ("sslrootcert", path("sslrootcert", &settings.sslrootcert)?),
        ("sslcert", path("sslcert", &settings.sslcert)?),
        ("sslkey", path("sslkey", &settings.sslkey)?),
        ("application_name", settings.application_name.clone()),
    ] {
        if text.contains('\0') {
            return Err(SettingsError(format!("the setting {key} has a zero byte in it")));
        }
        if !text.is_empty() {
            words.insert(key, text);
        }
    }
    Ok(words)
}
