//! Who may ask: the Host header, and bearer tokens compared in constant time.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::House;
use super::problem::Problem;

/// A bearer token. Nothing prints it.
#[derive(Clone, PartialEq)]
pub(super) struct Token(Box<[u8]>);

/// What is asked of whom. Without a caller token, everybody on this machine may call and look.
#[derive(Clone, Default)]
pub(super) struct Tokens {
    pub caller: Option<Token>,
    pub admin: Option<Token>,
}

impl Token {
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    /// Takes the same time for every wrong token of this length.
    fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

impl Tokens {
    fn lets_callers_in(&self, given: Option<&[u8]>) -> bool {
        let is = |token: &Option<Token>| token.as_ref().is_some_and(|token| given.is_some_and(|given| token.is(given)));
        // Both are compared, whatever the first comes to.
        self.caller.is_none() | is(&self.caller) | is(&self.admin)
    }

    fn lets_admins_in(&self, given: Option<&[u8]>) -> bool {
        self.admin.as_ref().is_some_and(|token| given.is_some_and(|given| token.is(given)))
    }
}

/// Refuses who does not call it by one of its names: a page in somebody's browser can make its own name lead here.
pub(super) async fn by_its_name(State(house): State<Arc<House>>, request: Request, next: Next) -> Response {
    if is_ours(host(request.headers(), request.uri()), &house.allowed_hosts) {
        next.run(request).await
    } else {
        Problem::wrong_host().into_response()
    }
}

pub(super) async fn callers(State(house): State<Arc<House>>, request: Request, next: Next) -> Response {
    if house.tokens.lets_callers_in(bearer(request.headers())) {
        next.run(request).await
    } else {
        Problem::unauthorized("this path wants the token of callers").into_response()
    }
}

pub(super) async fn admins(State(house): State<Arc<House>>, request: Request, next: Next) -> Response {
    if house.tokens.admin.is_none() {
        Problem::no_admin_token().into_response()
    } else if house.tokens.lets_admins_in(bearer(request.headers())) {
        next.run(request).await
    } else {
        Problem::unauthorized("this path wants the admin token").into_response()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let given = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = given.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// None where it is not said, or said twice: who stands between might have looked at the other.
fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let mut given = headers.get_all(HOST).iter();
    let (first, another) = (given.next(), given.next());
    let named = uri.authority().map(|authority| authority.as_str()).or_else(|| first?.to_str().ok());
    named.filter(|_| another.is_none())
}

/// Addresses cannot be made to lead elsewhere; names can.
fn is_ours(host: Option<&str>, allowed: &[String]) -> bool {
    let Some(host) = host else { return false };
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => (address, None),
            Some((address, rest)) => match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None => return false,
            },
            None => return false,
        },
        None => host.rsplit_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    // None after the colon is the usual one.
    if port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return false;
    }
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_its_own_names_are_hosts() {
        let allowed = ["budget.internal".to_owned()];
        for host in ["127.0.0.1", "127.0.0.1:8181", "[::1]:8181", "localhost:8181", "LOCALHOST", "Budget.internal:80"] {
            assert!(is_ours(Some(host), &allowed), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8181",
            "",
            "budget.internal.x",
            "localhost:80x",
            "localhost:a@b",
            "[::1]evil.example",
            "[::1",
            "[::1]x:80",
            "[::1]:x",
        ] {
            assert!(!is_ours(Some(host), &allowed), "{host}");
        }
        assert!(!is_ours(None, &allowed));
    }

    #[test]
    fn a_token_lets_in_whom_it_is_for() {
        let tokens = Tokens { caller: Some(Token::new("caller")), admin: Some(Token::new("admin!")) };
        let given = |text: &'static str| Some(text.as_bytes());
        assert!(tokens.lets_callers_in(given("caller")) && tokens.lets_callers_in(given("admin!")));
        assert!(tokens.lets_admins_in(given("admin!")));
        for wrong in [None, given(""), given("calle"), given("caller2"), given("CALLER")] {
            assert!(!tokens.lets_callers_in(wrong) && !tokens.lets_admins_in(wrong), "{wrong:?}");
        }
        assert!(!tokens.lets_admins_in(given("caller")));
        let open = Tokens::default();
        assert!(open.lets_callers_in(None) && !open.lets_admins_in(None) && !open.lets_admins_in(given("")));
    }
}
