//! Everything one mock vendor knows, behind one lock that is held for microseconds and never across a wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::http::request::Parts;

use super::answers::{self, Code, HeaderCase};
use super::arrivals::{Arrival, ArrivalLog, Note, text};
use super::black_hole::BlackHole;
use super::heartbeat::{Heartbeat, micros};
use super::limit::{Counter, Kind, Limit};
use super::report::{Report, Tally};
use super::script::{self, Fault, Scripted};
use super::settings::Settings;
use super::tokens::{Token, Tokens};
use crate::clock::{Clock, SystemClock};
use crate::policy::Instant;

#[derive(Debug)]
pub struct Vendor {
    pub header_case: HeaderCase,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    settings: Arc<Settings>,
    counters: HashMap<String, Counter>,
    ledger: Counter,
    log: ArrivalLog,
    tally: Tally,
    tokens: Tokens,
    heartbeat: Heartbeat,
    started: Instant,
}

/// What is known of a request once it has been counted.
#[derive(Debug)]
pub struct Received {
    pub at: Instant,
    /// The settings in force when it came; the whole answer goes by them.
    pub settings: Arc<Settings>,
    pub appkey: String,
    /// Answer EGW00201.
    pub refused: bool,
    /// A sentence on a header that could not be read.
    pub odd: Result<(), String>,
    pub counted: Counted,
    pub black_hole: Option<BlackHole>,
    /// What the script says of it.
    pub scripted: Option<Scripted>,
}

impl Received {
    /// How it ends, if without an answer.
    pub fn fault(&self) -> Option<Fault> {
        match (self.black_hole, &self.scripted) {
            (Some(BlackHole::Silent), _) => Some(Fault::Hang),
            (Some(BlackHole::Reset | BlackHole::Refused), _) => Some(Fault::Reset),
            (None, Some(scripted)) => scripted.fault,
            (None, None) if happens(self.settings.reset) => Some(Fault::Reset),
            (None, None) if happens(self.settings.hang) => Some(Fault::Hang),
            (None, None) => None,
        }
    }
}

/// Which of the vendor's counts a request falls under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The calls per window.
    InLimit,
    /// The token rules only.
    AsTokenAttempt,
}

impl Vendor {
    pub fn new(settings: Settings, header_case: HeaderCase) -> Vendor {
        let state = State {
            settings: Arc::new(settings),
            counters: HashMap::new(),
            ledger: Counter::default(),
            log: ArrivalLog::default(),
            tally: Tally::default(),
            tokens: Tokens::default(),
            heartbeat: Heartbeat::default(),
            started: SystemClock.now(),
        };
        Vendor { header_case, state: Mutex::new(state) }
    }

    /// Counts a request that arrived at `at` and enters it in the log.
    pub fn receive(&self, at: Instant, head: &Parts, counted: Counted) -> Received {
        let headers = &head.headers;
        let (note, odd) = Note::read(headers);
        let appkey = note.appkey.clone();
        self.with(|state| {
            let settings = Arc::clone(&state.settings);
            let black_hole = settings.black_hole_at(at.saturating_since(state.started));
            let tr_id = text(headers, "tr_id");
            let scripted = if black_hole.is_none() && !settings.script.is_empty() {
                let (path, for_token) = (head.uri.path(), counted == Counted::AsTokenAttempt);
                let request = script::Request { path, tr_id: &tr_id, for_token };
                script::next(&mut Arc::make_mut(&mut state.settings).script, request)
            } else {
                None
            };
            let account = if settings.per_key { appkey.clone() } else { "all".to_owned() };
            let (mut units, mut over_limit, mut refused_below_limit) = (0, false, false);
            if counted == Counted::InLimit {
                units = note.cost.get();
                let counter = state.counters.entry(account.clone()).or_default();
                over_limit = !counter.admits(at, units, settings.limit());
                refused_below_limit = !over_limit && happens(settings.refuse_below_limit);
            }
            let mut refused = over_limit || refused_below_limit;
            if black_hole.is_some() || scripted.is_some() {
                refused =
                    scripted.as_ref().is_some_and(|script| script.code.as_deref() == Some(answers::OVER_LIMIT.code));
                refused_below_limit = refused && !over_limit;
            }
            let (at_us, jitter_us) = (micros(at.since_boot()), micros(settings.arrival_jitter));
            let arrival = Arrival {
                at_us,
                account,
                tr_id,
                late: note.closes_us.is_some_and(|closes| at_us > closes.saturating_add(jitter_us)),
                note,
                units,
                limit: settings.limit,
                window_us: micros(settings.window),
                refused,
                refused_below_limit,
            };
            state.tally.count(&arrival);
            state.log.enter(arrival);
            Received { at, settings, appkey, refused, odd, counted, black_hole, scripted }
        })
    }

    /// Counts a balance call against the ledger cap.
    pub fn check_ledger(&self, received: &Received) -> Result<(), Code> {
        let Some(units) = received.settings.ledger_cap else { return Ok(()) };
        let limit = Limit { units, window: received.settings.window, kind: Kind::Sliding };
        if self.with(|state| state.ledger.admits(received.at, 1, limit)) { Ok(()) } else { Err(answers::LEDGER_CAP) }
    }

    pub fn issue_token(&self, received: &Received, appkey: &str, secret: &str) -> Result<Token, Code> {
        self.with(|state| state.tokens.issue(received.at, appkey, secret, &received.settings))
    }

    pub fn check_token(&self, received: &Received, authorization: &str) -> Result<(), Code> {
        self.with(|state| state.tokens.check(received.at, authorization, &received.appkey, &received.settings))
    }

    pub fn expire_tokens(&self) {
        self.with(|state| state.tokens.expire());
    }

    /// The black hole that a connection would meet now.
    pub fn black_hole(&self) -> Option<BlackHole> {
        self.with(|state| state.settings.black_hole_at(SystemClock.now().saturating_since(state.started)))
    }

    /// A connection is reset unread.
    pub fn turn_away(&self) {
        self.with(|state| state.tally.turn_away());
    }

    /// A sign of life.
    pub fn beat(&self) {
        self.with(State::beat);
    }

    pub fn report(&self) -> Report {
        self.with(|state| {
            // A stall that has just ended may be seen here before the heart beats again.
            state.beat();
            state.tally.report(state.heartbeat.stalls(), &state.settings)
        })
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.with(|state| state.log.as_slice().to_vec())
    }

    /// Puts what `change` makes of the settings in their place, if that makes sense.
    pub fn change(&self, change: impl FnOnce(&Settings) -> Result<Settings, String>) -> Result<(), String> {
        self.with(|state| {
            state.settings = Arc::new(change(&state.settings)?);
            Ok(())
        })
    }

    /// Forgets the log and the stalls. What the limit and the token rules have counted stays counted.
    pub fn reset(&self) {
        self.with(|state| {
            state.log = ArrivalLog::default();
            state.tally = Tally::default();
            state.heartbeat.forget_stalls();
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn beat(&mut self) {
        self.heartbeat.beat(SystemClock.now(), self.settings.arrival_jitter);
    }
}

/// Whether something of this probability happens now.
pub fn happens(probability: f64) -> bool {
    fastrand::f64() < probability
}
