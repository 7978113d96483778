//! The one query: `call_budget_acquire`, one round trip, one transaction of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::{FromSqlOwned, ToSql, Type};

use super::answer::{Breach, Columns};
use super::breakers::Snapshot;
use super::pool::Pool;
use super::record::{Malformed, Record};
use super::session::{Opener, Session};
use super::timelines::Timelines;
use super::{Answer, Ask, CONTRACT, Failing, Progress, Reply, Store, StoreError, breakers};
use crate::clock::{Clock, SystemClock};
use crate::config::{Connection, Settings, SettingsError};
use crate::policy::Instant;
use crate::policy::stage::Stage;

/// In one piece: see `record`.
const ACQUIRE: &str = "SELECT pg_catalog.record_send(call_budget.call_budget_acquire($1, $2, $3, $4, $5, $6))";
const REQUEST_FENCE: &str = "SELECT call_budget.call_budget_request_fence($1)";
const REPORT_PUSHBACK: &str = "SELECT call_budget.call_budget_report_pushback($1, $2, $3)";
const PUBLISH_BREAKERS: &str = "SELECT call_budget.call_budget_publish_breakers($1, $2::text::jsonb)";

/// The store on PostgreSQL.
pub struct PostgresStore<C: Clock = SystemClock> {
    pool: Pool<C>,
    clock: C,
    timelines: Timelines,
}

impl<C: Clock> PostgresStore<C> {
    /// A store that connects when it is first asked.
    ///
    /// # Errors
    /// No database is named, or it cannot be used as it is named; nothing is connected to find out.
    pub fn new(settings: &Settings, clock: C) -> Result<Self, SettingsError> {
        let opener = Opener::new(Connection::of(settings)?, clock.clone());
        let pool = Pool::new(opener, settings.pool_size);
        Ok(Self { pool, clock, timelines: Timelines::default() })
    }
}

impl<C: Clock> Store for PostgresStore<C> {
    async fn acquire(&self, ask: &Ask, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        let borrowed = self.pool.get(progress).await?;
        progress.enter(Stage::Query);
        let reply = query(borrowed.session(), &self.clock, ask, Stage::Query).await?;
        if reply.answer.timeline > 0 {
            self.timelines.refuse_older(reply.answer.timeline)?;
        }
        borrowed.give_back();
        Ok(reply)
    }

    async fn probe(&self, progress: &Arc<Progress>) -> Result<Reply, StoreError> {
        let borrowed = self.pool.get(progress).await?;
        progress.enter(Stage::Query);
        let reply = probe(borrowed.session(), &self.clock, Stage::Query).await?;
        borrowed.give_back();
        Ok(reply)
    }

    async fn fence(&self, budget: &str, progress: &Arc<Progress>) -> Result<bool, StoreError> {
        let borrowed = self.pool.get(progress).await?;
        progress.enter(Stage::Query);
        let fenced = single(borrowed.session(), REQUEST_FENCE, &[(&budget, Type::TEXT)]).await?;
        borrowed.give_back();
        Ok(fenced)
    }

    async fn report_pushback(
        &self,
        budget: &str,
        duration: Duration,
        reason: &str,
        progress: &Arc<Progress>,
    ) -> Result<Duration, StoreError> {
        let borrowed = self.pool.get(progress).await?;
        progress.enter(Stage::Query);
        let (duration_us, reason) = (micros(duration), breakers::one_line(reason));
        let arguments: [(&(dyn ToSql + Sync), Type); 3] =
            [(&budget, Type::TEXT), (&duration_us, Type::INT8), (&reason, Type::TEXT)];
        let left_us = single(borrowed.session(), REPORT_PUSHBACK, &arguments).await;
        borrowed.give_back_unless_doubtful(left_us).map(duration_of)
    }

    async fn publish(
        &self,
        process: i64,
        snapshots: &[Snapshot],
        progress: &Arc<Progress>,
    ) -> Result<Duration, StoreError> {
        let borrowed = self.pool.get(progress).await?;
        progress.enter(Stage::Query);
        let breakers = breakers::in_json(snapshots, self.clock.wall());
        let arguments: [(&(dyn ToSql + Sync), Type); 2] = [(&process, Type::INT8), (&breakers, Type::TEXT)];
        let wait_us = single(borrowed.session(), PUBLISH_BREAKERS, &arguments).await;
        borrowed.give_back_unless_doubtful(wait_us).map(duration_of)
    }
}

/// Acquires under nobody's name: there and back, every statement planned on the way, nothing taken.
pub(super) async fn probe<C: Clock>(session: &Session, clock: &C, stage: Stage) -> Result<Reply, StoreError> {
    let ask = Ask {
        budget: "".into(),
        class: "".into(),
        lane: 0,
        costs: vec![1],
        patience: Duration::ZERO,
        nonce: fastrand::i64(0..),
    };
    query(session, clock, &ask, stage).await
}

