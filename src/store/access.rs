//! Who may do what: rights and settings for roles that exist already. No role is created, no table is granted.

use tokio_postgres::types::Type;

use super::operation::{Operation, OperationError};
use super::sqlstate::Meaning;

/// What a role is to call-budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Acquires, reports a pushback, asks for a fence, shows its breakers, reads the status.
    Client,
    /// A client that may also change settings.
    Admin,
}

/// What was given, and what is left for somebody else to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Statements that only a superuser (or an admin of the role) may run; empty when nothing is left.
    pub left_to_run: Vec<String>,
    /// The role may change settings although it was made a client: by membership in another role, or as a superuser.
    pub still_admin: bool,
}

/// The roles of this server, by name.
pub async fn roles(operation: &Operation<'_>) -> Result<Vec<String>, OperationError> {
    let rows = operation.rows("SELECT rolname::text FROM pg_roles ORDER BY rolname", &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Gives the role exactly these rights on the schema, whatever it had before, and sets what its sessions need: read
/// committed, and with `timeouts` the server's side of the client's deadlines.
///
/// Refused for the schema's owner, who needs all rights, and for whoever does not own the schema. An owner that may not
/// alter the role gives the rights; the settings are handed back as statements.
pub async fn give(
    operation: &Operation<'_>,
    role: &str,
    access: Access,
    timeouts: bool,
) -> Result<Given, OperationError> {
    let about = operation
        .row(
            "SELECT pg_has_role(current_user, n.nspowner, 'USAGE') AS may_grant, pg_get_userbyid(n.nspowner)::text AS owner,
                    current_user::text AS me, coalesce(r.rolconfig, '{}') AS settings
               FROM pg_namespace AS n, pg_roles AS r WHERE n.nspname = 'call_budget' AND r.rolname = $1",
            &[(&role, Type::TEXT)],
        )
        .await?;
    let (owner, me): (String, String) = (about.get("owner"), about.get("me"));
    if !about.get::<_, bool>("may_grant") {
        return Err(OperationError::new(
            Meaning::NotPermitted,
            format!(
                "role {me:?} cannot give rights on the schema of {owner:?}: connect as {owner:?} or as a superuser"
            ),
        ));
    }
    if owner == role {
        return Err(OperationError::new(
            Meaning::Refused,
            format!("role {role:?} owns the schema and needs all rights: name the role that the callers log in with"),
        ));
    }

    operation.execute(&grants(role, access)).await?;
    let set: Vec<String> = about.get("settings");
    let left_to_run = alter_role(operation, missing_settings(role, timeouts, &set)).await?;
    let still_admin = access == Access::Client
        && operation
            .row(
                "SELECT has_function_privilege($1, p.oid, 'EXECUTE') FROM pg_proc AS p
                  WHERE p.pronamespace = 'call_budget'::regnamespace AND p.proname = 'call_budget_set'",
                &[(&role, Type::TEXT)],
            )
            .await?
            .get(0);
    Ok(Given { left_to_run, still_admin })
}

/// Everything away first: what remains is what is written here.
fn grants(role: &str, access: Access) -> String {
    let role = quoted(role);
    let functions = match access {
        Access::Client => CLIENT_FUNCTIONS.to_vec(),
        Access::Admin => [CLIENT_FUNCTIONS, ADMIN_FUNCTIONS].concat(),
    };
    format!(
        "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA call_budget FROM {role};
         REVOKE ALL ON ALL TABLES IN SCHEMA call_budget FROM {role};
         REVOKE ALL ON SCHEMA call_budget FROM {role};
         GRANT USAGE ON SCHEMA call_budget TO {role};
         GRANT SELECT ON call_budget.{} TO {role};
         GRANT EXECUTE ON FUNCTION call_budget.{} TO {role};",
        VIEWS.join(", call_budget."),
        functions.join(", call_budget.")
    )
}

/// Only what is not set yet: an owner that may not alter the role is content once a superuser has run the rest.
fn missing_settings(role: &str, timeouts: bool, set: &[String]) -> Vec<String> {
    let wanted = SETTINGS.iter().chain(if timeouts { TIMEOUTS } else { &[] });
    wanted
        .filter(|(name, value)| !set.contains(&format!("{name}={value}")))
        .map(|(name, value)| format!("ALTER ROLE {} SET {name} = '{value}'", quoted(role)))
        .collect()
}

/// Runs the statements, or hands them back if this role may not.
async fn alter_role(operation: &Operation<'_>, statements: Vec<String>) -> Result<Vec<String>, OperationError> {
    operation.execute("SAVEPOINT role_settings").await?;
    match operation.execute(&statements.join("; ")).await {
        Ok(()) => Ok(Vec::new()),
        Err(error) if error.meaning() == Meaning::NotPermitted => {
            operation.execute("ROLLBACK TO SAVEPOINT role_settings").await?;
            Ok(statements)
        }
        Err(error) => Err(error),
    }
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

pub(super) const CLIENT_FUNCTIONS: &[&str] = &[
    "call_budget_acquire",
    "call_budget_report_pushback",
    "call_budget_request_fence",
    "call_budget_publish_breakers",
];

pub(super) const VIEWS: &[&str] = &["call_budget_status", "call_budget_class_status", "call_budget_breaker_status"];

pub(super) const ADMIN_FUNCTIONS: &[&str] = &[
    "call_budget_set",
    "call_budget_delete",
    "call_budget_class_set",
    "call_budget_class_delete",
    "call_budget_pause",
    "call_budget_resume",
    "call_budget_drained_us",
    "call_budget_pushback",
    "call_budget_fence",
];

/// Acquire refuses any other isolation level.
const SETTINGS: &[(&str, &str)] = &[("default_transaction_isolation", "read committed")];

/// The client's own deadlines hold without these; they spare the server work for callers who have gone.
pub const TIMEOUTS: &[(&str, &str)] = &[
    ("statement_timeout", "500ms"),
    ("lock_timeout", "500ms"),
    ("idle_in_transaction_session_timeout", "5s"),
    ("client_connection_check_interval", "100ms"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_role_name_cannot_end_the_identifier() {
        assert_eq!(quoted(r#"a"; DROP ROLE b; --"#), r#""a""; DROP ROLE b; --""#);
    }

    #[test]
    fn what_is_set_already_is_not_set_again() {
        let set = ["default_transaction_isolation=read committed".to_owned(), "lock_timeout=500ms".to_owned()];
        let missing = missing_settings("app", true, &set);
        assert_eq!(missing.len(), 3);
        assert_eq!(missing[0], r#"ALTER ROLE "app" SET statement_timeout = '500ms'"#);
        assert!(missing_settings("app", false, &set).is_empty());
    }
}
