//! One call, over all its attempts.

use std::error::Error;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::attempt::Attempt;
use super::tokens::{Issued, Look};
use super::{Answer, Answered, CallError, CallOptions, Credential, Failed};
use crate::breaker::{self, Breaker, Pass};
use crate::clock::Clock;
use crate::config::surfaces::Surface;
use crate::coordinator::{CallBudget, Options};
use crate::figures::SurfaceBook;
use crate::permit::{Permit, Sending};
use crate::policy::Instant;
use crate::policy::breaker::{Caller, Counted, Outcome, Refusal};
use crate::policy::hold::{Held, Holder, Trial};
use crate::policy::verdict::{Action, Broken, Finding, Verdict};
use crate::store::Store;
use crate::vendor::Ended;

/// A call on its way.
pub(super) struct Call<C: Clock, S: Store> {
    budgets: CallBudget<C, S>,
    pub(super) surface: Arc<Surface>,
    book: Arc<SurfaceBook>,
    breaker: Option<Breaker<C>>,
    credential: Credential,
    who: Holder,
    caller: Caller,
    class: Arc<str>,
    cost: u32,
    idempotent: bool,
    /// Of all waits together: each attempt moves it by the time that it took.
    deadline: Instant,
    /// Begun so far.
    attempts: u32,
    /// Of these, the ones that the rule for retries counts.
    failed: u32,
    refreshed: bool,
    outcome_unknown: bool,
}

/// Everything that one attempt needs. Dropping it gives all of it back, the slot aside.
struct Ready<C: Clock> {
    trial: Trial,
    pass: Option<Pass<C>>,
    token: Option<Issued>,
    permit: Permit<C>,
}

/// An attempt under way. Dropping it gives all of it back, the slot aside.
pub(super) struct Underway<C: Clock> {
    trial: Trial,
    pass: OnPass<C>,
    token: Option<Issued>,
    sending: Sending,
    began: Instant,
}

/// How an attempt ended that had begun.
type Ending<A> = Result<A, (Broken, Box<dyn Error + Send + Sync>)>;
/// What a call has come to so far.
type Outcomes<A> = Result<Answered<A>, CallError>;

impl<C: Clock, S: Store> Call<C, S> {
    pub fn new(
        budgets: &CallBudget<C, S>,
        surface: &str,
        credential: &Credential,
        options: CallOptions,
    ) -> Result<Self, CallError> {
        let front = budgets.front();
        let Some(surface) = front.surfaces.get(surface).map(Arc::clone) else {
            return Err(CallError::UnknownSurface(surface.to_owned()));
        };
        let CallOptions { class, cost, max_wait, idempotent } = options;
        let class = class.unwrap_or_else(|| Arc::clone(&surface.class));
        let breaker = surface.breaker.as_ref().and_then(|(name, _)| front.board.breaker(name)).cloned();
        let credential = credential.or(&surface.credential);
        let who = Holder {
            account: Arc::clone(&surface.account),
            surface: Arc::clone(&surface.name),
            token_surface: surface.token_surface.clone(),
            credential: Arc::clone(&credential.label),
            revision: credential.revision,
            issues_tokens: front.tokens.has_source(&surface.name),
        };
        let may_probe = front.surfaces.may_probe(&class);
        Ok(Self {
            budgets: budgets.clone(),
            book: Arc::clone(front.books.of(&surface.name)),
            breaker,
            credential,
            who,
            caller: Caller { call: breaker::next_call(), may_probe, starts_now: false },
            class,
            cost,
            idempotent: idempotent.unwrap_or(surface.idempotent),
            deadline: budgets.clock().now() + max_wait.unwrap_or(budgets.max_wait()),
            attempts: 0,
            failed: 0,
            refreshed: false,
            outcome_unknown: false,
            surface,
        })
    }

