//! PgBouncer between the callers and their database, in transaction mode.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::Code;
use call_budget::policy::stage::Stage;
use call_budget::service::scratch_postgres::ScratchPostgres;

use crate::suite::ground::{PASSWORD, ROLE};
use crate::suite::{Case, HEALS, HEALS_SOON, How, Length, Round};
use crate::tools::pgbouncer::{self, PgBouncer};

pub const CASES: &[Case] = &[
    Case {
        row: 24,
        id: "24.paused",
        name: "PgBouncer is paused: it takes the request and keeps it",
        how: How::Server,
        deadline: DEADLINE,
        length: Length::Long,
        heals: HEALS,
        needs: pgbouncer::available,
        own_process: None,
        run: |round| Box::pin(paused(round)),
    },
    Case {
        row: 24,
        id: "24.killed",
        name: "PgBouncer is killed and started again",
        how: How::Server,
        deadline: DEADLINE,
        length: Length::Long,
        heals: HEALS_SOON,
        needs: pgbouncer::available,
        own_process: None,
        run: |round| Box::pin(killed(round)),
    },
];

const DEADLINE: Duration = Duration::from_secs(1);

async fn paused(round: &mut Round) {
    let pooled = Pooled::start(round, 20, &[]).await;
    let mut settings = round.settings(pooled.url(round));
    settings.max_wait = DEADLINE;
    let caller = round.caller(&settings).await;
    caller.send().await;

    pooled.with(|bouncer, server| bouncer.pause(server)).await;
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::Uncertain, Some(Stage::Query)), "{error}");
    assert_eq!(error.lost(), 1, "{error}");
    // The next one needs a session first, and that waits too.
    let error = caller.try_send().await.refused();
    assert!(matches!(error.stage(), Some(Stage::Startup | Stage::Query)), "{error}");

    round.healing(&caller, pooled.with(|bouncer, server| bouncer.resume(server))).await;
}

async fn killed(round: &mut Round) {
    let pooled = Pooled::start(round, 20, &[]).await;
    let mut settings = round.settings(pooled.url(round));
    settings.max_wait = DEADLINE;
    let caller = round.caller(&settings).await;
    caller.send().await;

    pooled.with(|bouncer, _| bouncer.kill()).await;
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::WaitExceeded, Some(Stage::Connect)), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");

    round.healing(&caller, pooled.with(|bouncer, _| bouncer.restart())).await;
}

/// A server of the round's own, and PgBouncer in front of it. PgBouncer ends with this.
pub struct Pooled {
    pub server: Arc<Mutex<ScratchPostgres>>,
    bouncer: Arc<Mutex<PgBouncer>>,
    port: u16,
}

impl Pooled {
    /// With at most `size` connections to the server, and `settings` of PgBouncer's own.
    pub async fn start(round: &mut Round, size: usize, settings: &'static [(&'static str, &'static str)]) -> Self {
        let server = round.own_server(&[]).await;
        let start = {
            let server = Arc::clone(&server);
            move || {
                let server = server.lock().unwrap_or_else(PoisonError::into_inner);
                PgBouncer::start(&server, size, &[(ROLE, PASSWORD)], settings).unwrap_or_else(|error| panic!("{error}"))
            }
        };
        let bouncer = tokio::task::spawn_blocking(start).await.expect("PgBouncer starts");
        let port = bouncer.port();
        Self { server, bouncer: Arc::new(Mutex::new(bouncer)), port }
    }

    /// The callers' URL, by way of PgBouncer.
    pub fn url(&self, round: &Round) -> String {
        round.database().url_by_way_of(([127, 0, 0, 1], self.port).into())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Does something with both that blocks.
    pub async fn with(&self, act: impl FnOnce(&mut PgBouncer, &mut ScratchPostgres) + Send + 'static) {
        let (server, bouncer) = (Arc::clone(&self.server), Arc::clone(&self.bouncer));
        let both = move || {
            let mut bouncer = bouncer.lock().unwrap_or_else(PoisonError::into_inner);
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            act(&mut bouncer, &mut server);
        };
        tokio::task::spawn_blocking(both).await.expect("it is done");
    }
}
