//! What a run found, for people on stdout and for programs in a file.

use std::fs;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Outcome;
use crate::ground::Ground;
use crate::options::Options;

/// What was found, by name, and the tables as a page shows them.
pub struct Report {
    found: Map<String, Value>,
    tables: Vec<(String, String)>,
}

impl Report {
    /// Begins with what it is measured on: durability and version of the server, and how much of a machine there is.
    pub async fn new(ground: &Ground) -> Outcome<Self> {
        let server = ground.durability().await?;
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let optimized = !cfg!(debug_assertions);
        println!("{cores} cores; PostgreSQL: {server:?}; this program optimized: {optimized}");
        let mut found = Map::new();
        found.insert("ground".into(), json!({ "cores": cores, "postgresql": server, "optimized": optimized }));
        Ok(Self { found, tables: Vec::new() })
    }

    /// Enters one table and shows it at once: `columns` are the fields of a row that people see, in their order.
    pub fn table<R: Serialize>(&mut self, name: &str, title: &str, columns: &[&str], rows: &[R]) -> Outcome<()> {
        let rows = serde_json::to_value(rows)?;
        let list = rows.as_array().map_or(&[][..], Vec::as_slice);
        println!("\n{title}\n{}", in_columns(columns, list));
        self.tables.push((name.into(), in_markdown(columns, list)));
        self.found.insert(name.into(), rows);
        Ok(())
    }

    pub fn finish(self, options: &Options) -> Outcome<()> {
        if let Some(file) = &options.json {
            fs::write(file, serde_json::to_string_pretty(&Value::Object(self.found))? + "\n")?;
        }
        if let Some(page) = &options.page {
            let mut text = fs::read_to_string(page)?;
            for (name, table) in &self.tables {
                text = filled(&text, name, table);
            }
            fs::write(page, text)?;
        }
        Ok(())
    }
}

/// The page with the table in its place. A page without that place stays as it is.
fn filled(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- table {name} -->\n"), format!("<!-- end of {name} -->"));
    let places = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    places.map_or_else(|| page.to_owned(), |(before, after)| format!("{before}{begin}\n{table}\n{end}{after}"))
}

fn in_markdown(columns: &[&str], rows: &[Value]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head = line(columns.iter().map(|column| column.replace('_', " ")).collect());
    let rule = line(columns.iter().enumerate().map(|(at, _)| if at == 0 { "---" } else { "---:" }.into()).collect());
    let rows = rows.iter().map(|row| line(columns.iter().map(|column| cell(&row[column])).collect()));
    head + &rule + &rows.collect::<String>()
}

/// As wide as each column needs; numbers to the right.
fn in_columns(columns: &[&str], rows: &[Value]) -> String {
    let mut lines = vec![columns.iter().map(|column| column.replace('_', " ")).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| columns.iter().map(|column| cell(&row[column])).collect()));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let written = lines.iter().map(|line| {
        let cells = line.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, &width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    });
    written.collect::<Vec<_>>().join("\n")
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(figure) if !number.is_i64() && !number.is_u64() => {
                let places = if figure.abs() < 10.0 { 3 } else { usize::from(figure.abs() < 1000.0) };
                format!("{figure:.places$}")
            }
            _ => number.to_string(),
        },
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}
