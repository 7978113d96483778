use clap::Args;

use super::breakers;
use super::command_error::CommandError;
use super::database::Database;
use super::describe;
use super::duration::rough;
use super::find;
use super::output::{print, print_json, table};
use crate::store::report::Report;
use crate::store::status::{self, Process, Server};

/// Show what is going on: grants and waits by class, breakers, the server
#[derive(Args)]
#[command(after_help = "Example: call-budget status kis-real --json")]
pub struct Status {
    /// Only this budget
    budget: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: Database,
}

impl Status {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        let budgets = match &self.budget {
            Some(name) => vec![find::budget(&operation, name).await?],
            None => status::budgets(&operation, None).await?,
        };
        let report = Report::of(&operation, budgets).await?;
        match self.json {
            true => print_json(&report),
            false => print(&text(&report)),
        }
        Ok(())
    }
}

fn text(report: &Report) -> String {
    let mut parts: Vec<String> =
        report.budgets.iter().map(|view| format!("{}\n{}", view.budget.name, describe::activity(view))).collect();
    if parts.is_empty() {
        parts.push("no budget yet: \"call-budget budget set NAME --limit 18 --window 1s\" makes one".to_owned());
    }
    parts.push(breakers::in_words(report));
    parts.push(server(&report.server));
    parts.join("\n\n")
}

fn server(server: &Server) -> String {
    let line = |name: &str, value: String| vec![name.to_owned(), value];
    let snapshot = server.oldest_snapshot.as_ref().map_or("none held".to_owned(), |snapshot| {
        let lasted = snapshot.age_us.map_or(String::new(), |us| format!("{}, ", rough(us)));
        format!("{lasted}{} transactions old ({})", snapshot.transactions, named(&snapshot.application_name))
    });
    table(&[
        line("server", format!("PostgreSQL {}", server.version)),
        line("fsync", server.fsync.clone()),
        line("synchronous_commit", server.synchronous_commit.clone()),
        line("full_page_writes", server.full_page_writes.clone()),
        line("oldest snapshot", snapshot),
        line("processes", processes(&server.processes)),
    ])
}

fn processes(processes: &[Process]) -> String {
    if processes.is_empty() {
        return "nobody else is connected".to_owned();
    }
    let sessions = processes.iter().map(|process| format!("{} {}", process.sessions, named(&process.application_name)));
    sessions.collect::<Vec<_>>().join(", ")
}

fn named(application_name: &str) -> &str {
    if application_name.is_empty() { "without a name" } else { application_name }
}
