//! Every row of every table: verdict, hold, and that nothing else was counted.

mod counted;
mod http;
mod kis;
mod writing;

use std::collections::BTreeSet;

use super::*;
use crate::policy::verdict::{Action, Verdict};

/// Wed, 21 Oct 2015 07:28:00 GMT.
pub(super) const NOW: Wall = Wall::from_unix_us(1_445_412_480_000_000);

/// One answer, and what a table has to make of it.
#[derive(Clone, Copy)]
struct Case {
    rule: &'static str,
    status: u16,
    body: &'static str,
    retry_after: Option<&'static str>,
    verdict: Verdict,
    action: Action,
    code: Option<&'static str>,
    throttled: bool,
    outcome_unknown: bool,
    never_again: bool,
}

impl Case {
    const fn new(rule: &'static str, status: u16, body: &'static str, verdict: Verdict, action: Action) -> Self {
        let (retry_after, code) = (None, None);
        let (throttled, outcome_unknown, never_again) = (false, false, false);
        Self { rule, status, body, retry_after, verdict, action, code, throttled, outcome_unknown, never_again }
    }

    const fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    const fn retry_after(self, text: &'static str) -> Self {
        Self { retry_after: Some(text), ..self }
    }

    const fn throttled(self) -> Self {
        Self { throttled: true, ..self }
    }

    const fn outcome_unknown(self) -> Self {
        Self { outcome_unknown: true, ..self }
    }

    const fn never_again(self) -> Self {
        Self { never_again: true, ..self.outcome_unknown() }
    }

    fn finding(&self, vendor: &Vendor) -> Finding {
        classify(vendor, self.status, self.body, self.retry_after)
    }
}