    pub async fn run<A, F, Fut>(mut self, mut request: F) -> Outcomes<A>
    where
        A: Answer + Send,
        F: FnMut(Attempt) -> Fut + Send,
        Fut: Future<Output = Result<A, Failed>> + Send,
    {
        let mut so_far = None;
        loop {
            let ready = match self.ready().await {
                Ok(ready) => ready,
                // Once something was sent, what came of it says more than why it is not sent again.
                Err(refused) => return so_far.unwrap_or(Err(refused)),
            };
            // From here to the first poll of the request nothing waits: the window is open now.
            let underway = match self.begin(ready) {
                Ok(Some(underway)) => underway,
                Ok(None) => continue,
                Err(refused) => return so_far.unwrap_or(Err(refused)),
            };
            let timeout = underway.began + self.surface.attempt_timeout;
            let sent = self.budgets.clock().until(timeout, request(underway.pass.attempt.clone())).await;
            let ending = match sent {
                Some(Ok(answer)) => Ok(answer),
                Some(Err(Failed::Broken { how, source })) => Err((how, source)),
                Some(Err(ours @ Failed::NotSent(_))) => {
                    // The time that it took says nothing of the vendor either.
                    underway.pass.attempt.heard();
                    return so_far.unwrap_or_else(|| Err(self.failure(None, ours)));
                }
                None => Err((Broken::TimedOut, timed_out(&self.surface))),
            };
            let (outcomes, wait) = self.ended(underway, ending);
            let Some(at) = wait.map(|wait| self.budgets.clock().now() + wait).filter(|at| *at <= self.deadline) else {
                return outcomes;
            };
            so_far = Some(outcomes);
            if wait != Some(Duration::ZERO) {
                self.budgets.clock().sleep_until(at).await;
            }
        }
    }

    /// Gets so far that one attempt may leave now.
    pub async fn begun(mut self) -> Result<(Self, Underway<C>), CallError> {
        loop {
            let ready = self.ready().await?;
            if let Some(underway) = self.begin(ready)? {
                return Ok((self, underway));
            }
        }
    }

    /// Settles an attempt by what somebody else has seen of it.
    pub fn told(mut self, underway: Underway<C>, ended: &Ended<'_>, elapsed: Option<Duration>) -> Finding {
        let clock = self.budgets.clock();
        let since = clock.now().saturating_since(underway.began);
        let (mut finding, retry_after) = judged(&self.surface, ended, clock);
        self.refresh(&underway, &mut finding);
        // Nobody else's clock makes it longer than it can have been.
        self.settle(underway, &finding, elapsed.map_or(since, |elapsed| elapsed.min(since)), retry_after);
        finding
    }

    /// Holds, breaker, token, slot: what may refuse for nothing goes first.
    async fn ready(&self) -> Result<Ready<C>, CallError> {
        // Before the holds are asked: none that begins later is missed.
        let mut held = self.budgets.held().subscribe();
        let mut trial = self.unheld(None)?;
        let mut pass = self.admit()?;
        let token = self.token(&mut pass).await?;
        let permit = self.slot(&mut trial, &mut pass, &mut held).await?;
        Ok(Ready { trial, pass, token, permit })
    }

    /// Asks the holds, or asks them again, whose answer was `before`.
    fn unheld(&self, before: Option<Trial>) -> Result<Trial, CallError> {
        let now = self.budgets.clock().now();
        let mut holds = self.budgets.front().board.holds();
        let admitted = match before {
            None => holds.admit(now, &self.who),
            Some(trial) => holds.admit_again(now, &self.who, trial),
        };
        drop(holds);
        admitted.map_err(|Held { scope, until, why }| {
            self.book.refused_by_hold();
            let retry_after = until.saturating_since(now);
            CallError::Held { surface: Arc::clone(&self.surface.name), scope, why, retry_after }
        })
    }

    fn admit(&self) -> Result<Option<Pass<C>>, CallError> {
        let Some(breaker) = &self.breaker else {
            return Ok(None);
        };
        breaker.admit_as(self.caller).map(Some).map_err(|Refusal { reason, retry_at }| {
            self.book.refused_by_breaker();
            let retry_after = retry_at.saturating_since(self.budgets.clock().now());
            CallError::CircuitOpen { surface: Arc::clone(&self.surface.name), reason, retry_after }
        })
    }

    /// A token. Where it has to be waited for, the pass is given back first and there is a new one: the surface that issues
    /// the token may need its place.
    async fn token(&self, pass: &mut Option<Pass<C>>) -> Result<Option<Issued>, CallError> {
        let tokens = &self.budgets.front().tokens;
        let Some(surface) = self.token_surface() else {
            return Ok(None);
        };
        let longest = self.budgets.longest_fetch(surface);
        let awaited = match tokens.look(&self.budgets, surface, &self.credential, longest) {
            Look::Token(token) => return Ok(Some(token)),
            Look::Coming(awaited) => awaited,
        };
        drop(pass.take());
        let token = tokens.wait(&self.budgets, awaited, self.deadline, longest).await;
        let token = token.map_err(|source| CallError::Token { surface: Arc::clone(&self.surface.name), source })?;
        *pass = self.admit()?;
        Ok(Some(token))
    }

