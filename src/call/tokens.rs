//! Access tokens: fetched once for everybody, kept while they are valid, renewed before they expire.
//!
//! A task of its own fetches, so that a caller who goes away wastes no issued token: some vendors issue one a minute. A
//! token that failed is dropped by its own number, so that of many callers who failed with it the first causes one fetch
//! and the others find the new token.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;

use super::{CallError, Credential, Failed};
use crate::clock::Clock;
use crate::config::Secret;
use crate::coordinator::CallBudget;
use crate::policy::Instant;
use crate::policy::verdict::Broken;
use crate::store::Store;

/// Where the access tokens of a surface come from. A closure `|budgets, credential| async { .. }` is one.
pub trait TokenSource<C: Clock, S: Store>: Send + Sync + 'static {
    /// A new token for this credential: as a rule by `budgets.call` of the surface that issues tokens, so that its own
    /// limit, breaker and holds count.
    fn fetch(&self, budgets: CallBudget<C, S>, credential: Credential) -> Fetching;
}

/// A token on its way.
pub type Fetching = Pin<Box<dyn Future<Output = Result<Token, CallError>> + Send>>;

impl<C: Clock, S: Store, F, Fut> TokenSource<C, S> for F
where
    F: Fn(CallBudget<C, S>, Credential) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Token, CallError>> + Send + 'static,
{
    fn fetch(&self, budgets: CallBudget<C, S>, credential: Credential) -> Fetching {
        Box::pin(self(budgets, credential))
    }
}

/// An access token as the vendor issued it.
#[derive(Clone, Debug)]
pub struct Token {
    pub value: Secret,
    /// From when it was asked for. A new one is fetched 60 s, or a tenth of this, before its end.
    pub valid_for: Duration,
}

/// A token in use.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    pub value: Arc<Secret>,
    /// Tells it from a later one, which may have the same value.
    number: u64,
    renew_at: Instant,
    expires_at: Instant,
    /// It replaced none that was refused, or a call with it went well.
    proven: Arc<AtomicBool>,
}

impl Issued {
    /// A call with it went well.
    pub fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    /// Whether another one can be better where this one is refused. Where it replaced a refused one itself: no.
    pub fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }
}

pub(super) struct Tokens<C: Clock, S: Store> {
    sources: Mutex<Sources<C, S>>,
    kept: Arc<Mutex<Kept>>,
}

/// By the surface that issues them.
type Sources<C, S> = HashMap<Arc<str>, Arc<dyn TokenSource<C, S>>>;

impl<C: Clock, S: Store> Default for Tokens<C, S> {
    fn default() -> Self {
        Self { sources: Mutex::default(), kept: Arc::default() }
    }
}

#[derive(Default)]
struct Kept {
    places: HashMap<Key, Place>,
    /// Of the last fetch, and of the token that it brings.
    number: u64,
}

/// The surface that issues it, and whose it is.
type Key = (Arc<str>, Credential);

#[derive(Default)]
struct Place {
    token: Option<Issued>,
    /// The fetch under way.
    coming: Option<Coming>,
    /// A renewal that failed is not tried again before this.
    renew_again_at: Instant,
    /// The last one was refused, and would have been valid until then: the next one replaces it.
    refused_until: Instant,
}

/// A fetch under way.
#[derive(Clone)]
struct Coming {
    number: u64,
    outcome: watch::Receiver<Come>,
    /// When it has come to an end.
    due: Instant,
}

/// What has come of it.
type Come = Option<Result<Issued, Arc<CallError>>>;

impl Place {
    /// The fetch under way. One whose runtime has shut down or stands still is none.
    fn coming(&self, now: Instant) -> Option<&Coming> {
        self.coming.as_ref().filter(|coming| coming.outcome.has_changed().is_ok() && now < coming.due + OVERDUE)
    }

    fn begin(&mut self, number: u64, due: Instant) -> (Coming, watch::Sender<Come>) {
        let (come, outcome) = watch::channel(None);
        let coming = Coming { number, outcome, due };
        self.coming = Some(coming.clone());
        (coming, come)
    }
}

const LONGEST_MARGIN: Duration = Duration::from_secs(60);
const RENEW_AGAIN: Duration = Duration::from_secs(5);
/// A fetch that has not ended so long after it ought to have stands still, with the runtime under it.
const OVERDUE: Duration = Duration::from_secs(5);

impl<C: Clock, S: Store> Tokens<C, S> {
    pub fn from(&self, surface: Arc<str>, source: Arc<dyn TokenSource<C, S>>) {
        self.sources().insert(surface, source);
    }

    pub fn source(&self, surface: &str) -> Option<Arc<dyn TokenSource<C, S>>> {
        self.sources().get(surface).cloned()
    }

    /// Whether somebody fetches what this surface issues.
    pub fn has_source(&self, surface: &str) -> bool {
        self.sources().contains_key(surface)
    }

