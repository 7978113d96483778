//! Whose failure it was: what an answer says about the vendor, and who is to wait because of it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// What one attempt says about the vendor's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It answered as it should: also with a no that concerns the request alone.
    Good,
    /// It failed.
    Bad,
    /// Nothing was learned: the failure belongs to a key, a budget, or to ourselves.
    None,
}

/// What was seen of one attempt, reduced to what a vendor table looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen<'a> {
    /// The whole answer came.
    Answer(Facts<'a>),
    /// No whole answer came.
    Broken(Broken),
}

/// A whole answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts<'a> {
    pub status: u16,
    /// The body is what this vendor's bodies are (JSON where the table says so).
    pub well_formed: bool,
    /// The vendor's own code from the body.
    pub code: Option<&'a str>,
    /// The vendor's own words from the body.
    pub text: Option<&'a str>,
    pub retry_after: Option<Duration>,
}

/// How an attempt ended that brought no whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// DNS, connect or TLS: the request never left, so it may be sent again whatever it is.
    NotConnected,
    /// Reset, closed early, truncated: the request may have been carried out.
    Interrupted,
    /// Our own attempt timeout: the request may have been carried out.
    TimedOut,
}

/// What a vendor table makes of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub verdict: Verdict,
    /// Who waits because of it, and for how long.
    pub action: Action,
    /// The vendor's code, where it gave one.
    pub code: Option<Arc<str>>,
    /// The vendor said "too many": counted by code.
    pub throttled: bool,
    /// The request may have been carried out although no answer says so: one that must not happen twice is never sent again.
    pub outcome_unknown: bool,
    /// The vendor itself says that it may have been carried out: it is not sent again, whatever it is.
    pub never_again: bool,
    /// The source answered that it has nothing: a fallback goes on to the next.
    pub no_data: bool,
    /// For the person who reads it: what it means and what to do.
    pub meaning: Arc<str>,
}

/// Who is to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// This credential, until it changes, else 60 s doubling to 1 h, one call let through after each.
    HoldCredentialUntilChanged,
    /// This credential, this long.
    HoldCredential(Duration),
    /// This surface, this long. With a verdict of bad: no open wait is shorter.
    HoldSurface(Duration),
    /// The surface that issues tokens, this long.
    HoldTokenSurface(Duration),
    /// Everybody who shares the budget.
    PushBack(Duration),
    /// Everybody who shares the budget, and here the credential too: the fleet is pushed back by the store, which caps how
    /// far, and not at all while the switch is off.
    PushBackAndHoldCredential(Duration),
    /// Drop the token that failed, fetch a new one and try once more. Where no token can be fetched, or a fresh one was
    /// refused as well, it is the credential that is wrong: see [`Finding::without_refresh`].
    RefreshToken,
}

impl Action {
    /// How far everybody who shares the budget is to be pushed back.
    pub fn push_back(self) -> Option<Duration> {
        match self {
            Self::PushBack(wait) | Self::PushBackAndHoldCredential(wait) => Some(wait),
            _ => None,
        }
    }

    /// The same scope, for this long.
    fn lasting(self, wait: Duration) -> Self {
        match self {
            Self::HoldCredential(_) => Self::HoldCredential(wait),
            Self::HoldSurface(_) => Self::HoldSurface(wait),
            Self::HoldTokenSurface(_) => Self::HoldTokenSurface(wait),
            Self::PushBack(_) => Self::PushBack(wait),
            Self::PushBackAndHoldCredential(_) => Self::PushBackAndHoldCredential(wait),
            Self::Nothing | Self::HoldCredentialUntilChanged | Self::RefreshToken => self,
        }
    }
}

impl Finding {
    /// This finding where there is no token to refresh, or a fresh one was refused as well: the credential is held instead.
    #[must_use]
    pub fn without_refresh(mut self) -> Self {
        if self.action == Action::RefreshToken {
            self.action = Action::HoldCredentialUntilChanged;
        }
        self
    }

    /// No vendor says anything here, so no table does.
    fn of_broken(how: Broken) -> Self {
        let meaning = match how {
            Broken::NotConnected => {
                "The vendor could not be reached: the request never left. Check the name, the network and the certificate \
                 if it goes on."
            }
            Broken::Interrupted => {
                "The connection ended before the whole answer was here: the request may have been carried out."
            }
            Broken::TimedOut => "No whole answer came in time: the request may have been carried out.",
        };
        Self {
            verdict: Verdict::Bad,
            action: Action::Nothing,
            code: None,
            throttled: false,
            outcome_unknown: how != Broken::NotConnected,
            never_again: false,
            no_data: false,
            meaning: meaning.into(),
        }
    }
}

/// What a vendor's answers mean: rules in order, of which the first that fits decides.
///
/// Every answer is decided, since the last rule fits all; and a code in the body beats the status, since rules that look
/// at a code stand first.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    rules: Vec<Rule>,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// How messages call it; no two rules of a table share one.
    pub name: Arc<str>,
    pub when: When,
    pub verdict: Verdict,
    /// With the wait for an answer that asks for none by Retry-After.
    pub action: Action,
    /// A Retry-After takes the place of the wait in `action`.
    pub obey_retry_after: bool,
    pub throttled: bool,
    pub outcome_unknown: bool,
    pub never_again: bool,
    pub no_data: bool,
    pub meaning: Arc<str>,
}