/// The one value that the statement answers.
async fn single<T: FromSqlOwned>(
    session: &Session,
    statement: &str,
    arguments: &[(&(dyn ToSql + Sync), Type)],
) -> Result<T, StoreError> {
    let failed = |error| session.failed(Stage::Query, error);
    let rows = run(session, statement, arguments).await.map_err(failed)?;
    match &rows[..] {
        [row] => row.try_get(0).map_err(failed),
        _ => Err(breached(Stage::Query, &Breach::Nonsense("not exactly one row"))),
    }
}

async fn query<C: Clock>(session: &Session, clock: &C, ask: &Ask, stage: Stage) -> Result<Reply, StoreError> {
    let costs: Vec<i32> = ask.costs.iter().map(|cost| i32::try_from(*cost).unwrap_or(i32::MAX)).collect();
    let patience_us = micros(ask.patience);
    let arguments: [(&(dyn ToSql + Sync), Type); 6] = [
        (&&*ask.budget, Type::TEXT),
        (&&*ask.class, Type::TEXT),
        (&ask.lane, Type::INT8),
        (&costs, Type::INT4_ARRAY),
        (&patience_us, Type::INT8),
        (&ask.nonce, Type::INT8),
    ];
    let warnings = session.warnings();
    let asked: Instant = clock.now();
    let rows = run(session, ACQUIRE, &arguments).await.map_err(|error| session.failed(stage, error))?;
    let answered = clock.now();
    if !session.is_idle() {
        return Err(breached(stage, &Breach::Nonsense("it ended inside a transaction")));
    }
    // Such as that of a cancelled wait for a synchronous standby: committed here, and not there. (The warnings that come
    // with a login are only counted while the first answer is awaited, which grants nothing.)
    if stage == Stage::Query && session.warnings() != warnings {
        return Err(breached(stage, &Breach::Nonsense("its commit came with a warning")));
    }
    let answer = decode(&rows, ask).map_err(|breach| breached(stage, &breach))?;
    Ok(Reply { asked, answered, answer })
}

/// The rows, once everything is committed: complete only at ReadyForQuery, since rows come before the commit.
async fn run(
    session: &Session,
    statement: &str,
    arguments: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
    let client = &session.client;
    // Typed, so that it is one round trip and no named statement.
    if !session.needs_isolation {
        return client.query_typed(statement, arguments).await;
    }
    // Still one round trip: all three leave together. (A SET would stay behind in a pooler's connection.)
    let (begun, rows, committed) = tokio::join!(
        biased;
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
        client.query_typed(statement, arguments),
        client.batch_execute("COMMIT"),
    );
    begun.and(rows).and_then(|rows| committed.map(|()| rows))
}

fn decode(rows: &[tokio_postgres::Row], ask: &Ask) -> Result<Answer, Breach> {
    let [row] = rows else { return Err(Breach::Nonsense("not exactly one row")) };
    let of_other_type = |_| Breach::Nonsense("a column has another type");
    let answer = row.try_get(0).map_err(|_| Breach::Nonsense("it is no record"))?;
    columns(answer).map_err(of_other_type)?.checked(ask)
}

/// The columns of the answer, in the order of the type `call_budget_answer`. They are told apart by their place: within one
/// contract a later schema may only append to them.
fn columns(answer: &[u8]) -> Result<Columns, Malformed> {
    let mut record = Record::read(answer)?;
    let contract = record.next()?;
    if contract != Some(CONTRACT) {
        // What follows may be anything.
        return Ok(Columns { contract, ..Columns::default() });
    }
    Ok(Columns {
        contract,
        nonce: record.next()?,
        waits_us: record.next()?,
        retry_us: record.next()?,
        reason: record.next()?,
        interval_us: record.next()?,
        lookahead_us: record.next()?,
        send_window_us: record.next()?,
        max_cost: record.next()?,
        version: record.next()?,
        fences: record.next()?,
        timeline: record.next()?,
        store_us: record.next()?,
    })
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// What is left of something; nothing where it is over.
fn duration_of(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

fn breached(stage: Stage, breach: &Breach) -> StoreError {
    let (kind, message) = match breach {
        Breach::Contract(theirs) => (
            Failing::Misconfigured,
            format!(
                "the schema speaks contract {}, this program speaks {CONTRACT}: bring both to neighbouring releases (call-budget migrate)",
                theirs.map_or_else(|| "unknown".into(), |n| n.to_string())
            ),
        ),
        // It was an answer to somebody, so something may have been spent.
        Breach::Nonsense(why) => (Failing::Uncertain, format!("the answer breaks the contract: {why}")),
    };
    // Whatever contract it speaks, it has committed.
    StoreError { may_have_spent: stage == Stage::Query, ..StoreError::new(stage, kind, message) }
}
