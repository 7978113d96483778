//! Answers in the shape and with the header names that KIS sends.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::Extensions;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::body::Body;
use super::script::Scripted;

/// One of the vendor's codes with its text and its usual HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    pub code: &'static str,
    pub text: &'static str,
    pub status: u16,
}

const fn code(code: &'static str, text: &'static str, status: u16) -> Code {
    Code { code, text, status }
}

pub const OVER_LIMIT: Code = code("EGW00201", "초당 거래건수를 초과하였습니다.", 500);
pub const NOT_ROUTED: Code = code("EGW00202", "GW라우팅 중 오류가 발생했습니다.", 500);
pub const LEDGER_CAP: Code = code("EGW00215", "원장의 초당 거래건수를 초과하였습니다.", 500);
pub const TOKEN_INVALID: Code = code("EGW00121", "유효하지 않은 token 입니다.", 500);
pub const TOKEN_MISSING: Code = code("EGW00122", "token 을 찾을 수 없습니다.", 500);
pub const TOKEN_EXPIRED: Code = code("EGW00123", "기간이 만료된 token 입니다.", 500);
pub const TOKEN_TOO_SOON: Code = code("EGW00133", "접근토큰 발급 잠시 후 다시 시도하세요(1분당 1회)", 403);
pub const UNKNOWN_KEY: Code = code("EGW00103", "유효하지 않은 AppKey입니다.", 403);
pub const WRONG_SECRET: Code = code("EGW00105", "유효하지 않은 AppSecret입니다.", 403);
pub const REAL_AND_PAPER_MIXED: Code = code("EGW02004", "실전투자와 모의투자의 TR이 다릅니다.", 500);
pub const BAD_INPUT: Code = code("OPSQ2001", "입력값을 확인하세요.", 200);
/// Those that only a script gives.
const SCRIPTED: [Code; 7] = [
    code("EGW00203", "GW라우팅 중 오류가 발생했습니다.", 500),
    code("EGW00213", "모의투자에서는 제공하지 않는 TR입니다.", 500),
    code("EGW00300", "일시적인 오류가 발생했습니다.", 500),
    code("EGW00301", "연결 시간이 초과되었습니다.", 500),
    code("EGW00302", "응답 시간이 초과되었습니다.", 500),
    code("EGW00304", "유효하지 않은 AppSecret입니다.", 403),
    code("EGW00316", "일시적으로 처리하지 못했습니다.", 500),
];
/// The mock's own, which no vendor sends.
pub const NO_SUCH_PATH: Code = code("MOCK0404", "the mock vendor has no such path", 404);

impl Code {
    /// The vendor's code of this name, with its usual text and status.
    pub fn of(name: &str) -> Option<Code> {
        const SENT: [Code; 11] = [
            OVER_LIMIT,
            NOT_ROUTED,
            LEDGER_CAP,
            TOKEN_INVALID,
            TOKEN_MISSING,
            TOKEN_EXPIRED,
            TOKEN_TOO_SOON,
            UNKNOWN_KEY,
            WRONG_SECRET,
            REAL_AND_PAPER_MIXED,
            BAD_INPUT,
        ];
        SENT.iter().chain(&SCRIPTED).find(|code| code.code == name).copied()
    }
}

/// An answer before it is dressed in headers.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
    /// Whether more pages follow: `F` or `M` yes, `D` or `E` no, empty where there are no pages.
    pub tr_cont: &'static str,
}

impl Answer {
    /// Success: `output` holds the fields beside the business code.
    pub fn business(output: Value, tr_cont: &'static str) -> Answer {
        let mut body = json!({"rt_cd": "0", "msg_cd": "MCA00000", "msg1": "정상처리 되었습니다."});
        if let (Value::Object(body), Value::Object(output)) = (&mut body, output) {
            body.extend(output);
        }
        Answer { status: 200, body, tr_cont }
    }

    /// A refusal of a business call.
    pub fn refusal(code: Code) -> Answer {
        let body = json!({"rt_cd": "1", "msg_cd": code.code, "msg1": code.text});
        Answer { status: code.status, body, tr_cont: "" }
    }

    /// A refusal of a token.
    pub fn token_refusal(code: Code) -> Answer {
        let body = json!({"error_code": code.code, "error_description": code.text});
        Answer { status: code.status, body, tr_cont: "" }
    }

