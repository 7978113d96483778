//! How a table is written, and what is said of one that is written wrongly.

use super::{Action, Vendor, Verdict, classify, secs};

#[track_caller]
fn refused(toml: &str, words: &[&str]) {
    let why = Vendor::parse(toml).expect_err(toml);
    for word in words {
        assert!(why.contains(word), "{word:?} is missing in: {why}");
    }
}

/// A table with this rule, and one for everything else.
fn with(rule: &str) -> String {
    format!(
        "body = \"json\"\ncode = [\"code\"]\ntext = [\"text\"]\nretry_after_max = \"1m\"\n\
         [[rule]]\nname = \"mine\"\nmeaning = \"What to do.\"\n{rule}\n\
         [[rule]]\nname = \"rest\"\nverdict = \"good\"\nmeaning = \"An answer.\"\n"
    )
}

#[test]
fn a_rule_that_is_written_wrongly_is_named_with_the_way_out() {
    for (rule, words) in [
        ("verdct = \"good\"", &["unknown field `verdct`", "`verdict`"][..]),
        ("status = [404]", &["missing field `verdict`"]),
        ("status = [404]\nverdict = \"fine\"", &["unknown variant `fine`", "`good`, `bad`, `none`"]),
        ("verdict = \"good\"", &["only the last rule has no conditions"]),
        ("status = [99]\nverdict = \"good\"", &["from 100 to 999"]),
        ("status = [\"599-500\"]\nverdict = \"good\"", &["such as \"500-599\""]),
        ("status = [true]\nverdict = \"good\"", &["such as \"500-599\""]),
        ("status = []\nverdict = \"good\"", &["status lists nothing"]),
        ("code = []\nverdict = \"good\"", &["code lists nothing"]),
        ("text = [\" \"]\nverdict = \"good\"", &["text lists nothing, or an empty text"]),
        ("status = [404]\nverdict = \"good\"\nhold = \"surface\"\nfor = \"1s\"", &["a good answer holds nobody back"]),
        ("status = [404]\nverdict = \"bad\"\nhold = \"credential\"\nfor = \"1s\"", &["verdict = \"none\""]),
        ("status = [404]\nverdict = \"bad\"\nthrottled = true", &["verdict = \"none\""]),
        ("status = [404]\nverdict = \"good\"\nno_data = true", &["verdict = \"none\""]),
        ("status = [404]\nverdict = \"good\"\noutcome_unknown = true", &["the outcome of a good answer is known"]),
        (
            "status = [401]\nverdict = \"none\"\nrefresh_token = true\noutcome_unknown = true",
            &["refresh_token", "outcome_unknown", "keep one of them"],
        ),
        ("status = [404]\nverdict = \"bad\"\nnever_again = true", &["say outcome_unknown = true too"]),
        ("status = [404]\nverdict = \"none\"\nhold = \"budget\"", &["how long?", "for = \"1s\""]),
        ("status = [404]\nverdict = \"none\"\nhold = \"budget\"\nobey_retry_after = true", &["how long?"]),
        ("status = [404]\nverdict = \"none\"\nhold = \"budget\"\nfor = \"1\"", &["\"1\" is not a duration"]),
        ("status = [404]\nverdict = \"none\"\nhold = \"budget\"\nfor = \"0s\"", &["longer than 0"]),
        (
            "status = [404]\nverdict = \"none\"\nhold = \"surface\"\nfor = \"until-changed\"",
            &["is for hold = \"credential\""],
        ),
        ("status = [404]\nverdict = \"none\"\nfor = \"1s\"", &["say hold = ... too"]),
        (
            "status = [401]\nverdict = \"none\"\nrefresh_token = true\nhold = \"credential\"\nfor = \"1s\"",
            &["refresh_token or hold, not both"],
        ),
    ] {
        refused(&with(rule), &[&["rule \"mine\": "], words].concat());
    }
}

#[test]
fn a_code_beats_the_status_or_the_table_is_refused() {
    let code = "[[rule]]\nname = \"code\"\ncode = [\"A\"]\nverdict = \"good\"\nmeaning = \"A.\"\n";
    refused(
        &with(&format!("status = [500]\nverdict = \"bad\"\n{code}")),
        &["rule \"code\": ", "move it before \"mine\""],
    );
}

