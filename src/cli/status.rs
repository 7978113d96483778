use clap::Args;
use serde::Serialize;

use super::breakers;
use super::command_error::CommandError;
use super::database::Database;
use super::describe::View;
use super::duration::rough;
use super::find;
use super::output::{print, print_json, table};
use crate::store::status::{self, Breaker, Breakers, Process, Server};

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

#[derive(Serialize)]
struct Report {
    budgets: Vec<View>,
    /// Of every budget: breakers belong to none.
    breakers: Vec<Breaker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    breakers_unseen: Option<&'static str>,
    server: Server,
}

impl Status {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.database.connect().await?;
        let operation = connected.begin().await?;
        let budgets = match &self.budget {
            Some(name) => vec![find::budget(&operation, name).await?],
            None => status::budgets(&operation, None).await?,
        };
        let mut views = Vec::new();
        for budget in budgets {
            views.push(View::of(&operation, budget).await?);
        }
        let (breakers, server) = (status::breakers(&operation).await?, status::server(&operation).await?);
        match self.json {
            true => print_json(&Report::new(views, breakers, server)),
            false => print(&text(&views, &breakers, &server)),
        }
        Ok(())
    }
}

impl Report {
    fn new(budgets: Vec<View>, breakers: Breakers, server: Server) -> Self {
        let breakers_unseen = breakers::why_unseen(&breakers);
        let breakers = if let Breakers::Shown(breakers) = breakers { breakers } else { Vec::new() };
        Self { budgets, breakers, breakers_unseen, server }
    }
}

fn text(budgets: &[View], breakers: &Breakers, about: &Server) -> String {
    let mut parts: Vec<String> =
        budgets.iter().map(|view| format!("{}\n{}", view.budget.name, view.activity())).collect();
    if parts.is_empty() {
        parts.push("no budget yet: \"call-budget budget set NAME --limit 18 --window 1s\" makes one".to_owned());
    }
    parts.push(breakers::in_words(breakers));
    parts.push(server(about));
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