    /// The surface that issues its tokens, where somebody fetches them.
    fn token_surface(&self) -> Option<&Arc<str>> {
        let surface = self.surface.token_surface.as_ref()?;
        self.budgets.front().tokens.has_source(surface).then_some(surface)
    }

    /// A slot. Whoever waits for one learns at once that the breaker has changed: then the pass in hand is worth nothing,
    /// and there is a new one or there is none. The same with holds.
    async fn slot(
        &self,
        trial: &mut Trial,
        pass: &mut Option<Pass<C>>,
        held: &mut watch::Receiver<()>,
    ) -> Result<Permit<C>, CallError> {
        let now = self.budgets.clock().now();
        let options = Options { cost: self.cost, max_wait: Some(self.deadline.saturating_since(now)) };
        let mut slot = pin!(self.budgets.acquire_with(&self.surface.budget, &self.class, options));
        loop {
            let outdated = async {
                match (&self.breaker, &*pass) {
                    (Some(breaker), Some(in_hand)) => breaker.outdates(in_hand).await,
                    _ => pending().await,
                }
            };
            tokio::select! {
                biased;
                permit = &mut slot => {
                    return permit.map(|permit| permit.on_behalf_of(self.book.number())).map_err(CallError::Budget);
                }
                () = outdated => {
                    // Given back first: it may be the probe that the next admission needs.
                    drop(pass.take());
                    *pass = self.admit()?;
                }
                Ok(()) = held.changed() => {
                    let before = std::mem::replace(trial, Trial::NONE);
                    *trial = self.unheld(Some(before))?;
                }
            }
        }
    }

    /// The attempt begins, unless pass or window is over.
    ///
    /// # Errors
    /// It is held by now.
    fn begin(&mut self, ready: Ready<C>) -> Result<Option<Underway<C>>, CallError> {
        let Ready { trial, mut pass, token, permit } = ready;
        let trial = self.unheld(Some(trial))?;
        let token_value = token.as_ref().map(|token| Arc::clone(&token.value));
        let attempt = Attempt::new(self.attempts + 1, token_value, &permit);
        // The window first: a probe that the breaker saw begin counts as one.
        let Ok(sending) = permit.start_if(|| pass.as_mut().is_none_or(|pass| pass.sending().is_ok())) else {
            // Whatever time it took to begin, the vendor was not silent.
            if let Some(pass) = &pass {
                pass.heard();
            }
            return Ok(None);
        };
        self.attempts += 1;
        self.book.attempts();
        let pass = OnPass { pass, attempt };
        Ok(Some(Underway { trial, pass, token, sending, began: self.budgets.clock().now() }))
    }

    /// Classifies and settles; what the call has come to, and how long to wait before another attempt.
    fn ended<A: Answer>(&mut self, underway: Underway<C>, ending: Ending<A>) -> (Outcomes<A>, Option<Duration>) {
        let clock = self.budgets.clock();
        let elapsed = clock.now().saturating_since(underway.began);
        let (mut finding, retry_after) = seen(&self.surface, &ending, clock);
        let refresh = self.refresh(&underway, &mut finding);
        self.deadline = self.deadline_after(underway.began);
        self.settle(underway, &finding, elapsed, retry_after);
        let on_its_way = matches!(ending, Err((Broken::Interrupted | Broken::TimedOut, _)));
        self.outcome_unknown |= finding.outcome_unknown || on_its_way;
        let wait = if refresh {
            Some(Duration::ZERO)
        } else {
            self.failed += 1;
            let broken = ending.as_ref().err().map(|(how, _)| *how);
            let retry = self.surface.retry.as_ref();
            retry.and_then(|retry| retry.next(self.failed, &finding, broken, self.idempotent, retry_after))
        };
        let outcomes = match ending {
            Ok(answer) => Ok(Answered { answer, finding, attempts: self.attempts, elapsed }),
            Err((how, source)) => {
                finding.outcome_unknown = self.outcome_unknown;
                Err(self.failure(Some(finding), Failed::Broken { how, source }))
            }
        };
        (outcomes, wait)
    }

