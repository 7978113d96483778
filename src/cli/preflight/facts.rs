//! What the server says of itself, each question on its own: a role that may not see one thing is told of the others.

use std::time::Duration;

use crate::cli::command_error::CommandError;
use crate::cli::find;
use crate::store::admin;
use crate::store::direct::Direct;
use crate::store::inspect::{self, Connections, Kept, Role, Server, Table};
use crate::store::operation::Operation;
use crate::store::report::View;

/// Each fact, or why it is not known.
pub struct Facts {
    pub contract: Result<i32, String>,
    pub server: Result<Server, String>,
    pub role: Result<Role, String>,
    pub tables: Result<Vec<Table>, String>,
    pub connections: Result<Connections, String>,
    pub kept: Result<Kept, String>,
    pub view: Result<View, String>,
}

impl Facts {
    /// Asks for all of them, past sessions of this `application_name`.
    pub async fn read(direct: &mut Direct, budget: &str, application_name: &str) -> Facts {
        let role = ask(direct, async |operation| Ok(inspect::role(operation).await?)).await;
        let contract = match &role {
            Ok(role) if !role.uses_schema && role.schema => Err(format!(
                "role {:?} may not use the schema: its owner can run \"call-budget access {} --as client\"",
                role.name, role.name
            )),
            _ => ask(direct, async |operation| Ok(admin::contract(operation).await?)).await,
        };
        let server = ask(direct, async |operation| Ok(inspect::server(operation).await?)).await;
        let view = match &role {
            _ if server.as_ref().is_ok_and(|server| server.in_recovery) => {
                Err("a standby cannot show what is in unlogged tables: see primary".to_owned())
            }
            _ if contract.is_err() => Err("the schema cannot be used: see schema".to_owned()),
            Ok(role) if !role.missing.is_empty() => Err("this role may not see the budgets: see rights".to_owned()),
            _ => {
                ask(direct, async |operation| {
                    let budget = find::budget(operation, budget).await?;
                    Ok(View::of(operation, budget).await?)
                })
                .await
            }
        };
        Facts {
            contract,
            server,
            role,
            tables: ask(direct, async |operation| Ok(inspect::tables(operation).await?)).await,
            connections: ask(direct, async |operation| Ok(inspect::connections(operation, application_name).await?))
                .await,
            kept: ask(direct, async |operation| Ok(inspect::kept(operation).await?)).await,
            view,
        }
    }

    /// Between two slots of the budget, where it is there.
    pub fn interval(&self) -> Option<Duration> {
        let view = self.view.as_ref().ok()?;
        u64::try_from(view.budget.settings.interval_us).ok().map(Duration::from_micros)
    }
}

async fn ask<T>(
    direct: &mut Direct,
    question: impl AsyncFnOnce(&Operation<'_>) -> Result<T, CommandError>,
) -> Result<T, String> {
    let operation = Operation::begin(direct.client()).await.map_err(|error| in_words(error.into()))?;
    question(&operation).await.map_err(in_words)
}

/// The sentence and the way out.
fn in_words(error: CommandError) -> String {
    match error.hint {
        Some(hint) => format!("{}: {hint}", error.message),
        None => error.message,
    }
}
