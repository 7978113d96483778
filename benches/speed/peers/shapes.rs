//! What others do with a row of PostgreSQL to grant one call: the shape of their statements as published, in our words.
//!
//! Limits are so high that nobody is refused. Statements are prepared once a connection, and tables have room for updates
//! in place, also where that is not how the shape was published: each is measured at its best.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use super::pool::Connection;
use crate::Outcome;

/// One unit a microsecond.
const INTERVAL_US: i64 = 1;
const LONGEST_WAIT_US: i64 = 5_000_000;
const WINDOW_MS: i64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The floor: the least that a grant can be, and no limit at all. Sent as ours is: typed, no statement is left behind.
    Bare,
    /// The same, prepared.
    BarePrepared,
    /// The theoretical arrival time of the generic cell rate algorithm, moved by one upsert: `Delayed::Limit` of the gem
    /// `delayed` (github.com/Betterment/delayed, lib/delayed/limit.rb). There the table is unlogged, and the statement is
    /// not prepared. This one forgets nothing in a crash.
    Upsert,
    /// The same as its migration makes the table.
    UpsertUnlogged,
    /// A state of bytes that the client reads, understands and writes under the row's lock: bucket4j
    /// (github.com/bucket4j/bucket4j, bucket4j-postgresql, PostgreSQLSelectForUpdateBasedProxyManager).
    LockAndWrite,
    /// The same with a driver that sends BEGIN along with the statement after it, as JDBC's does.
    LockAndWriteThreeTrips,
    /// A counter of fixed windows, begun anew by the statement that finds its window over: rate-limiter-flexible
    /// (github.com/animir/node-rate-limiter-flexible, lib/RateLimiterPostgres.js).
    Counter,
}

impl Shape {
    pub const ALL: [Self; 7] = [
        Self::Bare,
        Self::BarePrepared,
        Self::Upsert,
        Self::UpsertUnlogged,
        Self::LockAndWrite,
        Self::LockAndWriteThreeTrips,
        Self::Counter,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare UPDATE, sent as ours",
            Self::BarePrepared => "bare UPDATE, prepared",
            Self::Upsert => "upsert GCRA, logged",
            Self::UpsertUnlogged => "upsert GCRA, unlogged",
            Self::LockAndWrite => "SELECT FOR UPDATE + UPDATE, 4 trips",
            Self::LockAndWriteThreeTrips => "SELECT FOR UPDATE + UPDATE, 3 trips",
            Self::Counter => "fixed-window counter",
        }
    }

    /// Whether a crash leaves what was granted, where commits wait for the disk.
    pub fn is_logged(self) -> bool {
        self != Self::UpsertUnlogged
    }

    fn table(self, keys: usize) -> String {
        format!("speed_{self:?}_{keys}").to_lowercase()
    }

    /// Makes its table anew, with a row for each key.
    pub async fn create(self, client: &Client, keys: usize) -> Outcome<()> {
        let table = self.table(keys);
        let logged = if self.is_logged() { "" } else { "UNLOGGED" };
        let (columns, row, settings) = match self {
            Self::Bare | Self::BarePrepared => {
                ("key text PRIMARY KEY, value bigint NOT NULL", "'key-' || n, 0", "fillfactor = 25")
            }
            Self::Upsert | Self::UpsertUnlogged => (
                "key varchar PRIMARY KEY, arrival timestamp with time zone NOT NULL",
                "'key-' || n, statement_timestamp()",
                "fillfactor = 33, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 30",
            ),
            // Published, it also holds the bucket's configuration; here only the first eight bytes mean something.
            Self::LockAndWrite | Self::LockAndWriteThreeTrips => {
                ("id bigint PRIMARY KEY, state bytea", "n, decode(repeat('00', 48), 'hex')", "fillfactor = 25")
            }
            Self::Counter => (
                "key varchar(255) PRIMARY KEY, points integer NOT NULL DEFAULT 0, expire bigint",
                "'key-' || n, 0, 0",
                "fillfactor = 25",
            ),
        };
        let sql = format!(
            "DROP TABLE IF EXISTS {table};
             CREATE {logged} TABLE {table} ({columns}) WITH ({settings});
             INSERT INTO {table} SELECT {row} FROM generate_series(0, {keys} - 1) AS n;
             VACUUM (ANALYZE) {table}"
        );
        for statement in sql.split(';') {
            client.batch_execute(statement).await?;
        }
        Ok(())
    }

    /// Makes the connection one of this shape, on the table with so many keys.
    pub async fn on(self, client: Client, keys: usize) -> Outcome<Peer> {
        let table = self.table(keys);
        let sql: Vec<String> = match self {
            Self::Bare | Self::BarePrepared => {
                vec![format!("UPDATE {table} SET value = value + 1 WHERE key = $1 RETURNING value")]
            }
            Self::Upsert | Self::UpsertUnlogged => vec![format!(
                "INSERT INTO {table} AS t (key, arrival)
                 VALUES ($1, statement_timestamp() + $2::bigint * interval '1 microsecond')
                 ON CONFLICT (key) DO UPDATE
                    SET arrival = greatest(t.arrival, statement_timestamp()) + $2::bigint * interval '1 microsecond'
                  WHERE t.arrival <= statement_timestamp() + $3::bigint * interval '1 microsecond'
                 RETURNING extract(epoch FROM t.arrival - statement_timestamp())::float8"
            )],
            Self::LockAndWrite | Self::LockAndWriteThreeTrips => vec![
                "BEGIN".into(),
                format!("SELECT state FROM {table} WHERE id = $1 FOR UPDATE"),
                format!("UPDATE {table} SET state = $1 WHERE id = $2"),
                "COMMIT".into(),
            ],
            Self::Counter => vec![format!(
                "INSERT INTO {table} AS t VALUES ($1, 1, $2)
                 ON CONFLICT (key) DO UPDATE
                    SET points = CASE WHEN t.expire <= $3 THEN 1 ELSE t.points + 1 END,
                        expire = CASE WHEN t.expire <= $3 THEN $2 ELSE t.expire END
                 RETURNING points, expire"
            )],
        };
        let mut statements = Vec::new();
        for sql in &sql {
            statements.push(client.prepare(sql).await?);
        }
        let names = (0..keys).map(|key| format!("key-{key}")).collect();
        let mut peer = Peer { shape: self, client, sql, statements, names };
        // Plans of a cold connection are nobody's cost here.
        for _ in 0..6 {
            peer.grant(0).await?;
        }
        Ok(peer)
    }
}

