//! The rules for access tokens. Pure, `now` is an argument.

use std::collections::HashMap;
use std::time::Duration;

use super::answers::{self, Code};
use super::settings::Settings;
use crate::policy::Instant;

/// The tokens issued so far, and when each app key last tried.
#[derive(Debug, Default)]
pub struct Tokens {
    last_attempt: HashMap<String, Instant>,
    /// The token of an app key that comes back on the next request.
    current: HashMap<String, String>,
    issued: HashMap<String, Issue>,
}

#[derive(Debug)]
struct Issue {
    appkey: String,
    at: Instant,
    expired: bool,
}

/// A token and how long it will be valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub value: String,
    pub valid_for: Duration,
}

impl Tokens {
    /// One attempt at a token. Every attempt counts against the next one: failed ones, and those that came too early.
    pub fn issue(&mut self, now: Instant, appkey: &str, secret: &str, settings: &Settings) -> Result<Token, Code> {
        let known = settings.keys.get(appkey);
        let last = self.last_attempt.insert(appkey.to_owned(), now);
        if last.is_some_and(|last| now.saturating_since(last) < settings.token_interval) {
            return Err(answers::TOKEN_TOO_SOON);
        }
        match known {
            None => return Err(answers::UNKNOWN_KEY),
            Some(right) if right != secret => return Err(answers::WRONG_SECRET),
            Some(_) => {}
        }
        if let Some(token) = self.current.get(appkey) {
            let age = now.saturating_since(self.issued[token].at);
            if age < settings.token_repeats.min(settings.token_life) {
                return Ok(Token { value: token.clone(), valid_for: settings.token_life - age });
            }
        }
        let value = format!("mock-token-{:032x}", fastrand::u128(..));
        self.current.insert(appkey.to_owned(), value.clone());
        self.issued.insert(value.clone(), Issue { appkey: appkey.to_owned(), at: now, expired: false });
        Ok(Token { value, valid_for: settings.token_life })
    }

    /// Every token issued so far expires now, and none of them comes back. Attempts count as before.
    pub fn expire(&mut self) {
        self.issued.values_mut().for_each(|issue| issue.expired = true);
        self.current.clear();
    }

    /// Whether a call with this `authorization` header and app key may pass.
    pub fn check(&self, now: Instant, authorization: &str, appkey: &str, settings: &Settings) -> Result<(), Code> {
        let token = authorization.strip_prefix("Bearer ").unwrap_or(authorization).trim();
        if token.is_empty() {
            return Err(answers::TOKEN_MISSING);
        }
        match self.issued.get(token) {
            Some(issue) if issue.appkey != appkey => Err(answers::TOKEN_INVALID),
            Some(issue) if issue.expired => Err(answers::TOKEN_EXPIRED),
            Some(issue) if now.saturating_since(issue.at) >= settings.token_life => Err(answers::TOKEN_EXPIRED),
            Some(_) => Ok(()),
            None => Err(answers::TOKEN_INVALID),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;
    const HOUR: u64 = 3600;

    fn at(seconds: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(1_000_000 + seconds))
    }

    fn try_with(tokens: &mut Tokens, seconds: u64, secret: &str) -> Result<Token, Code> {
        tokens.issue(at(seconds), "mock-app-key", secret, &Settings::default())
    }

    #[test]
    fn an_app_key_may_try_once_a_minute_and_failures_count() {
        let tokens = &mut Tokens::default();
        assert_eq!(try_with(tokens, 0, "wrong"), Err(answers::WRONG_SECRET));
        assert_eq!(try_with(tokens, 59, "mock-app-secret"), Err(answers::TOKEN_TOO_SOON));
        assert_eq!(try_with(tokens, 59 + 59, "mock-app-secret"), Err(answers::TOKEN_TOO_SOON));
        assert!(try_with(tokens, 59 + 59 + 60, "mock-app-secret").is_ok());
        let other = tokens.issue(at(0), "other", "any", &Settings::default());
        assert_eq!(other, Err(answers::UNKNOWN_KEY));
    }

    #[test]
    fn the_same_token_comes_back_for_six_hours_and_lives_for_a_day() {
        let tokens = &mut Tokens::default();
        let first = try_with(tokens, 0, "mock-app-secret").unwrap();
        assert_eq!(first.valid_for, Duration::from_secs(24 * HOUR));
        let again = try_with(tokens, 6 * HOUR - MINUTE, "mock-app-secret").unwrap();
        assert_eq!(again, Token { valid_for: Duration::from_secs(18 * HOUR + MINUTE), ..first.clone() });
        let next = try_with(tokens, 6 * HOUR, "mock-app-secret").unwrap();
        assert_ne!(next.value, first.value);

        let check = |seconds, token: &Token| {
            tokens.check(at(seconds), &format!("Bearer {}", token.value), "mock-app-key", &Settings::default())
        };
        assert_eq!(check(24 * HOUR - 1, &first), Ok(()));
        assert_eq!(check(24 * HOUR, &first), Err(answers::TOKEN_EXPIRED));
        assert_eq!(check(24 * HOUR, &next), Ok(()));
    }

    #[test]
    fn a_token_that_was_made_to_expire_never_comes_back() {
        let tokens = &mut Tokens::default();
        let old = try_with(tokens, 0, "mock-app-secret").unwrap();
        tokens.expire();
        assert_eq!(try_with(tokens, 59, "mock-app-secret"), Err(answers::TOKEN_TOO_SOON));
        let new = try_with(tokens, 59 + 60, "mock-app-secret").unwrap();
        let check = |token: &Token| {
            tokens.check(at(120), &format!("Bearer {}", token.value), "mock-app-key", &Settings::default())
        };
        assert_eq!((check(&old), check(&new)), (Err(answers::TOKEN_EXPIRED), Ok(())));
    }

    #[test]
    fn a_token_of_another_key_is_invalid() {
        let tokens = &mut Tokens::default();
        let token = try_with(tokens, 0, "mock-app-secret").unwrap();
        let check = |authorization: &str, appkey| tokens.check(at(1), authorization, appkey, &Settings::default());
        assert_eq!(check(&token.value, "mock-app-key"), Ok(()));
        assert_eq!(check(&token.value, "other"), Err(answers::TOKEN_INVALID));
        assert_eq!(check("Bearer made-up", "mock-app-key"), Err(answers::TOKEN_INVALID));
        assert_eq!(check("Bearer ", "mock-app-key"), Err(answers::TOKEN_MISSING));
    }
}
