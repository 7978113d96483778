//! The calls: which exist, and what each answers.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::{self, Answer, Code, kst};
use super::arrivals::text;
use super::tokens::Token;
use super::vendor::{Counted, Received, Vendor};

/// Where tokens are issued. Such a request falls under the token rules and not under the calls per window.
const TOKEN_PATH: &str = "/oauth2/tokenP";

struct Route {
    method: Method,
    path: &'static str,
    real: &'static [&'static str],
    paper: &'static [&'static str],
    purpose: Purpose,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Price,
    MinuteChart,
    OrderBook,
    Balance,
    Order,
}

static ROUTES: [Route; 5] = [
    Route {
        method: Method::GET,
        path: "/uapi/domestic-stock/v1/quotations/inquire-price",
        real: &["FHKST01010100"],
        paper: &["FHKST01010100"],
        purpose: Purpose::Price,
    },
    Route {
        method: Method::GET,
        path: "/uapi/domestic-stock/v1/quotations/inquire-time-itemchartprice",
        real: &["FHKST03010200"],
        paper: &["FHKST03010200"],
        purpose: Purpose::MinuteChart,
    },
    Route {
        method: Method::GET,
        path: "/uapi/domestic-stock/v1/quotations/inquire-asking-price-exp-ccn",
        real: &["FHKST01010200"],
        paper: &["FHKST01010200"],
        purpose: Purpose::OrderBook,
    },
    Route {
        method: Method::GET,
        path: "/uapi/domestic-stock/v1/trading/inquire-balance",
        real: &["TTTC8434R"],
        paper: &["VTTC8434R"],
        purpose: Purpose::Balance,
    },
    Route {
        method: Method::POST,
        path: "/uapi/domestic-stock/v1/trading/order-cash",
        real: &["TTTC0012U", "TTTC0011U"],
        paper: &["VTTC0012U", "VTTC0011U"],
        purpose: Purpose::Order,
    },
];

/// What a request to this path counts as.
pub fn counted(path: &str) -> Counted {
    if path == TOKEN_PATH { Counted::AsTokenAttempt } else { Counted::InLimit }
}

/// The answer to a request that was read whole. The limit comes before everything else, as at the vendor's gate.
pub fn answer(vendor: &Vendor, received: &Received, head: &Parts, body: &Bytes) -> Answer {
    if received.refused {
        return Answer { status: received.settings.refusal_status, ..Answer::refusal(answers::OVER_LIMIT) };
    }
    if let Err(sentence) = &received.odd {
        return Answer::bad_request(sentence);
    }
    if text(&head.headers, "transfer-encoding").to_ascii_lowercase().contains("chunked") {
        return Answer::refusal(answers::NOT_ROUTED);
    }
    if head.uri.path() == TOKEN_PATH && head.method == Method::POST {
        return token(vendor, received, body);
    }
    let asked = |route: &&Route| route.path == head.uri.path() && route.method == head.method;
    match ROUTES.iter().find(asked) {
        Some(route) => call(vendor, received, head, route).unwrap_or_else(Answer::refusal),
        None => Answer::refusal(answers::NO_SUCH_PATH),
    }
}

fn call(vendor: &Vendor, received: &Received, head: &Parts, route: &Route) -> Result<Answer, Code> {
    let settings = &received.settings;
    if settings.check_tokens {
        vendor.check_token(received, &text(&head.headers, "authorization"))?;
    }
    let fitting = if settings.paper { route.paper } else { route.real };
    if !fitting.contains(&text(&head.headers, "tr_id").as_str()) {
        return Err(answers::REAL_AND_PAPER_MIXED);
    }
    match route.purpose {
        Purpose::Price => Ok(Answer::business(json!({"output": {"stck_prpr": "70000", "acml_vol": "1000"}}), "")),
        Purpose::MinuteChart => {
            let minute = json!({"stck_cntg_hour": "090000", "stck_prpr": "70000", "cntg_vol": "10"});
            Ok(Answer::business(json!({"output1": {"stck_prpr": "70000"}, "output2": [minute]}), ""))
        }
        Purpose::OrderBook => Ok(Answer::business(json!({"output1": order_book(), "output2": {}}), "")),
        Purpose::Balance => {
            vendor.check_ledger(received)?;
            balance_page(head, settings.pages)
        }
        Purpose::Order => {
            let number = format!("{:010}", fastrand::u32(..));
            let time = kst(Duration::ZERO, "%H%M%S");
            Ok(Answer::business(json!({"output": {"ODNO": number, "ORD_TMD": time}}), ""))
        }
    }
}

/// Ten levels on each side of 70,000 won, as flat as the vendor writes them.
fn order_book() -> Value {
    let mut book = json!({"aspr_acpt_hour": kst(Duration::ZERO, "%H%M%S")});
    for level in 1..=10 {
        for (side, price) in [("ask", 70_000 + 100 * (level - 1)), ("bid", 69_900 - 100 * (level - 1))] {
            book[format!("{side}p{level}")] = price.to_string().into();
            book[format!("{side}p_rsqn{level}")] = (100 * level).to_string().into();
        }
    }
    book
}

/// The page that `tr_cont: N` and CTX_AREA_NK100 ask for; else the first. The key of the next page is its number.
fn balance_page(head: &Parts, pages: u32) -> Result<Answer, Code> {
    let page = if text(&head.headers, "tr_cont") == "N" {
        let key = query(head, "CTX_AREA_NK100").and_then(|key| key.trim().parse().ok());
        key.filter(|page| (2..=pages).contains(page)).ok_or(answers::BAD_INPUT)?
    } else {
        1
    };
    let more = page < pages;
    let tr_cont = match (page, more) {
        (1, true) => "F",
        (_, true) => "M",
        (1, false) => "D",
        (_, false) => "E",
    };
    let next = if more { (page + 1).to_string() } else { String::new() };
    let holding = json!({"pdno": format!("{page:06}"), "hldg_qty": "1"});
    let output = json!({"ctx_area_fk100": "", "ctx_area_nk100": next, "output1": [holding], "output2": []});
    Ok(Answer::business(output, tr_cont))
}

fn query<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    let mut pairs = head.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[derive(Deserialize)]
struct TokenRequest {
    grant_type: String,
    appkey: String,
    appsecret: String,
}

fn token(vendor: &Vendor, received: &Received, body: &Bytes) -> Answer {
    let request: TokenRequest = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => return Answer::bad_request(&format!("the body is not a token request: {error}")),
    };
    if request.grant_type != "client_credentials" {
        return Answer::bad_request("grant_type must be client_credentials");
    }
    match vendor.issue_token(received, &request.appkey, &request.appsecret) {
        Ok(token) => Answer { status: 200, body: token_body(&token), tr_cont: "" },
        Err(code) => Answer::token_refusal(code),
    }
}

fn token_body(token: &Token) -> Value {
    json!({
        "access_token": token.value,
        "access_token_token_expired": kst(token.valid_for, "%Y-%m-%d %H:%M:%S"),
        "token_type": "Bearer",
        "expires_in": token.valid_for.as_secs(),
    })
}