/// A connection of one shape.
pub struct Peer {
    shape: Shape,
    client: Client,
    sql: Vec<String>,
    statements: Vec<Statement>,
    names: Vec<String>,
}

impl Connection for Peer {
    async fn grant(&mut self, key: usize) -> Outcome<()> {
        let (client, name) = (&self.client, &self.names[key]);
        match self.shape {
            Shape::Bare => {
                granted(client.query_typed(&self.sql[0], &[(name, Type::TEXT)]).await?.len())?;
            }
            Shape::BarePrepared => granted(client.query(&self.statements[0], &[name]).await?.len())?,
            Shape::Upsert | Shape::UpsertUnlogged => {
                let rows = client.query(&self.statements[0], &[name, &INTERVAL_US, &LONGEST_WAIT_US]).await?;
                granted(rows.len())?;
                let _wait_s: f64 = rows[0].get(0);
            }
            Shape::LockAndWrite | Shape::LockAndWriteThreeTrips => self.lock_and_write(i64::try_from(key)?).await?,
            Shape::Counter => {
                let now_ms = now_us() / 1000;
                let rows = client.query(&self.statements[0], &[name, &(now_ms + WINDOW_MS), &now_ms]).await?;
                granted(rows.len())?;
                let (_points, _expire): (i32, i64) = (rows[0].get(0), rows[0].get(1));
            }
        }
        Ok(())
    }
}

impl Peer {
    async fn lock_and_write(&self, id: i64) -> Outcome<()> {
        let (client, statements) = (&self.client, &self.statements);
        let lock = async || client.query_one(&statements[1], &[&id]).await;
        let row = if self.shape == Shape::LockAndWrite {
            client.execute(&statements[0], &[]).await?;
            lock().await?
        } else {
            // Both leave together.
            let (begun, locked) = tokio::join!(biased; client.execute(&statements[0], &[]), lock());
            begun?;
            locked?
        };
        let mut state: Vec<u8> = row.get(0);
        let arrival = state.first_chunk().copied().map(i64::from_be_bytes).ok_or("a state without a time")?;
        let arrival = arrival.max(now_us()) + INTERVAL_US;
        state[..8].copy_from_slice(&arrival.to_be_bytes());
        granted(usize::try_from(client.execute(&statements[2], &[&state, &id]).await?)?)?;
        client.execute(&statements[3], &[]).await?;
        Ok(())
    }
}

fn granted(rows: usize) -> Outcome<()> {
    if rows == 1 { Ok(()) } else { Err("a peer was refused, although its limit is never reached".into()) }
}

/// The client's own time, as these clients take it.
fn now_us() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "a peer whose published shape dates by the client's wall clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
