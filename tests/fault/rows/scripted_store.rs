//! A store that follows a script: it says what a real one says only in bad moments, and keeps count of what it grants.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use call_budget::Settings;
use futures_util::future::join_all;

use crate::suite::{Caller, Round};
use crate::tools::scripted_postgres::{Kind, Query, Row, Script, ScriptedPostgres, Value};

/// A scripted store that counts what it grants.
pub struct ScriptedStore {
    pub server: ScriptedPostgres,
    /// By class.
    granted: Arc<Mutex<BTreeMap<String, u64>>>,
    /// How many acquires it had seen when its script was last changed.
    before: AtomicUsize,
}

impl ScriptedStore {
    pub fn start() -> Self {
        let store = Self { server: ScriptedPostgres::start(), granted: Arc::default(), before: AtomicUsize::new(0) };
        store.is_well();
        store
    }

    pub fn is_well(&self) {
        self.is(self.granting(Script::well()));
    }

    /// What it does from now on. Rows that the script answers itself are no grants.
    pub fn is(&self, script: Script) {
        self.before.store(self.server.acquires().len(), Ordering::SeqCst);
        self.server.always(script);
    }

    /// The script with answers that grant, and count.
    pub fn granting(&self, script: Script) -> Script {
        let granted = Arc::clone(&self.granted);
        script.answer(Kind::Acquire, move |query| {
            *lock(&granted).entry(class(query)).or_default() += callers(query) as u64;
            vec![grant(query)]
        })
    }

    /// The library's defaults for callers of this store.
    pub fn settings(&self, round: &Round) -> Settings {
        round.settings(format!("postgresql://somebody@{}/store?sslmode=disable", self.server.address()))
    }

    /// A caller of each class, each with a session of its own that has served once.
    pub async fn callers(&self, round: &mut Round, settings: &Settings, classes: &[&str]) -> Vec<Caller> {
        let callers: Vec<Caller> = classes.iter().map(|class| round.caller_of(settings, "scripted", class)).collect();
        join_all(callers.iter().map(Caller::send)).await;
        callers
    }

    /// Whoever has given a doubtful answer is not asked again: what comes next on that connection may belong to it.
    #[track_caller]
    pub fn asked_nobody_twice(&self) {
        let acquires = self.server.acquires().split_off(self.before.load(Ordering::SeqCst));
        let mut asked: Vec<usize> = acquires.iter().map(|query| query.connection).collect();
        assert!(!asked.is_empty(), "nobody asked: there was no fault");
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked.len(), acquires.len(), "a connection was asked again after a doubtful answer");
    }

    /// Ends it. What it granted goes into the books. Nobody has sent a CancelRequest, which a pooler would hand to a stranger.
    #[track_caller]
    pub fn end(self, round: &mut Round) {
        assert_eq!(self.server.cancel_requests(), 0, "somebody sent a CancelRequest");
        drop(self.server);
        for (class, slots) in &*lock(&self.granted) {
            round.scripted_store_granted(class, *slots);
        }
    }
}

/// A slot at once for each caller.
pub fn grant(query: &Query) -> Row {
    let at_once = Value::Int8Array(vec![0; callers(query)]);
    Row::grant(query, Duration::ZERO).set("waits_us", at_once).null("retry_us")
}

fn callers(query: &Query) -> usize {
    query.ask.as_ref().expect("an acquire").costs.len()
}

pub fn class(query: &Query) -> String {
    query.ask.as_ref().expect("an acquire").class.clone()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
