use super::{Action, Case, Verdict, every_row_holds, secs};

const GOOD: Verdict = Verdict::Good;
const BAD: Verdict = Verdict::Bad;
const NONE: Verdict = Verdict::None;
const HOUR: Action = Action::HoldCredential(secs(3600));

/// The rows that both tables have, word for word.
const BOTH: &[Case] = &[
    Case::new(
        "spent, told by code",
        429,
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        NONE,
        HOUR,
    )
    .code("insufficient_quota"),
    Case::new("spent, told by code", 402, r#"{"error":{"type":"billing_error","message":"pay"}}"#, NONE, HOUR)
        .code("billing_error"),
    Case::new("spent, told by code", 400, r#"{"code":"billing_hard_limit_reached"}"#, NONE, HOUR)
        .code("billing_hard_limit_reached"),
    Case::new("401", 401, r#"{"error":{"type":"authentication_error"}}"#, NONE, Action::RefreshToken)
        .code("authentication_error"),
    Case::new("402", 402, "{}", NONE, HOUR),
    Case::new("402", 402, "{}", NONE, Action::HoldCredential(secs(90))).retry_after("90"),
    Case::new(
        "400, no credit",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your Credit balance is too low"}}"#,
        NONE,
        HOUR,
    )
    .code("invalid_request_error"),
    Case::new("403, spent", 403, r#"{"message":"Quota exceeded or billing issue"}"#, NONE, HOUR),
    Case::new("403", 403, r#"{"message":"forbidden"}"#, NONE, Action::HoldCredentialUntilChanged),
    Case::new("403", 403, "<html>", NONE, Action::HoldCredentialUntilChanged),
    Case::new("503 with Retry-After", 503, "", BAD, Action::HoldSurface(secs(120))).retry_after("120"),
    Case::new("503 with Retry-After", 503, "", BAD, Action::HoldSurface(secs(3600))).retry_after("86400"),
    Case::new("5xx", 503, "", BAD, Action::Nothing).outcome_unknown(),
    Case::new("5xx", 500, r#"{"error":{"code":"server_error"}}"#, BAD, Action::Nothing).code("server_error").outcome_unknown(),
    Case::new("5xx", 502, "<html>", BAD, Action::Nothing).outcome_unknown(),
    Case::new("5xx", 504, "", BAD, Action::Nothing).outcome_unknown(),
    Case::new("5xx", 529, r#"{"error":{"type":"overloaded_error"}}"#, BAD, Action::Nothing)
        .code("overloaded_error")
        .outcome_unknown(),
    Case::new("not JSON", 200, "<html>", BAD, Action::Nothing).outcome_unknown(),
    Case::new("not JSON", 200, r#"{"answer":"cut o"#, BAD, Action::Nothing).outcome_unknown(),
    Case::new("timely answer", 200, r#"{"answer":42}"#, GOOD, Action::Nothing),
    Case::new("timely answer", 204, "", GOOD, Action::Nothing),
    Case::new("timely answer", 304, "", GOOD, Action::Nothing),
    Case::new("timely answer", 400, r#"{"message":"no such field"}"#, GOOD, Action::Nothing),
    Case::new("timely answer", 404, "404 page not found", GOOD, Action::Nothing),
    Case::new("timely answer", 409, "{}", GOOD, Action::Nothing),
    Case::new("timely answer", 422, "{}", GOOD, Action::Nothing),
    Case::new("timely answer", 405, "<html>", GOOD, Action::Nothing),
    Case::new("anything else", 301, "", BAD, Action::Nothing).outcome_unknown(),
    Case::new("anything else", 302, "<html>", BAD, Action::Nothing).outcome_unknown(),
    Case::new("anything else", 307, r#"{"message":"moved"}"#, BAD, Action::Nothing).outcome_unknown(),
    Case::new("anything else", 600, "", BAD, Action::Nothing).outcome_unknown(),
];

/// The cases of the table for a key that everybody shares.
pub(super) fn shared_key() -> Vec<Case> {
    let too_many = |wait| Case::new("429", 429, "{}", NONE, Action::PushBackAndHoldCredential(secs(wait))).throttled();
    [BOTH, &[too_many(1), too_many(15).retry_after("15")]].concat()
}

/// The cases of the table for users' own keys.
pub(super) fn own_keys() -> Vec<Case> {
    let too_many = |wait| Case::new("429", 429, "{}", NONE, Action::HoldCredential(secs(wait))).throttled();
    [BOTH, &[too_many(1), too_many(15).retry_after("15")]].concat()
}

#[test]
fn every_row_of_the_table_for_a_shared_key_holds() {
    every_row_holds("http-shared-key", &shared_key());
}

#[test]
fn every_row_of_the_table_for_own_keys_holds() {
    every_row_holds("http-own-keys", &own_keys());
}
