use clap::{Args, ValueEnum};

use super::command_error::CommandError;
use super::database::Database;
use super::find;
use super::output::print;
use crate::store::access;

/// Give an existing role the rights of a client or an admin
///
/// The role then has exactly these rights, whatever it had before, and sessions
/// that are read committed. Run it as the owner of the schema; where the owner
/// may not alter the role, it says what a superuser has to run.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = "Example: call-budget access app_role --as client --set-timeouts")]
pub struct Access {
    /// The role that the callers log in with
    role: String,
    /// client: acquire and read the status; admin: also change settings
    #[arg(long = "as", value_name = "WHAT")]
    access: What,
    /// Also set the server's timeouts for calls, on the role
    #[arg(long)]
    set_timeouts: bool,
    #[command(flatten)]
    database: Database,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Client,
    Admin,
}

impl Access {
    pub async fn run(self) -> Result<(), CommandError> {
        let role = &self.role;
        let (access, what) = match self.access {
            What::Client => (access::Access::Client, "a client"),
            What::Admin => (access::Access::Admin, "an admin"),
        };
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        find::role(&operation, role).await?;
        let given = access::give(&operation, role, access, self.set_timeouts).await?;
        operation.commit().await?;
        if !given.left_to_run.is_empty() {
            let message =
                format!("role {role:?} has the rights of {what} now, but you may not change the role's settings");
            return Err(
                CommandError::failed(message).hint(format!("a superuser has to run {};", given.left_to_run.join("; ")))
            );
        }
        print(&format!("role {role:?} is {what} now"));
        if given.still_admin {
            print("it may still change settings: as a superuser, or by membership in another role");
        }
        Ok(())
    }
}
