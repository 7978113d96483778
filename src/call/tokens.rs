//! Access tokens: fetched once for everybody, kept while they are valid, renewed before they expire.
//!
//! A task of its own fetches, so that a caller who goes away wastes no issued token: some vendors issue one a minute. A
//! token that failed is dropped by its own number, so that of many callers who failed with it the first causes one fetch
//! and the others find the new token.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
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
    numbers: u64,
}

/// The surface that issues it, and whose it is.
type Key = (Arc<str>, Credential);

#[derive(Default)]
struct Place {
    token: Option<Issued>,
    /// What comes of the fetch under way.
    coming: Option<watch::Receiver<Coming>>,
    /// A renewal that failed is not tried again before this.
    renew_again_at: Instant,
}

type Coming = Option<Result<Issued, Arc<CallError>>>;

impl Place {
    /// The fetch under way. One whose runtime has shut down is none.
    fn coming(&self) -> Option<&watch::Receiver<Coming>> {
        self.coming.as_ref().filter(|coming| coming.has_changed().is_ok())
    }
}

const LONGEST_MARGIN: Duration = Duration::from_secs(60);
const RENEW_AGAIN: Duration = Duration::from_secs(5);

impl<C: Clock, S: Store> Tokens<C, S> {
    pub fn from(&self, surface: Arc<str>, source: Arc<dyn TokenSource<C, S>>) {
        self.sources().insert(surface, source);
    }

    pub fn source(&self, surface: &str) -> Option<Arc<dyn TokenSource<C, S>>> {
        self.sources().get(surface).cloned()
    }

    /// A valid token; `surface` issues it. Waits for one until `deadline`; a fetch ends after `longest`.
    pub async fn get(
        &self,
        budgets: &CallBudget<C, S>,
        surface: &Arc<str>,
        credential: &Credential,
        deadline: Instant,
        longest: Duration,
    ) -> Result<Issued, Arc<CallError>> {
        let (clock, key) = (budgets.clock(), (Arc::clone(surface), credential.clone()));
        let mut coming = match self.look(budgets, &key, longest) {
            Look::Token(token) => return Ok(token),
            Look::Coming(coming) => coming,
        };
        let come = async { coming.wait_for(Option::is_some).await.ok().and_then(|come| come.clone()) };
        match clock.until(deadline, come).await {
            Some(Some(come)) => come,
            Some(None) => Err(no_token(surface, Broken::Interrupted, "the fetch of a token ended with its runtime")),
            None => Err(no_token(surface, Broken::TimedOut, "max_wait passed before a token came")),
        }
    }

    /// This token failed: it is not used again. A newer one stays.
    pub fn failed(&self, surface: &Arc<str>, credential: &Credential, token: &Issued) {
        let mut kept = kept(&self.kept);
        if let Some(place) = kept.places.get_mut(&(Arc::clone(surface), credential.clone())) {
            place.token.take_if(|kept| kept.number == token.number);
        }
    }

    /// The token that is there, or the one to come.
    fn look(&self, budgets: &CallBudget<C, S>, key: &Key, longest: Duration) -> Look {
        let now = budgets.clock().now();
        let (look, fetch) = {
            let mut kept = kept(&self.kept);
            if !kept.places.contains_key(key) {
                // Of credentials that are used no longer nothing is to pile up.
                kept.places.retain(|_, place| {
                    place.coming().is_some() || place.token.as_ref().is_some_and(|token| now < token.expires_at)
                });
            }
            let place = kept.places.entry(key.clone()).or_default();
            let valid = place.token.clone().filter(|token| now < token.expires_at);
            match (valid, place.coming().cloned()) {
                (Some(token), coming) => {
                    let due = coming.is_none() && now >= token.renew_at && now >= place.renew_again_at;
                    (Look::Token(token), due.then(|| place.begin()))
                }
                (None, Some(coming)) => (Look::Coming(coming), None),
                (None, None) => {
                    let come = place.begin();
                    (Look::Coming(come.subscribe()), Some(come))
                }
            }
        };
        // Not under the lock: a runtime that is shutting down drops the task at once.
        if let (Some(come), Some(source)) = (fetch, self.source(&key.0)) {
            let fetch = Fetch { kept: Arc::clone(&self.kept), key: key.clone(), come };
            tokio::spawn(fetch.run(budgets.clone(), source, longest));
        }
        look
    }

    fn sources(&self) -> MutexGuard<'_, Sources<C, S>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Look {
    Token(Issued),
    Coming(watch::Receiver<Coming>),
}

impl Place {
    fn begin(&mut self) -> watch::Sender<Coming> {
        let (come, coming) = watch::channel(None);
        self.coming = Some(coming);
        come
    }
}

struct Fetch {
    kept: Arc<Mutex<Kept>>,
    key: Key,
    come: watch::Sender<Coming>,
}

impl Fetch {
    async fn run<C: Clock, S: Store>(
        self,
        budgets: CallBudget<C, S>,
        source: Arc<dyn TokenSource<C, S>>,
        longest: Duration,
    ) {
        let (surface, credential) = &self.key;
        let (clock, began) = (budgets.clock().clone(), budgets.clock().now());
        let fetching = AssertUnwindSafe(async { source.fetch(budgets, credential.clone()).await }).catch_unwind();
        let fetched = match clock.until(began + longest, fetching).await {
            Some(Ok(Ok(token))) => Ok(token),
            Some(Ok(Err(error))) => Err(Arc::new(error)),
            Some(Err(_)) => Err(no_token(surface, Broken::Interrupted, "the token source panicked")),
            None => Err(no_token(surface, Broken::TimedOut, "the token source took too long")),
        };
        let mut kept = kept(&self.kept);
        kept.numbers += 1;
        let number = kept.numbers;
        let come = fetched.map(|Token { value, valid_for }| Issued {
            value: Arc::new(value),
            number,
            renew_at: began + (valid_for - LONGEST_MARGIN.min(valid_for / 10)),
            expires_at: began + valid_for,
        });
        let place = kept.places.entry(self.key.clone()).or_default();
        match &come {
            Ok(token) => place.token = Some(token.clone()),
            Err(_) => place.renew_again_at = clock.now() + RENEW_AGAIN,
        }
        place.coming = None;
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
