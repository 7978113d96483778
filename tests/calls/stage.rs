//! Surfaces on a store in memory and a clock that the test moves, and requests that do what a test says.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use call_budget::clock::Clock;
use call_budget::policy::verdict::{Broken, Verdict};
use call_budget::test_util::{Instant, Limit, ManualClock, MemoryStore};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use call_budget::{Answer, Attempt, Breaker, CallBudget, CallError, CallOptions, Credential, Failed, Settings};

pub type Budgets = CallBudget<ManualClock, MemoryStore<ManualClock>>;

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub const SECOND: Duration = ms(1000);

/// What the tests here call.
pub const SURFACES: &str = r#"
    [class.order]
    may_probe = false

    [breaker.escalating-evenly]
    preset = "escalating"
    jitter = 0

    [breaker.watchful]
    preset = "rate-kis"
    jitter = 0

    [surface."kis/real/token"]
    budget = "kis-token"
    class = "token"
    vendor = "kis"
    breaker = "escalating-evenly"

    [surface."kis/real/quote"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "escalating-evenly"
    token = "kis/real/token"

    [surface."kis/real/order"]
    budget = "kis-real"
    class = "order"
    vendor = "kis"
    breaker_of = "kis/real/quote"
    token = "kis/real/token"

    [surface."kis/real/balance"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "escalating-evenly"

    [surface."kis/real/chart"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "escalating-evenly"
    retry = "patient"
    idempotent = true

    [surface."kis/real/transfer"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "escalating-evenly"
    retry = "patient"
    idempotent = false

    [surface."kis/real/depth"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "watchful"

    [surface."kis/real/archive"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "escalating-evenly"

    [surface."ai/chat"]
    budget = "ai"
    class = "minute"
    vendor = "http-own-keys"
    breaker = "escalating-evenly"
"#;

pub struct Stage {
    pub budgets: Budgets,
    pub store: MemoryStore<ManualClock>,
    pub clock: ManualClock,
}

impl Stage {
    /// 1,000 calls a second: a slot is never far.
    pub fn new() -> Self {
        Self::with_units(1000)
    }

    pub fn with_units(units: u32) -> Self {
        let clock = ManualClock::at(Instant::default() + SECOND);
        let store = MemoryStore::new(clock.clone());
        for budget in ["kis-real", "kis-token", "ai"] {
            let limit = Limit { units, window: SECOND, send_window: ms(50), arrival_jitter: ms(50), max_cost: 1 };
            store.set_budget(budget, limit);
            for class in ["order", "minute", "token"] {
                store.set_class(budget, class, 1, 0.0);
            }
        }
        let budgets = CallBudget::with_store(&settings(), clock.clone(), store.clone()).unwrap();
        Self { budgets, store, clock }
    }

    /// Another process that shares the store.
    pub fn another(&self) -> Budgets {
        CallBudget::with_store(&settings(), self.clock.clone(), self.store.clone()).unwrap()
    }

    pub fn granted(&self) -> u64 {
        ["order", "minute", "token"].iter().map(|class| self.store.granted("kis-real", class)).sum()
    }

    /// One call with this credential, whose attempts go by the script.
    pub async fn call(
        &self,
        surface: &str,
        label: &str,
        script: &Script,
    ) -> Result<call_budget::Answered<Reply>, CallError> {
        self.call_with(surface, label, CallOptions::default(), script).await
    }

    pub async fn call_with(
        &self,
        surface: &str,
        label: &str,
        options: CallOptions,
        script: &Script,
    ) -> Result<call_budget::Answered<Reply>, CallError> {
        let credential = Credential::new(label);
        let call = self.budgets.call_with(surface, &credential, options, script.requests(&self.clock));
        driven(&self.clock, call).await
    }

    pub fn breaker(&self, surface: &str) -> Breaker<ManualClock> {
        self.budgets.breaker(surface).expect("it has a breaker")
    }

    /// Five bad ones, reported by somebody else.
    pub fn trip(&self, surface: &str) {
        let breaker = self.breaker(surface);
        for _ in 0..5 {
            breaker.admit().unwrap().settle(Verdict::Bad);
        }
    }
}

pub fn settings() -> Settings {
    Settings::of_toml(SURFACES, Path::new("")).unwrap()
}

/// What one attempt comes to.
pub enum Step {
    Answer(Reply),
    /// The head after so long, the body after so much longer.
    Slowly(Duration, Duration, Reply),
    /// Nothing comes for so long, then this.
    After(Duration, Box<Step>),
    Broken(Broken),
    NotSent,
    /// Nothing comes.
    Hang,
    /// The head comes after so long, and nothing more.
    HeadThenHang(Duration),
    Panic,
}

/// What the attempts of calls come to, in order, and what they were told. A good answer where nothing more is written.
#[derive(Clone, Default)]
pub struct Script {
    steps: Arc<Mutex<VecDeque<Step>>>,
    attempts: Arc<Mutex<Vec<(Attempt, Instant)>>>,
}

impl Script {
    pub fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: Arc::new(Mutex::new(steps.into_iter().collect())), ..Self::default() }
    }

    pub fn requests(
        &self,
        clock: &ManualClock,
    ) -> impl FnMut(Attempt) -> Pin<Box<dyn Future<Output = Result<Reply, Failed>> + Send>> + Send + use<> {
        let (script, clock) = (self.clone(), clock.clone());
        move |attempt| {
            let step = script.steps.lock().unwrap().pop_front().unwrap_or(Step::Answer(Reply::good()));
            script.attempts.lock().unwrap().push((attempt.clone(), clock.now()));
            Box::pin(play(step, attempt, clock.clone()))
        }
    }

    pub fn sent(&self) -> usize {
        self.attempts.lock().unwrap().len()
    }

    /// When each attempt began.
    pub fn at(&self) -> Vec<Instant> {
        self.attempts.lock().unwrap().iter().map(|(_, at)| *at).collect()
    }

    pub fn tokens(&self) -> Vec<String> {
        let attempts = self.attempts.lock().unwrap();
        attempts
            .iter()
            .map(|(attempt, _)| attempt.token.as_ref().map_or("-", |token| token.as_str()).to_owned())
            .collect()
    }
}

async fn play(step: Step, attempt: Attempt, clock: ManualClock) -> Result<Reply, Failed> {
    match step {
        Step::Answer(reply) => Ok(reply),
        Step::Slowly(head, body, reply) => {
            clock.sleep_until(clock.now() + head).await;
            attempt.heard();
            clock.sleep_until(clock.now() + body).await;
            Ok(reply)
        }
        Step::After(wait, then) => {
            clock.sleep_until(clock.now() + wait).await;
            Box::pin(play(*then, attempt, clock)).await
        }
        Step::Broken(how) => Err(Failed::Broken { how, source: "as the script says".into() }),
        Step::NotSent => Err(Failed::NotSent("as the script says".into())),
        Step::Hang => pending().await,
        Step::HeadThenHang(head) => {
            clock.sleep_until(clock.now() + head).await;
            attempt.heard();
            pending().await
        }
        Step::Panic => panic!("as the script says"),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: String,
}

impl Reply {
    pub fn good() -> Self {
        Self::kis(200, "MCA00000", "정상처리 되었습니다.")
    }

    pub fn bad() -> Self {
        Self { status: 500, headers: Vec::new(), body: "{}".into() }
    }

    pub fn kis(status: u16, code: &str, text: &str) -> Self {
        let body = format!(r#"{{"rt_cd": "1", "msg_cd": "{code}", "msg1": "{text}"}}"#);
        Self { status, headers: Vec::new(), body }
    }

    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: "{}".into() }
    }

    pub fn header(self, name: &'static str, value: &'static str) -> Self {
        Self { headers: vec![(name, value)], ..self }
    }
}

impl Answer for Reply {
    fn status(&self) -> u16 {
        self.status
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    fn body(&self) -> &[u8] {
        self.body.as_bytes()
    }
}

/// Runs `work` to its end. Whenever everything waits, time passes: a millisecond, and after a second of waiting 20 ms, which
/// is shorter than any send window here.
pub async fn driven<F: Future>(clock: &ManualClock, work: F) -> F::Output {
    let mut work = pin!(work);
    let began = clock.now();
    loop {
        let step = if clock.now() < began + SECOND { ms(1) } else { ms(20) };
        tokio::select! {
            biased;
            output = &mut work => return output,
            () = settle() => clock.advance(step),
        }
        assert!(clock.now() < began + 200 * SECOND, "it does not end");
    }
}

/// Lets every task of this runtime run until it waits for something.
pub async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

/// Polls `work` as often as it wakes, `polls` times at most, and drops it. Its output, if it came to one.
pub async fn dropped_after<F: Future>(polls: usize, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut left = polls;
    let counted = poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    // Polls it when it is woken, and not when whoever drives it is.
    FuturesUnordered::from_iter([counted]).next().await.flatten()
}
