//! docs/metrics.md lists every metric and every event, with the labels and fields that the code gives them.

use std::collections::{BTreeMap, BTreeSet};

use crate::none;
use crate::text::{self, files, read, tables};

/// By name: the level, and the fields in order.
type Events = BTreeMap<String, (String, Vec<String>)>;

/// The events that a source tells by a stable name. Other messages are sentences for people.
fn told(source: &str) -> Vec<(String, (String, Vec<String>))> {
    let mut events = Vec::new();
    for level in ["error", "warn", "info", "debug"] {
        for (at, start) in source.match_indices(&format!("tracing::{level}!(")) {
            let arguments = arguments(&source[at + start.len()..]);
            let Some((name, fields)) = arguments.split_last() else { continue };
            let name = name.trim_matches('"');
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            if name.chars().all(is_name) && name.contains('_') {
                let fields = fields.iter().map(|field| field.split('=').next().unwrap_or_default().trim());
                let fields = fields.map(|field| field.trim_start_matches(['%', '?']).to_owned()).collect();
                events.push((name.to_owned(), (level.to_owned(), fields)));
            }
        }
    }
    events
}

/// What stands between commas until the bracket closes that was opened before the text.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut parts) = (0, false, vec![String::new()]);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted && depth == 0 => break,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("there is one").push(c);
    }
    let parts = parts.into_iter().map(|part| part.trim().to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

fn listed(page: &str) -> Events {
    let (_, section) = page.split_once("\n## Events of the log\n").expect("the page has the section");
    let table = tables(section).into_iter().next().unwrap_or_default();
    table
        .into_iter()
        .map(|row| {
            let [event, level, fields, _] = &row[..] else { panic!("four cells, not {row:?}") };
            let fields = fields.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            (event.trim_matches('`').to_owned(), (level.clone(), fields))
        })
        .collect()
}

#[test]
fn metrics_md_lists_every_event_with_its_level_and_fields() {
    let all = files(&["src"], "rs").into_iter().flat_map(|file| told(&file.text));
    let told: Events = all.collect();
    assert!(told.len() >= 15, "{told:#?}");
    let listed = listed(&read("docs/metrics.md"));
    let differences = told.iter().filter(|(name, what)| listed.get(*name) != Some(what));
    none(differences.map(|(name, what)| format!("{name} is {what:?}, and listed as {:?}", listed.get(name))));
    none(listed.keys().filter(|name| !told.contains_key(*name)).map(|name| format!("{name} is told by nobody")));
}

#[test]
fn an_event_is_read_with_its_fields_whatever_it_looks_like() {
    let sample = "tracing::warn!(\n    budget, step_us = step.by(1, 2), %error, of = &*x,\n    \"call_budget_x\"\n);
                  tracing::debug!(%error, \"the store, as it is, is out\");";
    let fields = ["budget", "step_us", "error", "of"].map(str::to_owned).to_vec();
    assert_eq!(told(sample), [("call_budget_x".to_owned(), ("warn".to_owned(), fields))]);
    let page =
        "\n## Events of the log\n\n| a | b | c | d |\n| --- | --- | --- | --- |\n| `x_y` | warn | `a`, `b` | - |\n";
    let row = ("warn".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(listed(page), Events::from([("x_y".to_owned(), row)]));
}

#[test]
fn metrics_md_lists_the_metrics_that_the_exporter_names() {
    let sources = files(&["src/service/metrics"], "rs")
        .into_iter()
        .chain([text::File::new("src/service/metrics.rs", &read("src/service/metrics.rs"))]);
    let named = sources.flat_map(|file| text::literals(&file.text)).filter(|name| name.starts_with("call_budget_"));
    let named: BTreeSet<String> = named.collect();
    assert!(named.len() >= 40, "{named:?}");
    let page = read("docs/metrics.md");
    let rows = tables(&page).into_iter().take(2).flatten();
    let listed = rows.map(|row| row[0].trim_matches('`').trim_end_matches("_total").to_owned()).collect();
    // The text itself, with types and labels, is compared in tests/metrics.
    assert_eq!(named, listed);
}