#[test]
fn a_table_that_is_written_wrongly_is_refused_with_the_way_out() {
    let head = "body = \"json\"\nretry_after_max = \"1m\"\n";
    let rest = "[[rule]]\nname = \"rest\"\nverdict = \"good\"\nmeaning = \"An answer.\"\n";
    refused("", &["[[rule]]"]);
    refused("body = \"json\"\nretry_after_max = ", &["near line 2"]);
    refused(&format!("body = \"xml\"\n{rest}"), &["unknown variant `xml`"]);
    refused(&format!("{head}colour = 1\n{rest}"), &["unknown field `colour`"]);
    refused(&format!("body = \"json\"\n{rest}"), &["missing field `retry_after_max`"]);
    refused(&format!("{head}code = [\"error..code\"]\n{rest}"), &["error.message for a field in a field"]);
    refused(&format!("{head}{rest}{rest}"), &["rule \"rest\": ", "only the last rule"]);
    refused(&with("status = [404]\nverdict = \"good\"").replace("\"rest\"", "\"mine\""), &["has this name"]);
    refused(
        &format!("{head}{}", rest.replace("verdict", "status = [200]\nverdict")),
        &["the last rule has no conditions"],
    );
    refused(&format!("{head}{}", rest.replace("name = \"rest\"\n", "")), &["rule 1 needs a name"]);
    refused(&format!("{head}{}", rest.replace("An answer.", "")), &["rule \"rest\": meaning tells"]);
    let looks = |at: &str| {
        format!("{head}[[rule]]\nname = \"mine\"\n{at} = [\"A\"]\nverdict = \"good\"\nmeaning = \"A.\"\n{rest}")
    };
    refused(&looks("code"), &["rule \"mine\": it looks at code", "code = [...]"]);
    refused(&looks("text"), &["rule \"mine\": it looks at text"]);
}

#[test]
fn conditions_of_one_rule_must_all_be_met_and_the_first_rule_that_fits_decides() {
    let rule = "status = [500, \"520-529\"]\ntext = [\"BUSY\", \"바쁨\"]\nretry_after = false\nmalformed = false\nverdict = \"none\"";
    let vendor = Vendor::parse(&with(rule)).expect("well written");
    let verdict = |status, body, retry_after| classify(&vendor, status, body, retry_after).verdict;
    assert_eq!(verdict(500, r#"{"text":"so Busy"}"#, None), Verdict::None);
    assert_eq!(verdict(525, r#"{"text":"지금 바쁨"}"#, None), Verdict::None);
    assert_eq!(verdict(501, r#"{"text":"so Busy"}"#, None), Verdict::Good);
    assert_eq!(verdict(500, r#"{"text":"idle"}"#, None), Verdict::Good);
    assert_eq!(verdict(500, r#"{"text":"so Busy"}"#, Some("3")), Verdict::Good);
    assert_eq!(verdict(500, "so busy", None), Verdict::Good);
}

#[test]
fn an_answer_without_data_is_told_to_the_fallback() {
    let vendor = Vendor::parse(&with("code = [\"EMPTY\"]\nverdict = \"none\"\nno_data = true")).expect("well written");
    let found = classify(&vendor, 200, r#"{"code":"EMPTY"}"#, None);
    assert!(found.no_data && found.verdict == Verdict::None);
    assert!(!classify(&vendor, 200, "{}", None).no_data);
}

#[test]
fn the_example_of_the_vendor_page_can_be_read() {
    let page = include_str!("../../../docs/vendors.md");
    let example =
        page.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).expect("the page has one").0;
    let vendor = Vendor::parse(example).expect("the example is well written");
    let found = classify(&vendor, 418, r#"{"code":-1003,"msg":"Way too many requests"}"#, Some("20"));
    assert_eq!((found.verdict, found.action), (Verdict::None, Action::PushBackAndHoldCredential(secs(20))));
    assert_eq!(found.code.as_deref(), Some("-1003"));
    assert!(classify(&vendor, 200, r#"{"code":"NO_DATA"}"#, None).no_data);
    assert_eq!(classify(&vendor, 502, "", None).verdict, Verdict::Bad);
    assert_eq!(classify(&vendor, 404, "", None).verdict, Verdict::Good);
}
