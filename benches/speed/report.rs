//! What a run found, for people on stdout and for programs in a file.

use std::fs;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Outcome;
use crate::ground::Ground;
use crate::options::Options;

/// What was found, by name, and how its tables are shown.
pub struct Report {
    found: Map<String, Value>,
    shown: Map<String, Value>,
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
        Ok(Self { found, shown: Map::new() })
    }

    /// Enters one table and shows it at once: `columns` are the fields of a row that people see, in their order.
    pub fn table<R: Serialize>(&mut self, name: &str, title: &str, columns: &[&str], rows: &[R]) -> Outcome<()> {
        let rows = serde_json::to_value(rows)?;
        let list = rows.as_array().map_or(&[][..], Vec::as_slice);
        println!("\n{title}\n{}", in_columns(columns, list));
        self.shown.insert(name.into(), json!({ "title": title, "columns": columns }));
        self.found.insert(name.into(), rows);
        Ok(())
    }

    /// Beside the tables, `shown` says which columns of each are for people, so that a page shows the same.
    pub fn finish(mut self, options: &Options) -> Outcome<()> {
        self.found.insert("shown".into(), Value::Object(self.shown));
        self.found.insert("smoke".into(), options.smoke.into());
        if let Some(file) = &options.json {
            fs::write(file, serde_json::to_string_pretty(&Value::Object(self.found))? + "\n")?;
        }
        Ok(())
    }
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
