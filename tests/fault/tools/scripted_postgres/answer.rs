//! Rows, column by column: the answer of `call_budget_acquire`, and how to spoil it.

use std::time::Duration;

use super::{Query, wire};

const INTERVAL_US: i64 = 55_556;
const LOOKAHEAD_US: i64 = 60_000;
const SEND_WINDOW_US: i64 = 50_000;
const NAP_US: i64 = 5_000_000;

/// A value, with its type.
#[derive(Clone, Debug)]
pub enum Value {
    Int4(i32),
    Int8(i64),
    Text(String),
    Int8Array(Vec<i64>),
    /// A type's OID and the value's binary form, whatever it is.
    Raw(i32, Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub(super) oid: i32,
    pub(super) value: Option<Vec<u8>>,
}

/// One row of an answer.
#[derive(Clone, Debug, Default)]
pub struct Row(Vec<Column>);

impl Row {
    /// What a store that is well says: the first caller's slot is `wait` from now, the others' follow at 18 a second as far
    /// as the lookahead of 60 ms goes, and the rest gets an appointment. Nothing is remembered: the next asker gets the same.
    pub fn grant(query: &Query, wait: Duration) -> Self {
        let costs = query.ask.as_ref().map_or(&[][..], |ask| &ask.costs);
        let mut next = i64::try_from(wait.as_micros()).expect("a short wait");
        let mut waits = Vec::new();
        for cost in costs {
            if next > LOOKAHEAD_US {
                break;
            }
            waits.push(next);
            next += i64::from(*cost) * INTERVAL_US;
        }
        let retry = (waits.len() < costs.len()).then(|| next.min(NAP_US));
        Self::answer(query, &waits).set_or_null("retry_us", retry.map(Value::Int8))
    }

    /// What a store says to a budget that it does not know, `''` among them.
    pub fn unknown_budget(query: &Query) -> Self {
        let settings = ["interval_us", "lookahead_us", "send_window_us", "max_cost", "version", "fences", "timeline"];
        let row = Self::answer(query, &[]).set("reason", Value::Text("unknown_budget".into()));
        settings.into_iter().fold(row, |row, name| row.null(name))
    }

    /// The column with this value, and with the value's type. One that was not there is put at the end.
    #[must_use]
    pub fn set(mut self, name: &str, value: Value) -> Self {
        let (oid, value) = value.encoded();
        match self.0.iter_mut().find(|column| column.name == name) {
            Some(column) => (column.oid, column.value) = (oid, Some(value)),
            None => self.0.push(Column { name: name.into(), oid, value: Some(value) }),
        }
        self
    }

    /// The column with NULL, its type as it was.
    #[must_use]
    pub fn null(mut self, name: &str) -> Self {
        let column = self.0.iter_mut().find(|column| column.name == name);
        column.unwrap_or_else(|| panic!("no column {name}")).value = None;
        self
    }

    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|column| column.name != name);
        self
    }

    /// The row as one column, as `record_send` makes it.
    #[must_use]
    pub fn in_one_piece(&self) -> Self {
        let value = Some(wire::record(&self.0));
        Self(vec![Column { name: "record_send".into(), oid: wire::BYTEA, value }])
    }

    pub fn columns(&self) -> &[Column] {
        &self.0
    }

    fn set_or_null(self, name: &str, value: Option<Value>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self.null(name),
        }
    }

    fn answer(query: &Query, waits: &[i64]) -> Self {
        let nonce = query.ask.as_ref().map_or(0, |ask| ask.nonce);
        Self::default()
            .set("contract", Value::Int4(1))
            .set("nonce", Value::Int8(nonce))
            .set("waits_us", Value::Int8Array(waits.to_vec()))
            .set("retry_us", Value::Int8(0))
            .null("retry_us")
            .set("reason", Value::Text(String::new()))
            .null("reason")
            .set("interval_us", Value::Int8(INTERVAL_US))
            .set("lookahead_us", Value::Int8(LOOKAHEAD_US))
            .set("send_window_us", Value::Int8(SEND_WINDOW_US))
            .set("max_cost", Value::Int4(1000))
            .set("version", Value::Int8(1))
            .set("fences", Value::Int8(1))
            .set("timeline", Value::Int8(1))
            .set("store_us", Value::Int8(query.store_us))
    }
}

impl Value {
    fn encoded(self) -> (i32, Vec<u8>) {
        match self {
            Self::Int4(value) => (wire::INT4, value.to_be_bytes().to_vec()),
            Self::Int8(value) => (wire::INT8, value.to_be_bytes().to_vec()),
            Self::Text(value) => (wire::TEXT, value.into_bytes()),
            Self::Int8Array(values) => (wire::INT8_ARRAY, wire::int8_array(&values)),
            Self::Raw(oid, bytes) => (oid, bytes),
        }
    }
}
