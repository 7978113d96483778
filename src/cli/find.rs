//! Finds what a command names, or says which name was probably meant.

use super::command_error::CommandError;
use crate::config::nearest::nearest;
use crate::store::access;
use crate::store::operation::Operation;
use crate::store::status::{self, Budget, Class};

/// The budget of that name.
pub async fn budget(operation: &Operation<'_>, name: &str) -> Result<Budget, CommandError> {
    let budgets = status::budgets(operation, None).await?;
    match budgets.iter().find(|budget| budget.name == name) {
        Some(budget) => Ok(budget.clone()),
        None => {
            let known = budgets.iter().map(|budget| budget.name.as_str());
            Err(unknown(format!("there is no budget {name:?}"), name, known, "call-budget budget list"))
        }
    }
}

/// The class of that name, of a budget that exists.
pub async fn class(operation: &Operation<'_>, budget: &str, name: &str) -> Result<Class, CommandError> {
    let classes = status::classes(operation, Some(budget)).await?;
    match classes.iter().find(|class| class.name == name) {
        Some(class) => Ok(class.clone()),
        None => {
            let known = classes.iter().map(|class| class.name.as_str());
            let list = format!("call-budget class list {budget}");
            Err(unknown(format!("budget {budget:?} has no class {name:?}"), name, known, &list))
        }
    }
}

/// Refuses a role that does not exist.
pub async fn role(operation: &Operation<'_>, name: &str) -> Result<(), CommandError> {
    let roles = access::roles(operation).await?;
    if roles.iter().any(|role| role == name) {
        return Ok(());
    }
    let error = CommandError::usage(format!("there is no role {name:?}"));
    Err(match nearest(name, roles.iter().map(String::as_str)) {
        Some(meant) => error.hint(format!("did you mean {meant:?}?")),
        None => error.hint("create it first (CREATE ROLE), call-budget creates none"),
    })
}

fn unknown<'a>(message: String, name: &str, known: impl Iterator<Item = &'a str>, list: &str) -> CommandError {
    let error = CommandError::usage(message);
    match nearest(name, known) {
        Some(meant) => error.hint(format!("did you mean {meant:?}?")),
        None => error.hint(format!("\"{list}\" shows those that exist")),
    }
}
