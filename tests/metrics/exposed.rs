//! The text itself: what it holds, and that docs/metrics.md lists it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use call_budget::service::metrics::{CONTENT_TYPE, HttpFigures, ServiceFigures, text};
use call_budget::{CallBudget, Code, Settings};

use crate::sample;

/// One line of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// A text that was read: the type of each family, and its series.
pub struct Exposed {
    pub types: BTreeMap<String, String>,
    pub series: Vec<Series>,
}

impl Exposed {
    /// Panics where the text is not what a reader of OpenMetrics takes.
    pub fn read(text: &str) -> Self {
        let (mut types, mut series) = (BTreeMap::new(), Vec::new());
        let body = text.strip_suffix("# EOF\n").expect("the end is marked");
        for line in body.lines() {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                let (name, kind) = head.split_once(' ').expect("a name and a type");
                assert_eq!(types.insert(name.to_owned(), kind.to_owned()), None, "{name} is there twice");
            } else if !line.starts_with("# HELP ") {
                series.push(Series::read(line));
            }
        }
        let mut seen = BTreeSet::new();
        for Series { name, labels, .. } in &series {
            assert!(seen.insert((name, labels)), "{name} {labels:?} is there twice");
        }
        Self { types, series }
    }

    /// The family of a series: its name in a head, without what the type puts behind it.
    pub fn family<'a>(&'a self, series: &'a str) -> Option<(&'a str, &'a str)> {
        let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
        suffixes.into_iter().filter_map(|suffix| series.strip_suffix(suffix)).find_map(|name| {
            let kind = self.types.get(name)?;
            (kind != "counter" || series.ends_with("_total")).then_some((name, kind.as_str()))
        })
    }

    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let found = self.series.iter().find(|series| series.name == name && series.labels == wanted);
        found.unwrap_or_else(|| panic!("no {name} {labels:?}")).value
    }

    fn names(&self) -> BTreeSet<&str> {
        self.series.iter().map(|series| series.name.as_str()).collect()
    }
}

impl Series {
    fn read(line: &str) -> Self {
        let (head, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let (name, mut rest) = head.split_once('{').unwrap_or((head, ""));
        let mut labels = BTreeMap::new();
        while let Some((label, quoted)) = rest.split_once("=\"") {
            let mut escaped = false;
            let end = quoted.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let end = end.unwrap_or_else(|| panic!("a label without an end: {line}"));
            labels.insert(label.trim_start_matches(',').to_owned(), plain(&quoted[..end]));
            rest = &quoted[end + 1..];
        }
        Self { name: name.to_owned(), labels, value: value.parse().unwrap_or_else(|_| panic!("no number: {line}")) }
    }
}

/// Without the backslashes of the text.
fn plain(escaped: &str) -> String {
    let mut characters = escaped.chars();
    let mut plain = String::new();
    while let Some(c) = characters.next() {
        match (c, if c == '\\' { characters.next() } else { None }) {
            (_, Some('n')) => plain.push('\n'),
            (_, Some(escaped)) => plain.push(escaped),
            (c, None) => plain.push(c),
        }
    }
    plain
}

#[tokio::test]
async fn the_text_says_what_the_figures_say() {
    let exposed = Exposed::read(&sample::whole().await);
    let class = [("budget", "kis-real"), ("class", "minute")];
    assert_eq!(exposed.value("call_budget_grants_total", &class), 2.0);
    let sends = |surface| exposed.value("call_budget_sends_total", &[class[0], class[1], ("surface", surface)]);
    assert_eq!((sends(""), sends("kis/real/quote")), (1.0, 1.0));
    let code = ("code", Code::UnknownBudget.as_str());
    assert_eq!(exposed.value("call_budget_refusals_total", &[("budget", ""), ("class", ""), code]), 1.0);
    assert_eq!(exposed.value("call_budget_wait_seconds_count", &class), 2.0);
    let infinite = [class[0], class[1], ("le", "+Inf")];
    assert_eq!(exposed.value("call_budget_wait_seconds_bucket", &infinite), 2.0);
    let throttled = [("surface", "kis/real/quote"), ("code", "EGW00201")];
    assert_eq!(exposed.value("call_budget_throttled_total", &throttled), 1.0);
    let open = [("breaker", "kis/real/quote"), ("state", "open")];
    for name in ["call_budget_breaker_state", "call_budget_breaker_transitions_total", "call_budget_fleet_breakers"] {
        assert_eq!(exposed.value(name, &open), 1.0, "{name}");
    }
    let fleet = [("budget", "kis-real"), ("class", "order")];
    assert_eq!(exposed.value("call_budget_class_floor_ratio", &fleet), 0.25);
    assert!(exposed.value("call_budget_class_granted_total", &fleet) >= 1.0);
    assert!((exposed.value("call_budget_interval_seconds", &[("budget", "kis-real")]) - 0.061_174).abs() < 1e-9);
    assert_eq!(exposed.value("call_budget_status_age_seconds", &[]), 1.5);
    let refused = [("route", "/v1/acquire"), ("status", "429")];
    assert_eq!(exposed.value("call_budget_http_requests_total", &refused), 1.0);
    assert!((exposed.value("call_budget_http_request_seconds_sum", &[("route", "/v1/acquire")]) - 0.62).abs() < 1e-9);
    assert!(CONTENT_TYPE.starts_with("application/openmetrics-text; version=1.0.0"));
}

#[tokio::test]
async fn metrics_md_lists_every_metric_with_its_type_and_labels() {
    let exposed = Exposed::read(&sample::whole().await);
    let mut told = BTreeMap::new();
    for series in &exposed.series {
        let (family, kind) = exposed.family(&series.name).unwrap_or_else(|| panic!("no head: {}", series.name));
        let name = if kind == "counter" { format!("{family}_total") } else { family.to_owned() };
        let labels: BTreeSet<_> = series.labels.keys().filter(|label| *label != "le").cloned().collect();
        let known = told.entry(name).or_insert_with(|| (kind.to_owned(), labels.clone()));
        assert_eq!(known.1, labels, "{}: the same labels in each line", series.name);
    }
    let page = include_str!("../../docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `call_budget_")).map(|line| line.split(" | "));
    let mut listed = BTreeMap::new();
    for mut row in rows {
        let mut cell = || row.next().unwrap_or_default();
        let (name, kind, labels) = (cell().trim_start_matches("| ").trim_matches('`'), cell(), cell());
        // The log's events stand further down.
        if ["counter", "gauge", "histogram"].contains(&kind) {
            let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
            listed.insert(name.to_owned(), (kind.to_owned(), labels));
        }
    }
    assert_eq!(told, listed);
}