/// Which answers a rule fits: those that meet every condition that it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct When {
    /// The code is one of these; one that ends in `*` stands for all that begin so.
    pub codes: Vec<String>,
    pub statuses: Vec<RangeInclusive<u16>>,
    /// The vendor's words hold one of these, in whatever case.
    pub text: Vec<String>,
    /// The answer has a Retry-After, or has none.
    pub retry_after: Option<bool>,
    /// The body is not what this vendor's bodies are, or is.
    pub malformed: Option<bool>,
}

impl Table {
    /// A table of these rules.
    ///
    /// # Errors
    /// Which rule cannot be, and why, in a sentence.
    pub fn new(mut rules: Vec<Rule>) -> Result<Self, String> {
        let mut names = BTreeSet::new();
        let mut without_code: Option<Arc<str>> = None;
        let last = rules.len().checked_sub(1).ok_or("a table needs at least one rule: one without conditions")?;
        for (place, rule) in rules.iter_mut().enumerate() {
            let refused = |why: &str| Err(format!("rule \"{}\": {why}", rule.name));
            if !names.insert(Arc::clone(&rule.name)) {
                return refused("an earlier rule has this name; each needs its own");
            }
            match (place == last, rule.when.fits_all()) {
                (true, false) => return refused("the last rule has no conditions, so that every answer is decided"),
                (false, true) => {
                    return refused("only the last rule has no conditions: none after it would be reached");
                }
                _ => {}
            }
            match &without_code {
                Some(earlier) if !rule.when.codes.is_empty() => {
                    return refused(&format!(
                        "the code in the body beats the status: move it before \"{earlier}\", which looks at no code"
                    ));
                }
                None if rule.when.codes.is_empty() => without_code = Some(Arc::clone(&rule.name)),
                _ => {}
            }
            if let Some(why) = rule.contradiction() {
                return refused(why);
            }
            for text in &mut rule.when.text {
                *text = text.to_lowercase();
            }
        }
        Ok(Self { rules })
    }

    /// Whose failure it was.
    pub fn judge(&self, seen: Seen<'_>) -> Finding {
        match seen {
            Seen::Answer(facts) => self.deciding(&facts).finding(&facts),
            Seen::Broken(how) => Finding::of_broken(how),
        }
    }

    /// The rule that decides on this answer.
    pub fn deciding(&self, facts: &Facts<'_>) -> &Rule {
        self.rules.iter().find(|rule| rule.when.fits(facts)).expect("the last rule fits every answer")
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

impl Rule {
    fn finding(&self, facts: &Facts<'_>) -> Finding {
        let wait = facts.retry_after.filter(|_| self.obey_retry_after);
        Finding {
            verdict: self.verdict,
            action: wait.map_or(self.action, |wait| self.action.lasting(wait)),
            code: facts.code.map(Arc::from),
            throttled: self.throttled,
            outcome_unknown: self.outcome_unknown,
            never_again: self.never_again,
            no_data: self.no_data,
            meaning: Arc::clone(&self.meaning),
        }
    }

    fn contradiction(&self) -> Option<&'static str> {
        if self.outcome_unknown && self.action == Action::RefreshToken {
            return Some(
                "refresh_token sends the request again, which must not be where outcome_unknown says that it may have been \
                 carried out: keep one of them",
            );
        }
        if self.never_again && !self.outcome_unknown {
            return Some("what is never sent again is what may have been carried out: say outcome_unknown = true too");
        }
        let of_somebody = !matches!(self.action, Action::Nothing | Action::HoldSurface(_));
        match self.verdict {
            Verdict::Good if self.action != Action::Nothing => Some("a good answer holds nobody back"),
            Verdict::Bad if of_somebody => {
                Some("what is the fault of a key, a token or a budget is not the vendor's failure: verdict = \"none\"")
            }
            Verdict::Good | Verdict::Bad if self.throttled || self.no_data => {
                Some("an answer that is throttled or has no data says nothing of the vendor: verdict = \"none\"")
            }
            Verdict::Good if self.outcome_unknown => Some("the outcome of a good answer is known"),
            _ => None,
        }
    }
}

impl When {
    fn fits_all(&self) -> bool {
        *self == Self::default()
    }

    fn fits(&self, facts: &Facts<'_>) -> bool {
        (self.codes.is_empty() || facts.code.is_some_and(|code| self.codes.iter().any(|known| names(known, code))))
            && (self.statuses.is_empty() || self.statuses.iter().any(|range| range.contains(&facts.status)))
            && self.malformed.is_none_or(|malformed| malformed != facts.well_formed)
            && self.retry_after.is_none_or(|given| given == facts.retry_after.is_some())
            && (self.text.is_empty() || facts.text.is_some_and(|text| self.is_said_in(text)))
    }

    fn is_said_in(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.text.iter().any(|words| text.contains(words.as_str()))
    }
}

fn names(known: &str, code: &str) -> bool {
    known.strip_suffix('*').map_or(known == code, |beginning| code.starts_with(beginning))
}
