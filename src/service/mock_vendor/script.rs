//! Answers that are decided beforehand: the script. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::answers::Code;

/// What becomes of the next requests, or of the next that fit. In JSON, fields may be left out.
///
/// One of `code`, `status`, `body` and `fault` says what becomes of them. A request that is answered by the script has
/// arrived and counts in the limit like any other; neither the limit nor the token rules say anything to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scripted {
    /// How many requests: 1 where not said.
    pub times: u32,
    /// Only those with this `tr_id`.
    pub tr_id: Option<String>,
    /// Only those whose path ends like this. Without it the script leaves token requests alone.
    pub path: Option<String>,

    /// One of the vendor's codes, in the vendor's shape, with its usual status and text.
    pub code: Option<String>,
    /// The text of that code, instead of its usual one.
    pub text: Option<String>,
    /// The HTTP status, instead of the usual one of the code; of a raw answer 200 where not said.
    pub status: Option<u16>,
    /// Headers of the answer. An answer without a code has no others.
    pub headers: BTreeMap<String, String>,
    /// The body as it is, of an answer without a code.
    pub body: Option<String>,
    /// The connection ends after this many bytes of the body. Content-Length announces all of it.
    pub cut_after: Option<usize>,
    /// No answer at all.
    pub fault: Option<Fault>,
}

/// How a request ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It is read and never answered.
    Hang,
    /// It is read, and its connection is then reset.
    Reset,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            times: 1,
            tr_id: None,
            path: None,
            code: None,
            text: None,
            status: None,
            headers: BTreeMap::new(),
            body: None,
            cut_after: None,
            fault: None,
        }
    }
}

impl Scripted {
    /// One of the vendor's codes, such as `EGW00215`.
    pub fn code(code: &str) -> Self {
        Self { code: Some(code.to_owned()), ..Self::default() }
    }

    /// A raw answer.
    pub fn raw(status: u16, body: &str) -> Self {
        Self { status: Some(status), body: Some(body.to_owned()), ..Self::default() }
    }

    pub fn fault(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    #[must_use]
    pub fn tr_id(self, tr_id: &str) -> Self {
        Self { tr_id: Some(tr_id.to_owned()), ..self }
    }

    #[must_use]
    pub fn path(self, path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    #[must_use]
    pub fn status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    #[must_use]
    pub fn text(self, text: &str) -> Self {
        Self { text: Some(text.to_owned()), ..self }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn cut_after(self, bytes: usize) -> Self {
        Self { cut_after: Some(bytes), ..self }
    }

    /// One sentence on what makes no sense.
    pub fn check(&self) -> Result<(), String> {
        let answers = self.code.is_some() || self.status.is_some() || self.body.is_some();
        let what = if self.times == 0 {
            "times is 0; leave the entry out instead".to_owned()
        } else if answers == self.fault.is_some() {
            "give one of them a code, a status, a body or a fault, and a fault alone".to_owned()
        } else if self.code.is_some() && self.body.is_some() {
            "a code comes with a body of its own; give code or body".to_owned()
        } else if self.text.is_some() && self.code.is_none() {
            "text is the text of a code; give the code too".to_owned()
        } else if let Some(status) = self.status.filter(|status| !(200..=599).contains(status)) {
            format!("status is {status}; an answer's lies between 200 and 599")
        } else if let Some(code) = self.code.as_deref().filter(|code| self.status.is_none() && Code::of(code).is_none())
        {
            format!("code {code} has no usual status here; give a status too")
        } else if let Some((name, value)) = self.headers.iter().find(|(name, value)| !is_header(name, value)) {
            format!("{name}: {value} is no header")
        } else {
            return Ok(());
        };
        Err(format!("the script cannot be played: {what}"))
    }

    fn fits(&self, request: &Request<'_>) -> bool {
        let path = match &self.path {
            Some(path) => request.path.ends_with(path.as_str()),
            None => !request.for_token,
        };
        path && self.tr_id.as_ref().is_none_or(|tr_id| tr_id == request.tr_id)
    }
}

/// What the script looks at.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub path: &'a str,
    pub tr_id: &'a str,
    pub for_token: bool,
}

/// The first entry that fits, which has one time less afterwards.
pub fn next(script: &mut Vec<Scripted>, request: Request<'_>) -> Option<Scripted> {
    let place = script.iter().position(|entry| entry.fits(&request))?;
    if script[place].times > 1 {
        script[place].times -= 1;
        Some(script[place].clone())
    } else {
        Some(script.remove(place))
    }
}

fn is_header(name: &str, value: &str) -> bool {
    hyper::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
        && hyper::header::HeaderValue::from_str(value).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Request<'_> = Request { path: "/a/inquire-price", tr_id: "FHKST01010100", for_token: false };
    const TOKEN: Request<'_> = Request { path: "/oauth2/tokenP", tr_id: "", for_token: true };

    #[test]
    fn entries_answer_in_order_and_as_often_as_they_say() {
        let mut script = vec![Scripted::code("EGW00201").times(2), Scripted::code("EGW00215")];
        let codes: Vec<_> = std::iter::from_fn(|| next(&mut script, PRICE)).filter_map(|entry| entry.code).collect();
        assert_eq!(codes, ["EGW00201", "EGW00201", "EGW00215"]);
        assert!(script.is_empty());
    }

    #[test]
    fn an_entry_waits_for_a_request_that_fits() {
        let mut script = vec![
            Scripted::code("EGW00133").path("/oauth2/tokenP"),
            Scripted::code("EGW00301").tr_id("TTTC0012U"),
            Scripted::code("EGW00300"),
        ];
        assert_eq!(next(&mut script, PRICE).and_then(|entry| entry.code).as_deref(), Some("EGW00300"));
        assert_eq!(next(&mut script, PRICE), None);
        assert_eq!(next(&mut script, TOKEN).and_then(|entry| entry.code).as_deref(), Some("EGW00133"));
        let order = Request { tr_id: "TTTC0012U", ..PRICE };
        assert_eq!(next(&mut script, order).and_then(|entry| entry.code).as_deref(), Some("EGW00301"));
    }

    #[test]
    fn without_a_path_token_requests_are_left_alone() {
        assert_eq!(next(&mut vec![Scripted::code("EGW00201")], TOKEN), None);
    }

    #[test]
    fn an_entry_that_makes_no_sense_is_refused_with_what_is_wrong() {
        for (entry, named) in [
            (Scripted::default(), "give one of them"),
            (Scripted { status: Some(500), ..Scripted::fault(Fault::Hang) }, "a fault alone"),
            (Scripted::code("EGW00201").times(0), "times is 0"),
            (Scripted { body: Some(String::new()), ..Scripted::code("EGW00201") }, "code or body"),
            (Scripted::raw(502, "").text("x"), "text of a code"),
            (Scripted::raw(99, ""), "status is 99"),
            (Scripted::code("XYZ"), "code XYZ has no usual status"),
            (Scripted::raw(200, "").header("a b", "c"), "a b: c is no header"),
        ] {
            let sentence = entry.check().unwrap_err();
            assert!(sentence.contains(named), "{entry:?}: {sentence}");
        }
        assert_eq!(Scripted::code("XYZ").status(500).check(), Ok(()));
    }
}
