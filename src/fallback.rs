//! The same data from several sources, in order, so that a reader always knows which one it came from and how late it is.
//!
//! For reading. What must not happen twice does not belong here: a source that brought no answer may have done it.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use crate::call::{Answered, CallError, Failed};
use crate::clock::{Clock, SystemClock};
use crate::policy::Wall;
pub use crate::policy::fallback::{Delay, Why};
use crate::policy::verdict::{Action, Finding};

/// Sources of the same data, the best first.
///
/// The next one is asked when one refused (its breaker is open, its budget gave no slot), failed (retries included), is held,
/// or has no data. Any other answer is the answer, and a fault of our own ends the search: another source would only hide
/// it. A panic of a source is not caught.
///
/// ```
/// use call_budget::fallback::{Delay, Fallback, Found, Miss};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), call_budget::fallback::NoSource> {
/// const LATE: &str = "KIS 실시간 호가 일시 불가. 15분 지연 데이터를 표시합니다.";
/// let price = Fallback::new()
///     .source("kis", Delay::None, "", async || Err(Miss::no_data("the book is empty")))
///     .source("yahoo", Delay::Late(Duration::from_secs(15 * 60)), LATE, async || Ok(Found::new(71_200)))
///     .first()
///     .await?;
/// assert_eq!((price.value, price.source.as_str(), price.note.as_str()), (71_200, "yahoo", LATE));
/// assert_eq!(price.reason[0].to_string(), "kis: no_data, the book is empty");
/// # Ok(())
/// # }
/// ```
///
/// A source that is asked through [`CallBudget::call`](crate::CallBudget) hands its outcome to [`Found::read`].
pub struct Fallback<'a, T, C: Clock = SystemClock> {
    clock: C,
    sources: Vec<Source<'a, T>>,
}

struct Source<'a, T> {
    name: String,
    delay: Delay,
    note: String,
    ask: Ask<'a, T>,
}

type Asking<'a, T> = Pin<Box<dyn Future<Output = Result<Found<T>, Miss>> + Send + 'a>>;
type Ask<'a, T> = Box<dyn FnOnce() -> Asking<'a, T> + Send + 'a>;

/// What the first source that had something brought, and what a reader must know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    pub value: T,
    /// The name of the source.
    pub source: String,
    /// Of when the data is, at the earliest: as the source says, else when it was asked, less its delay. None for simulated
    /// data.
    pub as_of: Option<Wall>,
    /// How far the data of this source is behind.
    pub delayed: Delay,
    /// Why the sources before it were passed over, in order. Empty for the first.
    pub reason: Vec<PassedOver>,
    /// The source's sentence for the reader.
    pub note: String,
}

/// A source that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    pub source: String,
    pub why: Why,
    /// The same for people.
    pub text: String,
    /// The earliest that asking it again can help, where that is known.
    pub retry_after: Option<Duration>,
}

/// What a source found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<T> {
    pub value: T,
    as_of: Option<Wall>,
    /// How long ago it was asked for, at the moment it is handed over.
    took: Option<Duration>,
}

/// A source found nothing.
#[derive(Debug)]
pub enum Miss {
    /// The next source is asked.
    Next { why: Why, text: String, retry_after: Option<Duration> },
    /// No other source is asked: the fault is ours, or the answer is a no that another source would only repeat.
    Stop(Box<dyn Error + Send + Sync>),
}

/// No source had anything.
#[derive(Debug)]
pub struct NoSource {
    /// The sources that were passed over, in order.
    pub passed_over: Vec<PassedOver>,
    /// The source that ended the search, and with what; none where all were passed over.
    pub stopped: Option<(String, Box<dyn Error + Send + Sync>)>,
}

impl<'a, T> Fallback<'a, T> {
    /// Without sources, on the system's clock.
    #[expect(clippy::new_without_default, reason = "a fallback without sources is of no use")]
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }
}

impl<'a, T, C: Clock> Fallback<'a, T, C> {
    /// Without sources, on another clock.
    pub fn with_clock(clock: C) -> Self {
        Self { clock, sources: Vec::new() }
    }

