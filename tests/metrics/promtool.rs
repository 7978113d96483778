//! What Prometheus's own tool says, where it is there (Debian's package `prometheus`).

use std::io::Write;
use std::process::{Command, Stdio};

use crate::built_on::{dashboard, queries};
use crate::sample;

const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/alerts.yml");
const TRIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/metrics/alerts_test.yml");

/// Runs it with this as its input. None: it is not there, which is said.
fn promtool(arguments: &[&str], input: &str) -> Option<Result<String, String>> {
    let child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        // Past the test's own capture: what was not tried is never silent.
        let _ = writeln!(
            std::io::stderr(),
            "NOT TRIED: promtool {}: promtool is not installed (Debian: prometheus)",
            arguments[..2].join(" ")
        );
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some(if output.status.success() { Ok(said) } else { Err(said) })
}

#[track_caller]
fn passes(arguments: &[&str], input: &str) {
    if let Some(Err(said)) = promtool(arguments, input) {
        panic!("promtool {}: {said}", arguments.join(" "));
    }
}

#[test]
fn the_alerts_are_rules_that_prometheus_takes() {
    passes(&["check", "rules", ALERTS], "");
}

#[test]
fn the_alerts_fire_when_they_ought_to_and_not_before() {
    passes(&["test", "rules", TRIED], "");
}

#[test]
fn every_query_of_the_dashboard_is_one_that_prometheus_takes() {
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (n, (_, query, _)) in queries(&dashboard()).into_iter().enumerate() {
        let query = query.replace("$__rate_interval", "5m").replace("$budget", "kis-real").replace("$instance", ".*");
        rules += &format!("      - record: panel:query:number{n}\n        expr: '{query}'\n");
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(rules.as_bytes()).unwrap();
    passes(&["check", "rules", file.path().to_str().unwrap()], "");
}

#[tokio::test]
async fn the_text_has_nothing_that_prometheus_would_rather_have_otherwise() {
    // The tool reads the older text, where the head of a counter has its whole name.
    let text = sample::whole().await;
    let counters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut older = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let name = line.split(' ').nth(2).unwrap_or_default();
        let is_head = line.starts_with('#') && counters.contains(&name);
        older += &if is_head { line.replacen(name, &format!("{name}_total"), 1) } else { line.to_owned() };
        older.push('\n');
    }
    passes(&["check", "metrics"], &older);
}
