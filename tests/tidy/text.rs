//! Reading the tree: files, the code of a file without comments and strings, tables of a page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct File {
    /// From the root, with slashes.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// A module that is compiled for tests only.
    pub fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs")
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text files with this extension ("" is any) at or below these places.
pub fn files(places: &[&str], extension: &str) -> Vec<File> {
    let mut paths: Vec<PathBuf> = places.iter().map(|place| root().join(place)).collect();
    let mut found = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if extension.is_empty() || path.extension().is_some_and(|its| its == extension) {
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
            // What Python leaves behind is no text.
            if let Ok(text) = fs::read_to_string(&path) {
                found.push(File { path: name, text });
            }
        }
    }
    assert!(!found.is_empty(), "nothing to look at in {places:?}");
    found
}

/// The code without comments, without the content of strings, and without the tests at its end.
pub fn code(text: &str) -> String {
    scan(before_tests(text)).0
}

/// The strings of the code, without the tests at its end.
pub fn literals(text: &str) -> Vec<String> {
    scan(before_tests(text)).1
}

fn before_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Code and strings of Rust, and as much of SQL as comments go.
fn scan(text: &str) -> (String, Vec<String>) {
    let (mut code, mut literals) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let hashes = rest.strip_prefix('r').map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
        let raw = format!("r{}\"", "#".repeat(hashes));
        let inside_a_name = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if rest.starts_with("//") || rest.starts_with("-- ") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            rest = &rest[rest[1..].find('\'').map_or(rest.len(), |end| end + 2)..];
        } else if !inside_a_name && let Some(inside) = rest.strip_prefix(&raw) {
            let end = format!("\"{}", "#".repeat(hashes));
            let (literal, after) = inside.split_once(&end).unwrap_or((inside, ""));
            literals.push(literal.to_owned());
            code.push_str("\"\"");
            rest = after;
        } else if first == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let end = end.map_or(rest.len(), |end| end + 1);
            literals.push(rest[1..end].replace("\\\n", "\n"));
            code.push_str("\"\"");
            rest = rest.get(end + 1..).unwrap_or_default();
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    (code, literals)
}

/// The identifier that the text begins with, spaces aside.
pub fn first_identifier(text: &str) -> &str {
    let text = text.trim_start();
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(text)
}

/// The words that identifiers are made of, in lower case.
pub fn identifier_parts(code: &str) -> BTreeSet<String> {
    let mut spaced = String::new();
    for c in code.chars() {
        if c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.extend(if c.is_alphanumeric() { c.to_lowercase().next() } else { Some(' ') });
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// The tables of a page, each as its rows of cells, without the heads.
pub fn tables(page: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        let row = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
        match row {
            Some(row) if row.starts_with("---") => {
                tables.push(Vec::new());
                inside = true;
            }
            Some(row) if inside => {
                let cells = row.split(" | ").map(|cell| cell.trim().to_owned()).collect();
                tables.last_mut().expect("a head was seen").extend([cells]);
            }
            Some(_) => {}
            None => inside = false,
        }
    }
    tables
}

/// What stands between `from` and the next `to`, each time.
pub fn between<'a>(text: &'a str, from: &'a str, to: &'a str) -> impl Iterator<Item = String> + 'a {
    text.split(from).skip(1).filter_map(move |rest| rest.split_once(to)).map(|(found, _)| found.to_owned())
}