    /// The token that `surface` has issued and that is valid, or the one to come: see [`Tokens::wait`]. A fetch takes at
    /// most `longest`.
    pub fn look(
        &self,
        budgets: &CallBudget<C, S>,
        surface: &Arc<str>,
        credential: &Credential,
        longest: Duration,
    ) -> Look {
        let (now, key) = (budgets.clock().now(), (Arc::clone(surface), credential.clone()));
        let fetch = |number, come| Fetch { kept: Arc::clone(&self.kept), key: key.clone(), number, come, longest };
        let (token, renewal) = {
            let mut kept = kept(&self.kept);
            if !kept.places.contains_key(&key) {
                // Of credentials that are used no longer nothing is to pile up.
                kept.places.retain(|_, place| place.is_needed(now));
            }
            kept.number += 1;
            let number = kept.number;
            let place = kept.places.entry(key.clone()).or_default();
            let valid = place.token.clone().filter(|token| now < token.expires_at);
            match (valid, place.coming(now).cloned()) {
                (Some(token), coming) => {
                    let due = coming.is_none() && now >= token.renew_at && now >= place.renew_again_at;
                    (token, due.then(|| fetch(number, place.begin(number, now + longest).1)))
                }
                (None, Some(coming)) => return Look::Coming(Awaited { key, coming, fetch: None }),
                (None, None) => {
                    let (coming, come) = place.begin(number, now + longest);
                    let fetch = Some(fetch(number, come));
                    return Look::Coming(Awaited { key, coming, fetch });
                }
            }
        };
        // Not under the lock: a runtime that is shutting down drops the task at once.
        if let Some(fetch) = renewal {
            self.begin(budgets, fetch);
        }
        Look::Token(token)
    }

    /// Fetches what is to come, unless somebody does, and waits for it until `deadline`.
    pub async fn wait(
        &self,
        budgets: &CallBudget<C, S>,
        mut awaited: Awaited,
        deadline: Instant,
        longest: Duration,
    ) -> Result<Issued, Arc<CallError>> {
        let clock = budgets.clock();
        loop {
            let Awaited { key: (surface, credential), mut coming, fetch } = awaited;
            if let Some(fetch) = fetch {
                self.begin(budgets, fetch);
            }
            let come = async { coming.outcome.wait_for(Option::is_some).await.ok().and_then(|come| come.clone()) };
            match clock.until(deadline.min(coming.due + OVERDUE), come).await {
                Some(Some(come)) => return come,
                Some(None) => {
                    return Err(no_token(&surface, Broken::Interrupted, "the fetch of a token ended with its runtime"));
                }
                None if clock.now() >= deadline => {
                    return Err(no_token(&surface, Broken::TimedOut, "max_wait passed before a token came"));
                }
                // The runtime that fetches it stands still.
                None => match self.look(budgets, &surface, &credential, longest) {
                    Look::Token(token) => return Ok(token),
                    Look::Coming(another) => awaited = another,
                },
            }
        }
    }

    /// This token failed: it is not used again. A newer one stays.
    pub fn failed(&self, surface: &Arc<str>, credential: &Credential, token: &Issued) {
        let mut kept = kept(&self.kept);
        if let Some(place) = kept.places.get_mut(&(Arc::clone(surface), credential.clone()))
            && place.token.take_if(|kept| kept.number == token.number).is_some()
        {
            place.refused_until = token.expires_at;
        }
    }

    fn begin(&self, budgets: &CallBudget<C, S>, fetch: Fetch) {
        if let Some(source) = self.source(&fetch.key.0) {
            tokio::spawn(fetch.run(budgets.clone(), source));
        }
    }

    fn sources(&self) -> MutexGuard<'_, Sources<C, S>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) enum Look {
    Token(Issued),
    Coming(Awaited),
}

/// A token to come.
pub(super) struct Awaited {
    key: Key,
    coming: Coming,
    /// Where nobody fetches it yet.
    fetch: Option<Fetch>,
}

impl Place {
    fn is_needed(&self, now: Instant) -> bool {
        let valid = self.token.as_ref().is_some_and(|token| now < token.expires_at);
        valid || self.coming(now).is_some() || now < self.refused_until
    }
}

struct Fetch {
    kept: Arc<Mutex<Kept>>,
    key: Key,
    number: u64,
    come: watch::Sender<Come>,
    longest: Duration,
}

impl Fetch {
    async fn run<C: Clock, S: Store>(self, budgets: CallBudget<C, S>, source: Arc<dyn TokenSource<C, S>>) {
        let (surface, credential) = &self.key;
        let (clock, began) = (budgets.clock().clone(), budgets.clock().now());
        let fetching = AssertUnwindSafe(async { source.fetch(budgets, credential.clone()).await }).catch_unwind();
        let fetched = match clock.until(began + self.longest, fetching).await {
            Some(Ok(Ok(token))) => Ok(token),
            Some(Ok(Err(error))) => Err(Arc::new(error)),
            Some(Err(_)) => Err(no_token(surface, Broken::Interrupted, "the token source panicked")),
            None => Err(no_token(surface, Broken::TimedOut, "the token source took too long")),
        };
        let mut kept = kept(&self.kept);
        let place = kept.places.entry(self.key.clone()).or_default();
        let proven = began >= place.refused_until;
        let come = fetched.map(|Token { value, valid_for }| Issued {
            value: Arc::new(value),
            number: self.number,
            renew_at: began + (valid_for - LONGEST_MARGIN.min(valid_for / 10)),
            expires_at: began + valid_for,
            proven: Arc::new(proven.into()),
        });
        // One that stood still for long has been replaced: what it brings is for those who still wait for it.
        if place.coming.take_if(|coming| coming.number == self.number).is_some() {
            match &come {
                Ok(token) => (place.token, place.refused_until) = (Some(token.clone()), Instant::default()),
                Err(_) => place.renew_again_at = clock.now() + RENEW_AGAIN,
            }
        }
        drop(kept);
        self.come.send_replace(Some(come));
    }
}

fn no_token(surface: &Arc<str>, how: Broken, why: &'static str) -> Arc<CallError> {
    let source = Failed::Broken { how, source: why.into() };
    Arc::new(CallError::Failed { surface: Arc::clone(surface), finding: None, attempts: 1, source })
}

fn kept(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
