//! What libpq's variables say, taken once when the settings are read.

use std::fmt;

use super::keys::{KEYS, REFUSED_VARIABLES};
use super::text::Words;

/// Behind `database_url`, before the defaults. Empty in settings that a program made itself.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    pub(in crate::config) words: Words,
    /// A variable that must not be ignored and cannot be followed, and the key that says the same.
    pub(in crate::config) refused: Option<(&'static str, &'static str)>,
}

impl Environment {
    /// `variable` gives the text of a variable. The user is libpq's default too: who runs this process.
    pub(in crate::config) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let said = |name: &str| variable(name).filter(|text| !text.is_empty());
        let mut words: Words = KEYS.iter().filter_map(|(key, name)| Some((*key, said(name)?))).collect();
        if let Some(login) = said("USER").or_else(|| said("LOGNAME")) {
            words.entry("user").or_insert(login);
        }
        let refused = REFUSED_VARIABLES.iter().copied().find(|(name, _)| said(name).is_some());
        Self { words, refused }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One of them may be PGPASSWORD.
        f.debug_set().entries(self.words.keys()).finish()
    }
}