    fn failure(&self, finding: Option<Finding>, source: Failed) -> CallError {
        CallError::Failed { surface: Arc::clone(&self.surface.name), finding, attempts: self.attempts, source }
    }

    /// The deadline of the waits, now that an attempt has ended that began then.
    fn deadline_after(&self, began: Instant) -> Instant {
        self.deadline + self.budgets.clock().now().saturating_since(began)
    }

    /// Whether there is to be one more attempt with a new token: once a call. Where a new one was refused as well, by this
    /// call or by one before, the credential is held.
    fn refresh(&mut self, underway: &Underway<C>, finding: &mut Finding) -> bool {
        if finding.action != Action::RefreshToken {
            return false;
        }
        if let (Some(token), Some(surface)) = (&underway.token, self.token_surface()) {
            self.budgets.front().tokens.failed(surface, &self.credential, token);
            if token.is_proven() && !std::mem::replace(&mut self.refreshed, true) {
                return self.budgets.clock().now() <= self.deadline_after(underway.began);
            }
        }
        *finding = finding.clone().without_refresh();
        false
    }

    fn settle(&self, underway: Underway<C>, finding: &Finding, elapsed: Duration, retry_after: Option<Duration>) {
        let front = self.budgets.front();
        let Underway { trial, mut pass, token, sending, .. } = underway;
        // The whole answer is in: the class's place is free.
        drop(sending);
        self.book.settled(finding.verdict);
        if let (Verdict::Good, Some(token)) = (finding.verdict, token) {
            token.prove();
        }
        front.board.holds().settle(self.budgets.clock().now(), &self.who, trial, Some(finding));
        let asked_for = match (finding.verdict, finding.action) {
            (Verdict::Bad, Action::HoldSurface(hold)) => retry_after.max(Some(hold)),
            (Verdict::Bad, _) => retry_after,
            _ => None,
        };
        let outcome = Outcome { verdict: finding.verdict, elapsed: Some(elapsed), retry_after: asked_for };
        if pass.pass.take().map(|pass| pass.settle_with(outcome)) == Some(Counted::Stale) {
            self.budgets.tally().stale.add(1);
        }
        let pushback = finding.action.push_back();
        if let Some(by) = pushback {
            let reason = finding.code.clone().unwrap_or_else(|| "no code".into());
            self.budgets.push_back(&self.surface.budget, by, reason);
        }
        if finding.throttled {
            front.throttled.count(&self.surface.name, finding.code.as_ref(), pushback);
        }
        if !matches!(finding.action, Action::Nothing | Action::PushBack(_) | Action::RefreshToken) {
            self.budgets.held().send_replace(());
            front.changed();
        }
    }
}

impl<C: Clock> Underway<C> {
    pub fn attempt(&self) -> &Attempt {
        &self.pass.attempt
    }
}

/// What the vendor's table says of what came, and what its Retry-After asks for.
fn seen<A: Answer>(surface: &Surface, ending: &Ending<A>, clock: &impl Clock) -> (Finding, Option<Duration>) {
    let header = |name: &str| ending.as_ref().ok().and_then(|answer| answer.header(name));
    let ended = match ending {
        Ok(answer) => Ended::Answer { status: answer.status(), header: &header, body: answer.body() },
        Err((how, _)) => Ended::Broken(*how),
    };
    judged(surface, &ended, clock)
}

fn judged(surface: &Surface, ended: &Ended<'_>, clock: &impl Clock) -> (Finding, Option<Duration>) {
    let wall = clock.wall();
    (surface.vendor.classify(ended, wall), surface.vendor.retry_after(ended, wall))
}

fn timed_out(surface: &Surface) -> Box<dyn Error + Send + Sync> {
    format!("no whole answer within {:?}: see attempt_timeout of its surface", surface.attempt_timeout).into()
}

/// A pass on which an attempt is made. Dropping it says of the vendor what is known.
struct OnPass<C: Clock> {
    pass: Option<Pass<C>>,
    attempt: Attempt,
}

impl<C: Clock> Drop for OnPass<C> {
    fn drop(&mut self) {
        if let Some(pass) = &self.pass
            && self.attempt.was_heard()
        {
            pass.heard();
        }
    }
}
