//! `CallBudget::call`: breaker, budget, send, classify, settle.
//!
//! The order of a call: holds, breaker, token, slot, the request itself, and what its whole answer means. What refuses for
//! nothing goes first, so an open breaker costs no slot. Every attempt takes a pass and a slot of its own.

mod answer;
mod attempt;
mod board;
mod error;
mod front;
mod guarded;
mod options;
mod pushback;
mod run;
mod tending;
mod throttled;
mod tokens;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::coordinator::CallBudget;
use crate::store::Store;

use run::Call;

pub use answer::{Answer, Answered, Credential, Failed};
pub use attempt::Attempt;
pub use board::BreakerReport;
pub use error::CallError;
pub use guarded::{Guarded, Told};
pub use options::CallOptions;
pub use tokens::{Fetching, Token, TokenSource};

pub(crate) use front::Front;
pub(crate) use pushback::Pushbacks;

impl<C: Clock, S: Store> CallBudget<C, S> {
    /// Makes a call of this surface; see [`CallBudget::call_with`].
    ///
    /// # Errors
    /// As [`CallBudget::call_with`].
    pub async fn call<A, F, Fut>(
        &self,
        surface: &str,
        credential: &Credential,
        request: F,
    ) -> Result<Answered<A>, CallError>
    where
        A: Answer + Send,
        F: FnMut(Attempt) -> Fut + Send,
        Fut: Future<Output = Result<A, Failed>> + Send,
    {
        self.call_with(surface, credential, CallOptions::default(), request).await
    }

    /// Makes a call of this surface: `request` sends it and reads the whole answer, once for each attempt.
    ///
    /// Holds and breaker may refuse it at once; then it waits for a slot, sends inside the slot's window, and settles what
    /// the answer says of vendor, credential and budget. All complete answers are `Ok`, whatever their verdict. Dropping the
    /// future leaves nothing behind; a slot that was already granted to it is spent.
    ///
    /// # Errors
    /// See [`CallError`]: no whole answer came. Nothing was sent where
    /// [`may_have_been_sent`](CallError::may_have_been_sent) is false.
    pub async fn call_with<A, F, Fut>(
        &self,
        surface: &str,
        credential: &Credential,
        options: CallOptions,
        request: F,
    ) -> Result<Answered<A>, CallError>
    where
        A: Answer + Send,
        F: FnMut(Attempt) -> Fut + Send,
        Fut: Future<Output = Result<A, Failed>> + Send,
    {
        self.front().books.of(surface).calls();
        Call::new(self, surface, credential, options)?.run(request).await
    }

    /// Gets leave for one attempt that is made outside of this process's `call`: holds, breaker and slot as for a call, and
    /// the attempt may leave now. Retries are the caller's, each a call of its own; access tokens are not handed out.
    ///
    /// # Errors
    /// As [`CallBudget::call_with`], before anything was sent.
    pub async fn guard(
        &self,
        surface: &str,
        credential: &Credential,
        options: CallOptions,
    ) -> Result<Guarded<C, S>, CallError> {
        self.front().books.of(surface).calls();
        let (call, underway) = Call::new(self, surface, credential, options)?.begun().await?;
        Ok(Guarded::new(call, underway))
    }

    /// From now on, the surfaces whose `token_surface` this is get their tokens from `source`.
    ///
    /// # Errors
    /// The settings have no such surface.
    pub fn tokens_from(&self, token_surface: &str, source: impl TokenSource<C, S>) -> Result<(), CallError> {
        let front = self.front();
        let Some(surface) = front.surfaces.get(token_surface) else {
            return Err(CallError::UnknownSurface(token_surface.to_owned()));
        };
        front.tokens.from(Arc::clone(&surface.name), Arc::new(source));
        Ok(())
    }

    /// The breaker in front of this surface, to be looked at or given orders by hand; `None` where there is none.
    pub fn breaker(&self, surface: &str) -> Option<Breaker<C>> {
        let front = self.front();
        let (name, _) = front.surfaces.get(surface)?.breaker.as_ref()?;
        front.board.breaker(name).cloned()
    }

    /// All breakers of this process as they are now, by name, with what is held on their surfaces.
    pub fn breakers(&self) -> Vec<BreakerReport> {
        self.front().board.reports()
    }

    /// The number under which the breakers of this process are shown to the whole fleet; `None` while the switch is off.
    pub fn process(&self) -> Option<i64> {
        self.front().process()
    }

    /// How often vendors have said "too many" since start, by their own code.
    pub fn throttled(&self) -> BTreeMap<Arc<str>, u64> {
        self.front().throttled.read()
    }

    /// The longest that fetching a token may take: what a call of the surface that issues it may take.
    fn longest_fetch(&self, token_surface: &str) -> Duration {
        self.front().surfaces.get(token_surface).map_or(self.max_wait(), |surface| {
            let retries = surface.retry.as_ref().map_or(0, |retry| retry.waits.len());
            let attempts = u32::try_from(retries).unwrap_or(u32::MAX).saturating_add(1);
            self.max_wait().saturating_add(surface.attempt_timeout.saturating_mul(attempts))
        })
    }
}
