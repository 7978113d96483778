//! The dashboard and the alerts ask for metrics, labels and values that there are.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::exposed::Exposed;
use crate::sample;

/// What Prometheus adds to every series of a target.
const OF_THE_TARGET: [&str; 2] = ["instance", "job"];
/// The series that it makes for each target itself.
const BY_PROMETHEUS: &str = "up";
/// Words of the language that stand where a metric can.
const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
/// Words that are followed by labels in brackets.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

pub fn dashboard() -> Value {
    serde_json::from_str(include_str!("../../docs/grafana.json")).expect("the dashboard is JSON")
}

pub const ALERTS: &str = include_str!("../../docs/alerts.yml");

/// All queries of the dashboard, with the panel's title, and what their legends show.
pub fn queries(dashboard: &Value) -> Vec<(String, String, String)> {
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(|target| (text(&panel["title"]), text(&target["expr"]), text(&target["legendFormat"])))
    });
    targets.collect()
}

/// Each alert of the rules: its name, its expression, and all that it says to people.
pub fn alerts(rules: &str) -> Vec<(String, String, String)> {
    let mut alerts = Vec::new();
    for rule in rules.split("- alert: ").skip(1) {
        let (name, rest) = rule.split_once('\n').expect("a rule has lines");
        let (_, rest) = rest.split_once("expr: ").expect("a rule has an expression");
        let end = ["\n        for:", "\n        labels:"].iter().filter_map(|end| rest.find(end)).min();
        let (expression, said) = rest.split_at(end.expect("labels follow"));
        alerts.push((name.to_owned(), expression.trim_start_matches(">-").trim().to_owned(), said.to_owned()));
    }
    alerts
}

/// What a query asks for that the text does not have. `shown` are the labels that a legend or a message names.
fn faults(query: &str, shown: &str, exposed: &Exposed) -> Vec<String> {
    let mut faults = Vec::new();
    let tokens = tokens(query);
    let (mut metric, mut known, mut grouped) = (None, BTreeSet::new(), None);
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).map_or("", String::as_str);
        let is_name = token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        match (token.as_str(), metric) {
            ("{" | "(", _) if at > 0 => {}
            ("}", _) => metric = None,
            // Inside the braces of a metric: LABEL OPERATOR "VALUES".
            (label, Some(of)) if is_name => {
                let operator = next;
                let values = tokens.get(at + 2).map_or("", |quoted| quoted.trim_matches('"'));
                faults.extend(unknown_label(label, of, exposed));
                for value in values.split('|').filter(|value| !value.contains('$') && !value.is_empty()) {
                    if operator != "!=" && !OF_THE_TARGET.contains(&label) {
                        faults.extend(unknown_value(label, value, exposed));
                    }
                }
            }
            (")", _) => grouped = None,
            (word, _) if GROUPING.contains(&word) => grouped = Some(word.to_owned()),
            (label, _) if grouped.is_some() && is_name => {
                known.insert(label.to_owned());
                let there = exposed.series.iter().any(|series| series.labels.contains_key(label));
                if !there && !OF_THE_TARGET.contains(&label) {
                    faults.push(format!("nothing has the label {label}"));
                }
            }
            (name, None) if is_name && next != "(" && !GROUPING.contains(&next) && !WORDS.contains(&name) => {
                match name == BY_PROMETHEUS || exposed.series.iter().any(|series| series.name == name) {
                    true => metric = (next == "{").then_some(name),
                    false => faults.push(format!("there is no metric {name}")),
                }
            }
            _ => {}
        }
    }
    let marks = shown.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(mark, _)| mark.trim());
    for mark in marks {
        let label = mark.strip_prefix("$labels.").unwrap_or(mark);
        if !label.starts_with('$') && !known.contains(label) && !OF_THE_TARGET.contains(&label) {
            faults.push(format!("shows {label}, by which it is not grouped"));
        }
    }
    faults
}

fn unknown_label(label: &str, metric: &str, exposed: &Exposed) -> Option<String> {
    let mut of_metric = exposed.series.iter().filter(|series| series.name == metric);
    let has = of_metric.any(|series| series.labels.contains_key(label));
    (!has && !OF_THE_TARGET.contains(&label)).then(|| format!("{metric} has no label {label}"))
}

fn unknown_value(label: &str, value: &str, exposed: &Exposed) -> Option<String> {
    let has = exposed.series.iter().any(|series| series.labels.get(label).is_some_and(|has| has == value));
    (!has).then(|| format!("no {label} is ever {value}"))
}

/// Names, texts in quotes, and signs one by one; numbers, durations and variables are left out.
fn tokens(query: &str) -> Vec<String> {
    let (mut tokens, mut rest) = (Vec::new(), query);
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let length = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            '$' => 1 + rest[1..].find(|c| !word(c)).unwrap_or(rest.len() - 1),
            '!' | '=' if rest[1..].starts_with(['=', '~']) => 2,
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        if !first.is_whitespace() && first != '$' && !first.is_ascii_digit() {
            tokens.push(token.to_owned());
        }
        rest = after;
    }
    tokens
}

#[tokio::test]
async fn every_query_of_the_dashboard_asks_for_what_there_is() {
    let exposed = Exposed::read(&sample::whole().await);
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    assert!(queries.len() >= 35, "{}", queries.len());
    let mut wrong: Vec<String> = Vec::new();
    for (title, query, legend) in &queries {
        wrong.extend(faults(query, legend, &exposed).into_iter().map(|fault| format!("{title}: {fault}")));
    }
    let variables = dashboard["templating"]["list"].as_array().expect("it has variables");
    let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "budget", "instance"]);
    for variable in &variables[1..] {
        let definition = variable["definition"].as_str().unwrap();
        let asked = definition.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        let (metric, label) = asked.split_once(", ").unwrap();
        wrong.extend(faults(metric, "", &exposed));
        wrong.extend(unknown_label(label, metric, &exposed));
    }
    assert_eq!(wrong, [""; 0], "{wrong:#?}");
}

#[tokio::test]
async fn every_alert_asks_for_what_there_is_and_says_what_to_do() {
    let exposed = Exposed::read(&sample::whole().await);
    let alerts = alerts(ALERTS);
    assert!(alerts.len() >= 10, "{}", alerts.len());
    let mut wrong: Vec<String> = Vec::new();
    for (name, query, said) in &alerts {
        wrong.extend(faults(query, said, &exposed).into_iter().map(|fault| format!("{name}: {fault}")));
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(said.contains(part), "{name} has no {part}");
        }
    }
    assert_eq!(wrong, [""; 0], "{wrong:#?}");
}

#[tokio::test]
async fn a_name_that_there_is_not_is_found() {
    let exposed = Exposed::read(&sample::whole().await);
    let good =
        r#"sum by (class, le) (rate(call_budget_wait_seconds_bucket{budget=~"$budget", instance="x"}[5m])) / 2 > 0.1"#;
    assert_eq!(faults(good, "{{class}} {{ $value | humanizeDuration }}", &exposed), [""; 0]);
    for (query, shown) in [
        ("call_budget_no_such_metric > 0", ""),
        ("call_budget_sends > 0", ""),
        (r#"rate(call_budget_grants_total{surface="x"}[5m])"#, ""),
        ("sum by (colour) (call_budget_paused)", ""),
        (r#"call_budget_fleet_breakers{state=~"open|ajar"}"#, ""),
        ("max by (budget) (call_budget_paused)", "{{ $labels.class }}"),
    ] {
        assert!(!faults(query, shown, &exposed).is_empty(), "{query}");
    }
}