    /// What a script says of a code.
    fn scripted(script: &Scripted, code: &str, for_token: bool) -> Answer {
        let usual = Code::of(code);
        let text = script.text.as_deref().or(usual.map(|usual| usual.text)).unwrap_or("오류가 발생했습니다.");
        let body = if for_token {
            json!({"error_code": code, "error_description": text})
        } else {
            json!({"rt_cd": "1", "msg_cd": code, "msg1": text})
        };
        Answer { status: script.status.or(usual.map(|usual| usual.status)).unwrap_or(500), body, tr_cont: "" }
    }

    /// One sentence on what is wrong with a request, under the mock's own code.
    pub fn bad_request(sentence: &str) -> Answer {
        let body = json!({"rt_cd": "1", "msg_cd": "MOCK0400", "msg1": sentence});
        Answer { status: 400, body, tr_cont: "" }
    }
}

/// The header names as KIS writes them. Clients in the wild depend on the case.
#[derive(Clone, Debug)]
pub struct HeaderCase(Extensions);

impl HeaderCase {
    /// hyper's server writes names in the case that a message's extensions remember, but only hyper's client can fill
    /// that memory. So its client reads one answer with the right names, in memory, and that answer's extensions are
    /// kept.
    pub async fn learn() -> hyper::Result<HeaderCase> {
        const SAMPLE: &[u8] =
            b"HTTP/1.1 200 OK\r\nContent-Type: -\r\nContent-Length: 0\r\nDate: -\r\nConnection: close\r\n\
            Retry-After: -\r\ntr_id: -\r\ntr_cont: -\r\ngt_uid: -\r\n\r\n";
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let vendor = async {
            let mut request = [0; 1024];
            if theirs.read(&mut request).await.is_ok() {
                // If this fails, so does the client, and says why.
                let _ = theirs.write_all(SAMPLE).await;
            }
            std::future::pending().await
        };
        let (mut client, connection) =
            hyper::client::conn::http1::Builder::new().preserve_header_case(true).handshake(TokioIo::new(ours)).await?;
        let connection = async {
            // However it ends, the client's own result is the one that counts.
            let _ = connection.await;
            std::future::pending().await
        };
        let response = tokio::select! {
            response = client.send_request(Request::new(Empty::<Bytes>::new())) => response?,
            never = vendor => never,
            never = connection => never,
        };
        Ok(HeaderCase(response.into_parts().0.extensions))
    }

    /// The answer on the wire.
    pub fn dress(&self, answer: Answer, tr_id: Option<&HeaderValue>) -> Response<Body> {
        let mut response = Response::new(Body::from(answer.body.to_string()));
        *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        if let Some(tr_id) = tr_id {
            headers.insert("tr_id", tr_id.clone());
        }
        headers.insert("tr_cont", HeaderValue::from_static(answer.tr_cont));
        let gt_uid = format!("{:032x}", fastrand::u128(..));
        headers.insert("gt_uid", HeaderValue::try_from(gt_uid).expect("hex digits are a header value"));
        *response.extensions_mut() = self.0.clone();
        response
    }

    /// The answer that a script says, on the wire. What it lacks, the answer lacks: a raw one has its headers alone.
    pub fn dress_scripted(&self, script: &Scripted, tr_id: Option<&HeaderValue>, for_token: bool) -> Response<Body> {
        let text = match &script.code {
            Some(code) => Answer::scripted(script, code, for_token).body.to_string(),
            None => script.body.clone().unwrap_or_default(),
        };
        let mut response = match &script.code {
            Some(code) => self.dress(Answer::scripted(script, code, for_token), tr_id),
            None => Response::new(Body::from(text.clone())),
        };
        if let (None, Some(status)) = (&script.code, script.status) {
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        }
        for (name, value) in &script.headers {
            // Checked when the script was set.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        if let Some(bytes) = script.cut_after.filter(|bytes| *bytes < text.len()) {
            response.headers_mut().insert(CONTENT_LENGTH, text.len().into());
            *response.body_mut() = Body::cut(Bytes::from(text).slice(..bytes));
        }
        *response.extensions_mut() = self.0.clone();
        response
    }
}

/// The date in Korea `after` from now, in a form such as `%Y-%m-%d %H:%M:%S`. Shown to clients, never used to decide.
pub fn kst(after: Duration, form: &str) -> String {
    const KST: jiff::tz::Offset = jiff::tz::offset(9);
    let after = jiff::SignedDuration::try_from(after).unwrap_or(jiff::SignedDuration::MAX);
    let then = jiff::Timestamp::now().saturating_add(after).unwrap_or(jiff::Timestamp::MAX);
    KST.to_datetime(then).strftime(form).to_string()
}
