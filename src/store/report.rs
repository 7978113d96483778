//! What is going on, as people and programs read it: the same document for `call-budget status --json` and the service.

use std::collections::BTreeMap;

use serde::Serialize;

use super::operation::{Operation, OperationError};
use super::status::{self, Breaker, Breakers, Budget, Class, Server};

/// A budget with its classes.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    #[serde(flatten)]
    pub budget: Budget,
    pub classes: Vec<ClassView>,
}

/// A class and its part of what the budget granted.
#[derive(Clone, Debug, Serialize)]
pub struct ClassView {
    #[serde(flatten)]
    pub class: Class,
    /// Of all grants of this budget's classes since they were made: 0 to 1, none before the first.
    pub share: Option<f64>,
}

/// Budgets, breakers and the server, read in one transaction.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub budgets: Vec<View>,
    /// Of every budget: breakers belong to none.
    pub breakers: Vec<Breaker>,
    /// Why there are none to be seen, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breakers_unseen: Option<&'static str>,
    pub server: Server,
}

impl View {
    /// Reads the classes of a budget.
    ///
    /// # Errors
    /// The store did not answer, or refused.
    pub async fn of(operation: &Operation<'_>, budget: Budget) -> Result<View, OperationError> {
        let classes = status::classes(operation, Some(&budget.name)).await?;
        Ok(View::with(budget, classes))
    }

    fn with(budget: Budget, classes: Vec<Class>) -> View {
        let all: i64 = classes.iter().map(|class| class.granted).sum();
        let share = |class: &Class| (all > 0).then(|| class.granted as f64 / all as f64);
        let classes = classes.into_iter().map(|class| ClassView { share: share(&class), class }).collect();
        View { budget, classes }
    }
}

impl Report {
    /// Reads everything about these budgets.
    ///
    /// # Errors
    /// The store did not answer, or refused.
    pub async fn of(operation: &Operation<'_>, budgets: Vec<Budget>) -> Result<Report, OperationError> {
        // One question for all of them, however many there are.
        let only = if let [budget] = &*budgets { Some(budget.name.as_str()) } else { None };
        let mut classes: BTreeMap<String, Vec<Class>> = BTreeMap::new();
        for class in status::classes(operation, only).await? {
            classes.entry(class.budget.clone()).or_default().push(class);
        }
        let view = |budget: Budget| {
            let classes = classes.remove(&budget.name).unwrap_or_default();
            View::with(budget, classes)
        };
        let views = budgets.into_iter().map(view).collect();
        let breakers = status::breakers(operation).await?;
        let breakers_unseen = breakers.why_unseen();
        let breakers = if let Breakers::Shown(breakers) = breakers { breakers } else { Vec::new() };
        Ok(Report { budgets: views, breakers, breakers_unseen, server: status::server(operation).await? })
    }
}