    /// Adds a source behind those that there are. `note` is shown to the reader when the data is this one's; `ask` is called
    /// only when it is its turn, and must end by itself, as calls do.
    #[must_use]
    pub fn source<F, Fut>(mut self, name: &str, delay: Delay, note: &str, ask: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'a,
        Fut: Future<Output = Result<Found<T>, Miss>> + Send + 'a,
    {
        let ask: Ask<'a, T> = Box::new(|| Box::pin(ask()));
        self.sources.push(Source { name: name.to_owned(), delay, note: note.to_owned(), ask });
        self
    }

    /// What the first source brings that has something.
    ///
    /// # Errors
    /// Every source was passed over, or one ended the search; says why, source by source.
    pub async fn first(self) -> Result<Sourced<T>, NoSource> {
        let mut reason = Vec::new();
        for Source { name, delay, note, ask } in self.sources {
            let asked = self.clock.wall();
            match ask().await {
                Ok(Found { value, as_of, took }) => {
                    let had = took.map_or(asked, |took| self.clock.wall() - took);
                    let as_of = as_of.or_else(|| delay.as_of(had));
                    return Ok(Sourced { value, source: name, as_of, delayed: delay, reason, note });
                }
                Err(Miss::Next { why, text, retry_after }) => {
                    tracing::debug!(source = name, why = why.as_str(), text, "call_budget_source_passed_over");
                    reason.push(PassedOver { source: name, why, text, retry_after });
                }
                Err(Miss::Stop(error)) => {
                    return Err(NoSource { passed_over: reason, stopped: Some((name, error)) });
                }
            }
        }
        Err(NoSource { passed_over: reason, stopped: None })
    }
}

impl<T> Found<T> {
    /// Data that is as late as its source says.
    pub fn new(value: T) -> Self {
        Self { value, as_of: None, took: None }
    }

    /// Data that says itself of when it is.
    #[must_use]
    pub fn as_of(self, as_of: Wall) -> Self {
        Self { as_of: Some(as_of), ..self }
    }

    /// What a call brought: `parse` makes data of an answer, or says that there is none ([`Miss::no_data`]) or that the search
    /// is over ([`Miss::stop`]). It sees every answer that is no reason to ask the next source, so also a no that concerns
    /// the request alone.
    ///
    /// # Errors
    /// As [`Fallback`] says: there was no answer, or one that is a reason to ask the next source.
    pub fn read<A>(
        outcome: Result<Answered<A>, CallError>,
        parse: impl FnOnce(Answered<A>) -> Result<T, Miss>,
    ) -> Result<Self, Miss> {
        let answered = outcome?;
        if let Some(why) = Why::of(&answered.finding) {
            return Err(Miss::because(why, &answered.finding));
        }
        let took = Some(answered.elapsed);
        Ok(Self { value: parse(answered)?, as_of: None, took })
    }
}

impl Miss {
    /// The source has nothing.
    pub fn no_data(text: impl Into<String>) -> Self {
        Self::Next { why: Why::NoData, text: text.into(), retry_after: None }
    }

    /// The source failed. For sources that are not asked through a call, which knows by itself.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::Next { why: Why::Bad, text: text.into(), retry_after: None }
    }

    /// Nobody else is to be asked.
    pub fn stop(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Stop(error.into())
    }

    fn because(why: Why, finding: &Finding) -> Self {
        let text = match &finding.code {
            Some(code) => format!("{code}: {}", finding.meaning),
            None => finding.meaning.to_string(),
        };
        let retry_after = match finding.action {
            Action::HoldCredential(wait)
            | Action::HoldSurface(wait)
            | Action::PushBack(wait)
            | Action::PushBackAndHoldCredential(wait) => Some(wait),
            Action::Nothing
            | Action::HoldCredentialUntilChanged
            | Action::HoldTokenSurface(_)
            | Action::RefreshToken => None,
        };
        Self::Next { why, text, retry_after }
    }
}

impl From<CallError> for Miss {
    /// A refusal asks the next source, also one by the budget that time can heal. Settings that are wrong and requests that
    /// could not be written are faults of our own.
    fn from(error: CallError) -> Self {
        match why(&error) {
            Some(why) => Self::Next { why, text: error.to_string(), retry_after: error.retry_after() },
            None => Self::Stop(Box::new(error)),
        }
    }
}

fn why(error: &CallError) -> Option<Why> {
    match error {
        CallError::CircuitOpen { .. } => Some(Why::Refused),
        CallError::Held { .. } => Some(Why::Held),
        CallError::Budget(refused) => refused.failure().transient.then_some(Why::Refused),
        CallError::UnknownSurface(_) => None,
        CallError::Failed { source: Failed::NotSent(_), .. } => None,
        CallError::Failed { source: Failed::Broken { .. }, .. } => Some(Why::Bad),
        // No token, no call: why there is none decides.
        CallError::Token { source, .. } => why(source),
    }
}

impl NoSource {
    /// The earliest that asking again can help, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.stopped {
            Some(_) => None,
            None => self.passed_over.iter().filter_map(|source| source.retry_after).min(),
        }
    }
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.source, self.why, self.text)
    }
}

