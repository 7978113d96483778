//! What a table wants to know of a body: whether it is what it should be, the vendor's code, and the vendor's words.
//!
//! A body is read once from end to end, which proves that it is whole, and nothing but the fields that were asked for is
//! kept of it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// How bodies are read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    /// A body that is no JSON is not what it should be.
    pub(super) json: bool,
    /// Where the code is, by field and field in field; the first that holds one counts.
    pub(super) code: Vec<Vec<String>>,
    /// Where the words are.
    pub(super) text: Vec<Vec<String>>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Found<'a> {
    pub(super) well_formed: bool,
    pub(super) code: Option<Cow<'a, str>>,
    pub(super) text: Option<Cow<'a, str>>,
}

impl Reading {
    pub(super) fn of<'a>(&self, body: &'a [u8]) -> Found<'a> {
        if !self.json && self.code.is_empty() && self.text.is_empty() {
            return Found { well_formed: true, ..Found::default() };
        }
        let paths: Vec<&[String]> = self.code.iter().chain(&self.text).map(Vec::as_slice).collect();
        let mut values = vec![None; paths.len()];
        let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
        let mut json = serde_json::Deserializer::from_slice(body);
        let open = paths.into_iter().enumerate().collect();
        let read = Field { open, values: &mut values }.deserialize(&mut json).and_then(|()| json.end());
        if read.is_err() {
            // Half of a body is no evidence: a code in it may belong to something that was cut off.
            return Found { well_formed: !self.json, ..Found::default() };
        }
        let texts = values.split_off(self.code.len());
        Found {
            well_formed: true,
            code: values.into_iter().flatten().find(|code| is_code(code)),
            text: texts.into_iter().flatten().find(|text| !text.is_empty()),
        }
    }
}

/// A code is counted and logged: one that looks like a sentence, or is as long as secrets are, is none.
pub(super) fn is_code(text: &str) -> bool {
    const LONGEST: usize = 32;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(plain)
}

/// One value of the body, and which of the paths lead into it: what is left of each, with its place in `values`.
struct Field<'p, 'v, 'a> {
    open: Vec<(usize, &'p [String])>,
    values: &'v mut Vec<Option<Cow<'a, str>>>,
}

impl<'a> Field<'_, '_, 'a> {
    fn keep(self, value: Cow<'a, str>) {
        for (place, _) in self.open.into_iter().filter(|(_, rest)| rest.is_empty()) {
            self.values[place] = Some(value.clone());
        }
    }
}

impl<'a> DeserializeSeed<'a> for Field<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.open.is_empty() {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'p, 'a> Visitor<'a> for Field<'p, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'a, str>>()? {
            let deeper = |(place, path): &(usize, &'p [String])| within(path, &name).map(|rest| (*place, rest));
            map.next_value_seed(Field { open: self.open.iter().filter_map(deeper).collect(), values: self.values })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<(), E> {
        self.keep(Cow::Borrowed(text));
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.keep(Cow::Owned(text.to_owned()));
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.keep(Cow::Owned(number.to_string()));
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.keep(Cow::Owned(number.to_string()));
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// What is left of the path inside the field of this name.
fn within<'p>(path: &'p [String], name: &str) -> Option<&'p [String]> {
    path.split_first().and_then(|(first, rest)| (first == name).then_some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(json: bool, code: &[&str], text: &[&str]) -> Reading {
        let paths = |list: &[&str]| list.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect();
        Reading { json, code: paths(code), text: paths(text) }
    }

    fn code_and_text<'a>(reading: &Reading, body: &'a str) -> (Option<Cow<'a, str>>, Option<Cow<'a, str>>) {
        let found = reading.of(body.as_bytes());
        assert!(found.well_formed);
        (found.code, found.text)
    }

    #[test]
    fn fields_in_fields_are_found_and_the_first_path_that_holds_one_counts() {
        let reading = reading(true, &["error.status", "error.code", "error"], &["error.message", "message"]);
        let read = |body| code_and_text(&reading, body);
        assert_eq!(
            read(r#"{"error":{"code":429,"status":"SPENT","message":"no"}}"#),
            (Some("SPENT".into()), Some("no".into()))
        );
        assert_eq!(
            read(r#"{"error":{"code":-1003},"message":"too many"}"#),
            (Some("-1003".into()), Some("too many".into()))
        );
        assert_eq!(read(r#"{"error":"invalid_grant"}"#), (Some("invalid_grant".into()), None));
        assert_eq!(read(r#"{"error":{"code":null,"status":""},"message":null}"#), (None, None));
        assert_eq!(read(r#"[{"error":"inside a list"}]"#), (None, None));
        assert_eq!(read("3"), (None, None));
    }

    #[test]
    fn korean_is_read_as_it_stands_and_as_escapes() {
        let reading = reading(true, &["msg_cd"], &["msg1"]);
        let plain = code_and_text(&reading, "{\"msg_cd\":\"EGW00201\",\"msg1\":\"원장\"}");
        assert_eq!(plain, code_and_text(&reading, "\u{feff}{\"msg_cd\":\"EGW00201\",\"msg1\":\"\\uc6d0\\uc7a5\"}"));
        assert_eq!(plain.1.as_deref(), Some("원장"));
    }

    #[test]
    fn what_is_cut_off_or_no_json_is_not_well_formed_and_gives_no_code() {
        let reading = reading(true, &["code"], &[]);
        for body in ["", "{\"code\":\"A\"", "{\"code\":\"A\"}}", "<html>down</html>", "{\"code\":\"A\"} {}"] {
            assert_eq!(reading.of(body.as_bytes()), Found::default(), "{body}");
        }
        assert_eq!(reading.of(b"{\"code\":\"\xff\"}"), Found::default());
    }

    #[test]
    fn any_body_is_well_formed_where_the_table_says_so() {
        let reading = reading(false, &["code"], &[]);
        assert_eq!(reading.of(b"a,b\n1,2"), Found { well_formed: true, ..Found::default() });
        assert_eq!(reading.of(b"{\"code\":\"A\"}").code.as_deref(), Some("A"));
    }

    #[test]
    fn a_code_that_could_be_a_sentence_or_a_secret_is_none() {
        let reading = reading(true, &["code", "other"], &[]);
        assert_eq!(code_and_text(&reading, r#"{"code":"your key is abc","other":"B"}"#).0.as_deref(), Some("B"));
        assert_eq!(code_and_text(&reading, &format!(r#"{{"code":"{}"}}"#, "x".repeat(33))).0, None);
        assert!(code_and_text(&reading, &format!(r#"{{"code":"{}"}}"#, "x".repeat(32))).0.is_some());
    }

    #[test]
    fn a_body_as_deep_as_an_attack_is_refused_and_ends_nothing() {
        let deep = "{\"code\":".repeat(100_000);
        let reading = reading(true, &["code.code.code"], &[]);
        assert!(!reading.of(deep.as_bytes()).well_formed);
        assert!(!reading.of("[".repeat(1_000_000).as_bytes()).well_formed);
    }
}
