//! What a breaker tells, kept for a test to look at.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// One event: its level and its fields as text, the name among them as `message`.
#[derive(Clone, Debug)]
pub struct Line {
    pub level: Level,
    pub fields: BTreeMap<&'static str, String>,
}

impl Line {
    pub fn name(&self) -> &str {
        &self.fields["message"]
    }

    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

/// Listens on this thread until it is dropped.
pub struct Told {
    lines: Arc<Mutex<Vec<Line>>>,
    _listening: DefaultGuard,
}

impl Told {
    pub fn listen() -> Self {
        Self::listen_and(|_| ())
    }

    /// `also` is called with each event, and may misbehave.
    pub fn listen_and(also: impl Fn(&Line) + Send + Sync + 'static) -> Self {
        let lines = Arc::<Mutex<Vec<Line>>>::default();
        let listener = Listener { lines: Arc::clone(&lines), also: Box::new(also) };
        Self { lines, _listening: tracing::subscriber::set_default(listener) }
    }

    /// The events of the breaker and of calls so far.
    pub fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap().clone()
    }

    pub fn names(&self) -> Vec<String> {
        self.lines().iter().map(|line| line.name().to_owned()).collect()
    }

    pub fn all(&self, name: &str) -> Vec<Line> {
        self.lines().into_iter().filter(|line| line.name() == name).collect()
    }
}

struct Listener {
    lines: Arc<Mutex<Vec<Line>>>,
    also: Box<dyn Fn(&Line) + Send + Sync>,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("call_budget")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line { level: *event.metadata().level(), fields: BTreeMap::new() };
        event.record(&mut Fields(&mut line.fields));
        let ours = ["circuit_", "call_budget_throttled", "call_budget_pushback"];
        if ours.iter().any(|ours| line.name().starts_with(ours)) {
            self.lines.lock().unwrap().push(line.clone());
            (self.also)(&line);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}