#[tokio::test]
async fn without_a_status_there_is_no_figure_of_the_fleet_and_a_switch_that_is_off_asks_no_store() {
    let budgets = CallBudget::new(&Settings::default()).unwrap();
    drop(budgets.acquire("kis-real", "order").await.unwrap());
    let exposed = Exposed::read(&text(&budgets.figures(), &ServiceFigures::default(), None));
    let class = [("budget", "kis-real"), ("class", "order")];
    assert_eq!(exposed.value("call_budget_lapsed_total", &class), 1.0);
    assert_eq!(exposed.value("call_budget_enabled", &[]), 0.0);
    for absent in ["call_budget_store_reachable", "call_budget_status_age_seconds", "call_budget_paused"] {
        assert!(!exposed.names().contains(absent), "{absent}");
    }
    let out = ServiceFigures { store_reachable: Some(false), ..ServiceFigures::default() };
    assert_eq!(Exposed::read(&text(&budgets.figures(), &out, None)).value("call_budget_store_reachable", &[]), 0.0);
}

#[tokio::test]
async fn a_name_that_a_caller_made_up_stays_one_label_of_one_line() {
    let mut settings = Settings::default();
    settings.polite_interval = Duration::ZERO;
    let budgets = CallBudget::new(&settings).unwrap();
    let odd = "a\"} 1\\n\\ # EOF";
    drop(budgets.acquire(odd, "order").await.unwrap());
    drop(budgets.acquire("a\nb", "order").await.unwrap());
    drop(budgets.acquire(&"x".repeat(100_000), "order").await.unwrap());
    let written = text(&budgets.figures(), &ServiceFigures::default(), None);
    let exposed = Exposed::read(&written);
    for budget in ["a\u{fffd}b", "", odd] {
        let labels = [("budget", budget), ("class", "order")];
        let labels = if budget.is_empty() { [labels[0], ("class", "")] } else { labels };
        assert_eq!(exposed.value("call_budget_permits_total", &labels), 1.0, "{budget:?}");
    }
    assert!(written.len() < 30_000, "{}", written.len());
}

#[tokio::test]
async fn requests_are_counted_by_route_and_status_by_many_at_once() {
    let http = std::sync::Arc::new(HttpFigures::default());
    std::thread::scope(|scope| {
        for status in [200, 200, 503, 503] {
            let http = &http;
            scope.spawn(move || (0..1_000).for_each(|_| http.record("/v1/acquire", status, Duration::from_millis(2))));
        }
    });
    let service = ServiceFigures { http: http.read(), ..ServiceFigures::default() };
    let budgets = CallBudget::new(&Settings::default()).unwrap();
    let exposed = Exposed::read(&text(&budgets.figures(), &service, None));
    for status in ["200", "503"] {
        let labels = [("route", "/v1/acquire"), ("status", status)];
        assert_eq!(exposed.value("call_budget_http_requests_total", &labels), 2_000.0);
    }
    let seconds = exposed.value("call_budget_http_request_seconds_sum", &[("route", "/v1/acquire")]);
    assert!((seconds - 8.0).abs() < 1e-6, "{seconds}");
}