impl fmt::Display for NoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stopped {
            Some((source, error)) => write!(f, "{source} ended the search: {error}")?,
            None => f.write_str("no source had anything")?,
        }
        self.passed_over.iter().try_for_each(|source| write!(f, "; {source}"))
    }
}

impl Error for NoSource {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.stopped.as_ref().map(|(_, error)| &**error as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::{AcquireError, Code};
    use crate::policy::breaker::Reason;
    use crate::policy::verdict::{Broken, Verdict};

    const S: Duration = Duration::from_secs(1);
    const LATE: Delay = Delay::Late(Duration::from_secs(15 * 60));

    /// The system's clock, but for the wall, which stands.
    #[derive(Clone)]
    struct Standing(Wall);

    impl Clock for Standing {
        fn now(&self) -> crate::policy::Instant {
            SystemClock.now()
        }

        fn wall(&self) -> Wall {
            self.0
        }

        async fn sleep_until(&self, at: crate::policy::Instant) {
            SystemClock.sleep_until(at).await;
        }
    }

    const NOON: Wall = Wall::from_unix_us(43_200_000_000);

    fn answered(verdict: Verdict, action: Action) -> Answered<u32> {
        let finding = Finding {
            verdict,
            action,
            code: Some("E1".into()),
            throttled: false,
            outcome_unknown: false,
            no_data: false,
            meaning: "as the table says".into(),
        };
        Answered { answer: 7, finding, attempts: 1, elapsed: 2 * S }
    }

    fn circuit_open() -> CallError {
        CallError::CircuitOpen { surface: "kis/real/quote".into(), reason: Reason::Open, retry_after: 30 * S }
    }

    fn failed(source: Failed) -> CallError {
        let finding = match source {
            Failed::Broken { .. } => Some(answered(Verdict::Bad, Action::Nothing).finding),
            Failed::NotSent(_) => None,
        };
        CallError::Failed { surface: "kis/real/quote".into(), finding, attempts: 1, source }
    }

    fn budget(code: Code) -> CallError {
        CallError::Budget(AcquireError::new(code, "no slot"))
    }

    /// What a chain of a first source with this outcome and a second one comes to.
    async fn then_second(outcome: Result<Answered<u32>, CallError>) -> Result<Sourced<u32>, NoSource> {
        Fallback::with_clock(Standing(NOON))
            .source("first", Delay::None, "", async || Found::read(outcome, |answered| Ok(answered.answer)))
            .source("second", LATE, "15 minutes late", async || Ok(Found::new(1)))
            .first()
            .await
    }

    #[tokio::test]
    async fn sources_are_asked_in_order_and_none_after_the_first_that_has_something() {
        let asked = AtomicU32::new(0);
        let ask = |digit| asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |so_far| Some(so_far * 10 + digit));
        let found = Fallback::new()
            .source("a", Delay::None, "", async || ask(1).map(|_| Err(Miss::bad("down"))).expect("always"))
            .source("b", LATE, "late", async || ask(2).map(|_| Err(Miss::no_data("empty"))).expect("always"))
            .source("c", Delay::Simulated, "made up", async || ask(3).map(|_| Ok(Found::new(7))).expect("always"))
            .source("d", Delay::None, "", async || ask(4).map(|_| Ok(Found::new(8))).expect("always"))
            .first()
            .await
            .unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 123);
        assert_eq!((found.value, found.source.as_str(), found.note.as_str()), (7, "c", "made up"));
        assert_eq!((found.delayed, found.as_of), (Delay::Simulated, None));
        let reasons: Vec<String> = found.reason.iter().map(PassedOver::to_string).collect();
        assert_eq!(reasons, ["a: bad, down", "b: no_data, empty"]);
    }

    #[tokio::test]
    async fn the_first_source_needs_no_reason_and_its_data_is_of_the_moment_it_was_asked_for() {
        let found = then_second(Ok(answered(Verdict::Good, Action::Nothing))).await.unwrap();
        assert_eq!((found.value, found.source.as_str(), found.note.as_str()), (7, "first", ""));
        assert_eq!((found.delayed, found.as_of), (Delay::None, Some(NOON - 2 * S)));
        assert_eq!(found.reason, []);
    }

    #[tokio::test]
    async fn late_data_is_dated_back_by_its_delay_unless_it_says_its_own_date() {
        let found = then_second(Err(circuit_open())).await.unwrap();
        assert_eq!((found.source.as_str(), found.delayed), ("second", LATE));
        assert_eq!(found.as_of, Some(NOON - 900 * S));
        let own = Fallback::with_clock(Standing(NOON))
            .source("x", LATE, "", async || Ok(Found::new(()).as_of(NOON - 60 * S)))
            .first();
        assert_eq!(own.await.unwrap().as_of, Some(NOON - 60 * S));
    }

    #[tokio::test]
    async fn refusals_holds_and_failures_ask_the_next_and_say_why() {
        let error = |text: &str| -> Box<dyn Error + Send + Sync> { text.into() };
        let broken = |how| failed(Failed::Broken { how, source: error("reset") });
        let held = CallError::Held { surface: "s".into(), scope: "key".into(), why: "401".into(), retry_after: 60 * S };
        let token = CallError::Token { surface: "s".into(), source: circuit_open().into() };
        let rows: Vec<(Result<Answered<u32>, CallError>, Why)> = vec![
            (Err(circuit_open()), Why::Refused),
            (Err(held), Why::Held),
            (Err(budget(Code::WaitExceeded)), Why::Refused),
            (Err(budget(Code::StoreUnavailable)), Why::Refused),
            (Err(budget(Code::Uncertain)), Why::Refused),
            (Err(budget(Code::Paused)), Why::Refused),
            (Err(broken(Broken::NotConnected)), Why::Bad),
            (Err(broken(Broken::Interrupted)), Why::Bad),
            (Err(broken(Broken::TimedOut)), Why::Bad),
            (Err(token), Why::Refused),
            (Ok(answered(Verdict::Bad, Action::Nothing)), Why::Bad),
            (Ok(answered(Verdict::None, Action::PushBack(S))), Why::Held),
            (Ok(answered(Verdict::None, Action::HoldCredentialUntilChanged)), Why::Held),
        ];
        for (outcome, why) in rows {
            let shown = format!("{outcome:?}");
            let found = then_second(outcome).await.unwrap();
            assert_eq!(found.source, "second", "{shown}");
            assert_eq!(found.reason.iter().map(|passed| passed.why).collect::<Vec<_>>(), [why], "{shown}");
        }
    }

    #[tokio::test]
    async fn our_own_faults_and_answers_that_say_no_end_the_search() {
        for error in [
            failed(Failed::NotSent("no such header".into())),
            budget(Code::Misconfigured),
            budget(Code::UnknownBudget),
            budget(Code::UnknownClass),
            CallError::UnknownSurface("kis/rael/quote".into()),
            CallError::Token { surface: "s".into(), source: failed(Failed::NotSent("x".into())).into() },
        ] {
            let shown = format!("{error:?}");
            let none = then_second(Err(error)).await.unwrap_err();
            assert_eq!(none.stopped.as_ref().map(|(source, _)| source.as_str()), Some("first"), "{shown}");
            assert_eq!((none.passed_over.len(), none.retry_after()), (0, None), "{shown}");
        }
        let no = Fallback::<u32>::new()
            .source("a", Delay::None, "", async || Err(Miss::no_data("empty")))
            .source("b", Delay::None, "", async || Err(Miss::stop("no such symbol")))
            .source("c", Delay::None, "", async || Ok(Found::new(1)))
            .first();
        assert_eq!(no.await.unwrap_err().to_string(), "b ended the search: no such symbol; a: no_data, empty");
    }

    #[tokio::test]
    async fn an_error_names_every_source_and_when_asking_again_can_help() {
        let held = Ok(answered(Verdict::None, Action::HoldCredential(5 * S)));
        let none = Fallback::<u32>::new()
            .source("a", Delay::None, "", async || Err(circuit_open().into()))
            .source("b", Delay::None, "", async || Found::read(held, |answered| Ok(answered.answer)))
            .source("c", LATE, "", async || {
                let empty = Ok(answered(Verdict::Good, Action::Nothing));
                Found::read(empty, |_| Err(Miss::no_data("an empty list")))
            })
            .first()
            .await
            .unwrap_err();
        let why: Vec<_> = none.passed_over.iter().map(|passed| (passed.source.as_str(), passed.why)).collect();
        assert_eq!(why, [("a", Why::Refused), ("b", Why::Held), ("c", Why::NoData)]);
        assert_eq!(none.passed_over[1].text, "E1: as the table says");
        assert_eq!(none.retry_after(), Some(5 * S));
    }

    #[tokio::test]
    async fn a_chain_can_be_awaited_by_a_task_of_its_own() {
        let shared = Arc::new(5);
        let chain = Fallback::new().source("a", Delay::None, "", async move || Ok(Found::new(*shared)));
        assert_eq!(tokio::spawn(chain.first()).await.unwrap().unwrap().value, 5);
    }
}
