//! Fields by name, read into what they are to be. What is wrong with one is told by its name, and no value is ever shown: it
//! may be a secret in the wrong place.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::config::nearest::nearest;

/// More than anything here takes.
const MOST: usize = 32;

/// In the order in which they stand there.
pub(super) struct Fields(Vec<(String, Value)>);

impl Fields {
    /// Those of a JSON object.
    ///
    /// # Errors
    /// It is none: a sentence.
    pub fn of_json(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| {
            // What the parser says of data quotes it; of syntax it tells the place.
            if error.is_data() { "it must be a JSON object".to_owned() } else { format!("it is not JSON: {error}") }
        })
    }

    /// What they are to be.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, String> {
        // Each is compared with all others.
        if self.0.len() > MOST {
            return Err(format!("it has {} fields: nothing here takes more than {MOST}", self.0.len()));
        }
        for (at, (name, _)) in self.0.iter().enumerate() {
            if self.0[..at].iter().any(|(before, _)| before == name) {
                return Err(format!("{} is said twice", shown(name)));
            }
        }
        let current = RefCell::new(String::new());
        let fields = self.0.into_iter().inspect(|(name, _)| name.clone_into(&mut current.borrow_mut()));
        let fields = fields.map(|(name, value)| (name, whole(value)));
        let read = T::deserialize(MapDeserializer::<_, serde_json::Error>::new(fields));
        read.map_err(|error| wrong(&current.borrow(), &error.to_string()))
    }
}

impl From<Map<String, Value>> for Fields {
    fn from(map: Map<String, Value>) -> Self {
        Self(map.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A whole number is one, however it is written: `3.0` is 3.
fn whole(value: Value) -> Value {
    const MOST: f64 = (1_u64 << 53) as f64;
    match value.as_f64() {
        Some(number) if value.is_f64() && number.fract() == 0.0 && (0.0..=MOST).contains(&number) => {
            Value::from(number as u64)
        }
        _ => value,
    }
}

fn wrong(name: &str, error: &str) -> String {
    if error.starts_with("missing field") {
        return error.replace('`', "\"");
    }
    let (what, expected) = error.rsplit_once(", expected ").unwrap_or((error, ""));
    if error.starts_with("unknown field") {
        let known: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
        let way_out = match nearest(name, known.iter().copied()) {
            Some(nearest) => format!("did you mean \"{nearest}\"?"),
            None => format!("known are {}", known.join(", ")),
        };
        return format!("unknown field {}: {way_out}", shown(name));
    }
    match expected {
        // A sentence of ours.
        "" => format!("{}: {what}", shown(name)),
        "u16" | "u32" | "u64" | "usize" => format!("{} must be a whole number of 0 or more", shown(name)),
        "f64" => format!("{} must be a number", shown(name)),
        expected => format!("{} must be {}", shown(name), expected.replace('`', "\"")),
    }
}

/// Names are somebody's text as well.
fn shown(name: &str) -> String {
    const LONGEST: usize = 40;
    let cut: String = name.chars().take(LONGEST).collect();
    if cut.len() < name.len() { format!("{cut:?}...") } else { format!("{cut:?}") }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        budget: String,
        #[serde(default)]
        cost: u32,
        how: Option<How>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum How {
        TimedOut,
        NotSent,
    }

    fn read(text: &str) -> Result<Order, String> {
        Fields::of_json(text.as_bytes())?.read()
    }

    #[test]
    fn what_is_right_is_read() {
        let order = read(r#"{"budget": "a", "cost": 3, "how": "not_sent"}"#).unwrap();
        assert_eq!(order, Order { budget: "a".into(), cost: 3, how: Some(How::NotSent) });
        assert_eq!(read(r#"{"budget": "a", "how": null}"#).unwrap().how, None);
        assert_eq!(read(r#"{"budget": "a", "cost": 3.0}"#).unwrap().cost, 3);
        assert_eq!(read(r#"{"budget": "a", "cost": 3e2}"#).unwrap().cost, 300);
    }

    #[test]
    fn what_is_wrong_is_told_by_its_name_and_no_value_is_shown() {
        let secret = "not-a-real-secret";
        for (text, names) in [
            (r#"{"budget": "a", "cost": "not-a-real-secret"}"#, r#""cost" must be a whole number"#),
            (r#"{"budget": "a", "cost": -1}"#, r#""cost" must be a whole number"#),
            (r#"{"budget": "a", "cost": 1.5}"#, r#""cost" must be a whole number"#),
            (r#"{"budget": "a", "cost": ["not-a-real-secret"]}"#, r#""cost" must be"#),
            (r#"{"budget": {"key": "not-a-real-secret"}}"#, r#""budget" must be a string"#),
            (r#"{"budget": "a", "how": "not-a-real-secret"}"#, r#""how" must be"#),
            (r#"{"budget": "a", "how": "not-a-real-secret, expected not-a-real-secret"}"#, r#""how" must be"#),
            (r#"{"budget": "a", "cots": "not-a-real-secret"}"#, r#"unknown field "cots": did you mean "cost"?"#),
            (r#"{"budget": "a", "zzz": 1}"#, "known are budget, cost, how"),
            (r#"{"cost": 1}"#, r#"missing field "budget""#),
            (r#"{"budget": "a", "cost": 1, "cost": 2}"#, r#""cost" is said twice"#),
            (r#"["not-a-real-secret", 1, null]"#, "a JSON object"),
            (r#""not-a-real-secret""#, "a JSON object"),
            (r#"{"budget": "not-a-real-secret"#, "not JSON"),
            (r#"{"budget": not-a-real-secret}"#, "not JSON"),
            ("", "not JSON"),
        ] {
            let sentence = read(text).unwrap_err();
            assert!(sentence.contains(names) && !sentence.contains(secret), "{text}: {sentence}");
        }
        let long = format!(r#"{{"{}": 1}}"#, "x".repeat(5000));
        assert!(read(&long).unwrap_err().len() < 200);
        let many: Vec<_> = (0..10_000).map(|at| format!("\"n{at}\": 1")).collect();
        let sentence = read(&format!("{{{}}}", many.join(", "))).unwrap_err();
        assert!(sentence.contains("10000 fields"), "{sentence}");
        let deep = format!(r#"{{"budget": {}}}"#, "[".repeat(50_000));
        assert!(read(&deep).unwrap_err().contains("not JSON"));
    }
}
