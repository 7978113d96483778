use super::{Action, Case, Vendor, Verdict, classify, every_row_holds, secs};

const GOOD: Verdict = Verdict::Good;
const BAD: Verdict = Verdict::Bad;
const NONE: Verdict = Verdict::None;

pub(super) const CASES: &[Case] = &[
    // The rate, in whichever field, with whatever status.
    Case::new(
        "too many calls",
        500,
        r#"{"rt_cd":"1","msg_cd":"EGW00201","msg1":"초당 거래건수를 초과하였습니다."}"#,
        NONE,
        Action::PushBack(secs(1)),
    )
    .code("EGW00201")
    .throttled(),
    Case::new("too many calls", 200, r#"{"rt_cd":"1","msg_cd":"EGW00201","msg1":""}"#, NONE, Action::PushBack(secs(1)))
        .code("EGW00201")
        .throttled(),
    Case::new("too many calls", 403, r#"{"error_code":"EGW00201"}"#, NONE, Action::PushBack(secs(1)))
        .code("EGW00201")
        .throttled(),
    Case::new(
        "ledger busy, told as the rate",
        500,
        r#"{"rt_cd":"1","msg_cd":"EGW00201","msg1":"원장의 초당 거래건수를 초과하였습니다."}"#,
        NONE,
        Action::HoldSurface(secs(1)),
    )
    .code("EGW00201"),
    Case::new(
        "ledger busy",
        500,
        r#"{"rt_cd":"1","msg_cd":"EGW00215","msg1":"원장의 초당 거래건수를 초과하였습니다."}"#,
        NONE,
        Action::HoldSurface(secs(1)),
    )
    .code("EGW00215"),
    // Tokens and keys.
    Case::new("token not valid", 500, r#"{"rt_cd":"1","msg_cd":"EGW00121"}"#, NONE, Action::RefreshToken)
        .code("EGW00121"),
    Case::new("token not valid", 500, r#"{"rt_cd":"1","msg_cd":"EGW00122"}"#, NONE, Action::RefreshToken)
        .code("EGW00122"),
    Case::new("token not valid", 500, r#"{"rt_cd":"1","msg_cd":"EGW00123"}"#, NONE, Action::RefreshToken)
        .code("EGW00123"),
    Case::new("token not valid", 401, r#"{"error_code":"EGW00123"}"#, NONE, Action::RefreshToken).code("EGW00123"),
    Case::new(
        "token issued too often",
        403,
        r#"{"error_code":"EGW00133","error_description":"접근토큰 발급 잠시 후 다시 시도하세요(1분당 1회)"}"#,
        NONE,
        Action::HoldTokenSurface(secs(60)),
    )
    .code("EGW00133"),
    Case::new("key or secret wrong", 403, r#"{"error_code":"EGW00103"}"#, NONE, Action::HoldCredentialUntilChanged)
        .code("EGW00103"),
    Case::new("key or secret wrong", 403, r#"{"error_code":"EGW00105"}"#, NONE, Action::HoldCredentialUntilChanged)
        .code("EGW00105"),
    Case::new("key or secret wrong", 500, r#"{"msg_cd":"EGW00304"}"#, NONE, Action::HoldCredentialUntilChanged)
        .code("EGW00304"),
    // The request.
    Case::new("real and paper mixed up", 500, r#"{"rt_cd":"1","msg_cd":"EGW02004"}"#, GOOD, Action::Nothing)
        .code("EGW02004"),
    Case::new("real and paper mixed up", 500, r#"{"rt_cd":"1","msg_cd":"EGW00213"}"#, GOOD, Action::Nothing)
        .code("EGW00213"),
    Case::new("request refused by the gateway", 500, r#"{"rt_cd":"1","msg_cd":"EGW00102"}"#, GOOD, Action::Nothing)
        .code("EGW00102"),
    Case::new(
        "input refused, or outside the hours of this call",
        500,
        r#"{"rt_cd":"2","msg_cd":"OPSQ2001","msg1":"TIME LIMIT 00:00 ~ 15:40"}"#,
        GOOD,
        Action::Nothing,
    )
    .code("OPSQ2001"),
    Case::new(
        "input refused, or outside the hours of this call",
        500,
        r#"{"rt_cd":"2","msg_cd":"OPSQ2000","msg1":"INPUT INVALID_CHECK_ACNO"}"#,
        GOOD,
        Action::Nothing,
    )
    .code("OPSQ2000"),
    Case::new(
        "input refused, or outside the hours of this call",
        500,
        r#"{"rt_cd":"2","msg_cd":"OPSQ2002"}"#,
        GOOD,
        Action::Nothing,
    )
    .code("OPSQ2002"),
    Case::new("business refusal", 500, r#"{"rt_cd":"1","msg_cd":"APBK0919"}"#, GOOD, Action::Nothing).code("APBK0919"),
    Case::new("business refusal", 200, r#"{"rt_cd":"0","msg_cd":"APBK0013"}"#, GOOD, Action::Nothing).code("APBK0013"),
    // The vendor fails.
    Case::new("timed out inside, order may exist", 500, r#"{"rt_cd":"1","msg_cd":"EGW00301"}"#, BAD, Action::Nothing)
        .code("EGW00301")
        .never_again(),
    Case::new("timed out inside, order may exist", 200, r#"{"rt_cd":"1","msg_cd":"EGW00302"}"#, BAD, Action::Nothing)
        .code("EGW00302")
        .never_again(),
    Case::new("not routed", 500, r#"{"rt_cd":"1","msg_cd":"EGW00202"}"#, BAD, Action::Nothing)
        .code("EGW00202")
        .outcome_unknown(),
    Case::new("not routed", 500, r#"{"rt_cd":"1","msg_cd":"EGW00203"}"#, BAD, Action::Nothing)
        .code("EGW00203")
        .outcome_unknown(),
    Case::new("passing failure", 500, r#"{"rt_cd":"1","msg_cd":"EGW00300"}"#, BAD, Action::Nothing)
        .code("EGW00300")
        .outcome_unknown(),
    Case::new("passing failure", 200, r#"{"rt_cd":"1","msg_cd":"EGW00316"}"#, BAD, Action::Nothing)
        .code("EGW00316")
        .outcome_unknown(),
    // Without a code of KIS.
    Case::new("401", 401, "", NONE, Action::RefreshToken),
    Case::new("402", 402, "", NONE, Action::HoldCredential(secs(3600))),
    Case::new("402", 402, "", NONE, Action::HoldCredential(secs(20))).retry_after("20"),
    Case::new("400, no credit", 400, r#"{"msg1":"no CREDIT"}"#, NONE, Action::HoldCredential(secs(3600))),
    Case::new("403", 403, "<html>", NONE, Action::HoldCredentialUntilChanged),
    Case::new("429", 429, "", NONE, Action::PushBackAndHoldCredential(secs(1))).throttled(),
    Case::new("429", 429, "", NONE, Action::PushBackAndHoldCredential(secs(9))).retry_after("9").throttled(),
    Case::new("503 with Retry-After", 503, "<html>", BAD, Action::HoldSurface(secs(40))).retry_after("40"),
    Case::new("5xx", 503, "<html>", BAD, Action::Nothing).outcome_unknown(),
    Case::new("5xx", 500, r#"{"rt_cd":"1","msg_cd":"EGW00002"}"#, BAD, Action::Nothing)
        .code("EGW00002")
        .outcome_unknown(),
    Case::new("5xx", 504, "", BAD, Action::Nothing).outcome_unknown(),
    Case::new("not JSON", 200, "<html>", BAD, Action::Nothing).outcome_unknown(),
    Case::new("not JSON", 200, r#"{"rt_cd":"0","msg_cd":"MCA0"#, BAD, Action::Nothing).outcome_unknown(),
    Case::new("not JSON", 200, "", BAD, Action::Nothing).outcome_unknown(),
    Case::new("timely answer", 200, r#"{"rt_cd":"0","msg_cd":"MCA00000","msg1":"정상"}"#, GOOD, Action::Nothing)
        .code("MCA00000"),
    Case::new("timely answer", 200, r#"{"rt_cd":"1","msg_cd":"KIER2620","msg1":"no"}"#, GOOD, Action::Nothing)
        .code("KIER2620"),
    Case::new("timely answer", 200, r#"{"rt_cd":"2","msg_cd":"","msg1":"no"}"#, GOOD, Action::Nothing),
    Case::new("timely answer", 200, r#"{"access_token":"t","expires_in":86400}"#, GOOD, Action::Nothing),
    Case::new("not JSON", 404, "<html>", BAD, Action::Nothing).outcome_unknown(),
    Case::new("not JSON", 400, r#"{"rt_cd":"1","msg_cd":"APBK0"#, BAD, Action::Nothing).outcome_unknown(),
    Case::new("timely answer", 404, "{}", GOOD, Action::Nothing),
    Case::new("timely answer", 409, "{}", GOOD, Action::Nothing),
    Case::new("timely answer", 422, "{}", GOOD, Action::Nothing),
    Case::new("timely answer", 400, r#"{"msg1":"no"}"#, GOOD, Action::Nothing),
    Case::new("anything else", 302, "<html>", BAD, Action::Nothing).outcome_unknown(),
];

#[test]
fn every_row_of_the_kis_table_holds() {
    every_row_holds("kis", CASES);
}

#[test]
fn the_code_counts_in_either_field_and_with_every_status() {
    let kis = Vendor::named("kis").expect("known");
    for status in [200, 400, 401, 403, 404, 429, 500, 503] {
        for body in [
            r#"{"rt_cd":"1","msg_cd":"EGW00201"}"#,
            r#"{"error_code":"EGW00201"}"#,
            r#"{"msg_cd":"","error_code":"EGW00201"}"#,
        ] {
            let found = classify(&kis, status, body, Some("30"));
            assert_eq!((found.verdict, found.action), (NONE, Action::PushBack(secs(1))), "{status} {body}");
            assert!(found.throttled, "{status} {body}");
        }
    }
}
