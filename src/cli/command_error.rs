use std::fmt;

use super::Exit;
use crate::SettingsError;
use crate::store::operation::OperationError;
use crate::store::sqlstate::Meaning;

/// Why a command did not do what it was asked: one sentence on standard error, and how to go on.
#[derive(Debug)]
pub struct CommandError {
    pub exit: Exit,
    pub message: String,
    pub hint: Option<String>,
}

impl CommandError {
    /// The command line or a setting is wrong: repeating it cannot help.
    pub fn usage(message: impl Into<String>) -> Self {
        CommandError { exit: Exit::Usage, message: message.into(), hint: None }
    }

    /// It was tried, and failed or was refused.
    pub fn failed(message: impl Into<String>) -> Self {
        CommandError { exit: Exit::Failed, message: message.into(), hint: None }
    }

    /// The store could not be reached or used.
    pub fn store(message: impl Into<String>) -> Self {
        CommandError { exit: Exit::Store, message: message.into(), hint: None }
    }

    /// What the store refused of a setting, and whose setting it is: the constraint's name says the rest.
    pub fn of_setting(whose: &str, error: OperationError) -> Self {
        match error.meaning() {
            Meaning::BadSetting => CommandError::usage(format!("{whose} was not set")).hint(error.to_string()),
            _ => error.into(),
        }
    }

    /// Adds the way out.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        CommandError { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call-budget: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, ": {hint}"),
            None => Ok(()),
        }
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        let refused = CommandError::usage(error.to_string());
        match error.names_no_store() {
            true => refused.hint("a command also takes the variable DATABASE_URL or --database-url"),
            false => refused,
        }
    }
}

impl From<OperationError> for CommandError {
    fn from(error: OperationError) -> Self {
        let message = error.to_string();
        match error.meaning() {
            Meaning::BadArgument | Meaning::BadSetting | Meaning::NoSuchName | Meaning::Refused => {
                CommandError::usage(message)
            }
            Meaning::NotPermitted => CommandError::failed(message)
                .hint("the schema's owner can give the rights with \"call-budget access ROLE --as admin\""),
            Meaning::NoSchema => CommandError::store(message).hint("run \"call-budget migrate\""),
            Meaning::TimedOut => CommandError::store(message).hint("nothing was changed, try again"),
            Meaning::Uncertain => CommandError::store(message).hint("look before you try again"),
            _ => CommandError::store(message),
        }
    }
}
