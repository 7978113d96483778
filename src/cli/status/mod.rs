//! `call-budget status`: what is going on, once or for as long as somebody watches.

mod past;
mod picture;
mod screen;
#[cfg(test)]
mod tests;
mod watch;

use std::time::Duration;

use clap::Args;

use super::breakers;
use super::command_error::CommandError;
use super::database::{Connected, Database};
use super::describe;
use super::duration::{parse_us, rough};
use super::find;
use super::output::{print, print_json, table};
use crate::store::report::Report;
use crate::store::status::{self, Process, Server};

/// Show what is going on: grants and waits by class, breakers, the server
///
/// With --watch it goes on until Ctrl-C: on a terminal one picture in place of
/// the last, elsewhere one block of text (or, with --json, one JSON document on
/// a line, with unix_ms) at a time. While the database does not answer it keeps
/// the last figures, says since when and why, and connects again by itself.
/// NO_COLOR turns the colours off.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = "Example: call-budget status kis-real --watch")]
pub struct Status {
    /// Only this budget
    budget: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Go on showing it, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Between two looks, 100ms to 1h
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s", requires = "watch")]
    every: Duration,
    #[command(flatten)]
    database: Database,
}

impl Status {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.database.connect().await?;
        let report = read(&mut connected, self.budget.as_deref()).await?;
        match (self.watch, self.json) {
            (true, _) => return watch::watch(self, connected, report).await,
            (false, true) => print_json(&report),
            (false, false) => print(&text(&report)),
        }
        Ok(())
    }
}

/// One reading, in one transaction.
async fn read(connected: &mut Connected, budget: Option<&str>) -> Result<Report, CommandError> {
    let operation = connected.begin().await?;
    let budgets = match budget {
        Some(name) => vec![find::budget(&operation, name).await?],
        None => status::budgets(&operation, None).await?,
    };
    Ok(Report::of(&operation, budgets).await?)
}

fn interval(text: &str) -> Result<Duration, String> {
    let us = parse_us(text)?;
    if !(100_000..=3_600_000_000).contains(&us) {
        return Err("write a duration from 100ms to 1h".to_owned());
    }
    Ok(Duration::from_micros(us.unsigned_abs()))
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