fn classify(vendor: &Vendor, status: u16, body: &str, retry_after: Option<&str>) -> Finding {
    let header = |name: &str| retry_after.filter(|_| name.eq_ignore_ascii_case("Retry-After"));
    vendor.classify(&Ended::Answer { status, header: &header, body: body.as_bytes() }, NOW)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Each case is judged as it says, and each rule of the table, with each code that it lists, is hit by a case that names it.
#[track_caller]
fn every_row_holds(table: &str, cases: &[Case]) {
    let vendor = Vendor::named(table).expect("a table that comes along");
    let rules: BTreeSet<&str> = vendor.table.rules().iter().map(|rule| &*rule.name).collect();
    let tried: BTreeSet<&str> = cases.iter().map(|case| case.rule).collect();
    assert_eq!(rules, tried, "{table}: rules, and rules that a case is about");
    for rule in vendor.table.rules() {
        for code in &rule.when.codes {
            let hit = |case: &&Case| case.rule == &*rule.name && case.code.is_some_and(|seen| lists(code, seen));
            assert!(cases.iter().any(|case| hit(&case)), "{table}, rule \"{}\": no case has {code}", rule.name);
        }
    }
    for case in cases {
        let about = format!("{table}, rule \"{}\": {} {}", case.rule, case.status, case.body);
        let found = case.finding(&vendor);
        let rule = vendor.table.rules().iter().find(|rule| &*rule.name == case.rule).expect("checked above");
        assert_eq!(found.meaning, rule.meaning, "another rule decides: {about}");
        assert_eq!((found.verdict, found.action), (case.verdict, case.action), "{about}");
        assert_eq!(found.code.as_deref(), case.code, "{about}");
        assert_eq!(found.throttled, case.throttled, "throttled: {about}");
        assert_eq!(found.outcome_unknown, case.outcome_unknown, "outcome_unknown: {about}");
        assert_eq!(found.never_again, case.never_again, "never_again: {about}");
        assert!(!found.no_data, "{about}");
    }
}

fn lists(code: &str, seen: &str) -> bool {
    code.strip_suffix('*').map_or(code == seen, |beginning| seen.starts_with(beginning))
}

/// Every case of every table.
fn every_case() -> impl Iterator<Item = (&'static str, Case)> {
    let tables =
        [("kis", kis::CASES.to_vec()), ("http-shared-key", http::shared_key()), ("http-own-keys", http::own_keys())];
    tables.into_iter().flat_map(|(table, cases)| cases.into_iter().map(move |case| (table, case)))
}

#[test]
fn the_tables_that_come_along_can_be_read() {
    assert_eq!(Vendor::names().collect::<Vec<_>>(), ["kis", "http-shared-key", "http-own-keys"]);
    for (name, toml) in TABLES {
        assert_eq!(Vendor::parse(toml).map(Some), Ok(Vendor::named(name)), "{name}");
    }
    assert_eq!(Vendor::named("KIS"), None);
}

#[test]
fn no_answer_is_bad_and_its_outcome_unknown_unless_it_never_left() {
    for name in Vendor::names() {
        let vendor = Vendor::named(name).expect("known");
        for (how, unknown) in [(Broken::NotConnected, false), (Broken::Interrupted, true), (Broken::TimedOut, true)] {
            let found = vendor.classify(&Ended::Broken(how), NOW);
            assert_eq!((found.verdict, found.action), (Verdict::Bad, Action::Nothing), "{name} {how:?}");
            assert_eq!((found.outcome_unknown, found.throttled), (unknown, false), "{name} {how:?}");
        }
    }
}

#[test]
fn a_401_says_nothing_of_the_vendor_whatever_the_table() {
    for name in Vendor::names() {
        let vendor = Vendor::named(name).expect("known");
        for body in ["", "<html>", "{}", r#"{"error":{"type":"authentication_error","message":"invalid x-api-key"}}"#] {
            let found = classify(&vendor, 401, body, None);
            assert_eq!((found.verdict, found.action), (Verdict::None, Action::RefreshToken), "{name} {body}");
            assert_eq!(found.without_refresh().action, Action::HoldCredentialUntilChanged, "{name} {body}");
        }
    }
}

#[test]
fn no_message_shows_a_word_of_the_body() {
    const SECRET: &str = "sk-very-secret-0123456789";
    let bodies = [
        format!(r#"{{"error":{{"code":"x {SECRET}","message":"key {SECRET} has no credit, see billing"}}}}"#),
        format!(r#"{{"rt_cd":"1","msg_cd":"EGW00103","msg1":"{SECRET}"}}"#),
        format!(r#"{{"error":"{SECRET}"}}"#),
        r#"{"error":"sk-live-abc"}"#.to_owned(),
        format!(r#"{{"code":"{SECRET}{SECRET}","msg_cd":"{SECRET}{SECRET}"}}"#),
        SECRET.to_owned(),
    ];
    for vendor in Vendor::names().filter_map(Vendor::named) {
        for status in [200, 204, 301, 400, 401, 402, 403, 404, 429, 500, 503, 600] {
            for body in &bodies {
                let found = classify(&vendor, status, body, None);
                let told = format!("{found:?}");
                assert!(!told.contains(SECRET) && !told.contains("sk-live-abc"), "{status} {body}: {told}");
            }
        }
    }
}

#[test]
fn a_message_about_money_never_says_that_waiting_helps() {
    for (name, toml) in TABLES {
        let vendor = Vendor::parse(toml).expect("read by another test");
        let spent = [
            classify(&vendor, 402, "{}", None),
            classify(&vendor, 400, r#"{"msg1":"credit","message":"Credit"}"#, None),
        ];
        for found in spent {
            assert_eq!((found.verdict, found.action), (Verdict::None, Action::HoldCredential(secs(3600))), "{name}");
            assert!(found.meaning.ends_with("Waiting alone does not help."), "{name}: {}", found.meaning);
        }
    }
}

#[test]
fn a_retry_after_is_capped_as_the_table_says_and_read_as_seconds_or_a_date() {
    let own = Vendor::named("http-own-keys").expect("known");
    let wait = |text| classify(&own, 429, "{}", Some(text)).action;
    assert_eq!(wait("7"), Action::HoldCredential(secs(7)));
    assert_eq!(wait("Wed, 21 Oct 2015 07:28:30 GMT"), Action::HoldCredential(secs(30)));
    assert_eq!(wait("86400"), Action::HoldCredential(secs(3600)));
    assert_eq!(wait("0"), Action::HoldCredential(secs(1)));
    assert_eq!(wait("soon"), Action::HoldCredential(secs(1)));
    let kis = Vendor::named("kis").expect("known");
    assert_eq!(classify(&kis, 503, "", Some("86400")).action, Action::HoldSurface(secs(300)));
    let header = |_: &str| Some("86400");
    let ended = Ended::Answer { status: 200, header: &header, body: b"" };
    assert_eq!(own.retry_after(&ended, NOW), Some(secs(3600)));
    assert_eq!(own.retry_after(&Ended::Broken(Broken::TimedOut), NOW), None);
}
