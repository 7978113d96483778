//! One budget in a database of its own, and the functions under test with a time that the test chooses.

use std::collections::BTreeMap;

use call_budget::store::memory::scheduler::{Answer, Budget, Call, Class, Scheduler, Settings, Waiter};
use serde_json::Value;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::support::{self, TestDatabase};

/// The budget that the tests speak of.
pub const BUDGET: &str = "kis-real";

/// 18 a second with 100 ms of send window and jitter: the example of the design.
pub const KIS: Settings = Settings { interval_us: 61_174, lookahead_us: 60_000, send_window_us: 50_000, max_cost: 1 };

/// A moment in 2026: where the tests' clocks begin.
pub const START_US: i64 = 1_790_000_000_000_000;

pub struct Store {
    database: TestDatabase,
    reserve: Statement,
}

impl Store {
    /// A database with one budget under `settings`, without classes. Nothing was forgotten yet: no fence stands.
    pub async fn new(settings: Settings) -> Self {
        let database = support::database().await;
        let client = &database.client;
        client.batch_execute(TEST_SCHEMA).await.unwrap();
        // What the tests do by the thousand need not outlive a crash.
        client.batch_execute("SET synchronous_commit = off; SET contract.now_us = 0").await.unwrap();
        let reserve = client
            .prepare(
                "SELECT a.*, contract.rows($1) AS rows FROM call_budget.call_budget_state AS b, \
                 LATERAL call_budget.call_budget_reserve(b, $2, $3, $4, $5, $6, $7) AS a WHERE b.name = $1",
            )
            .await
            .unwrap();
        let store = Self { database, reserve };
        store.set(settings).await;
        store
    }

    /// Like [`Store::new`], with classes (name, priority, floor) and with its first fence behind it.
    pub async fn with_classes(settings: Settings, classes: &[(&str, i32, i32)]) -> Self {
        let store = Self::new(settings).await;
        for (name, priority, floor_ppm) in classes {
            store.set_class(name, *priority, *floor_ppm).await.unwrap();
        }
        store.at(0).await;
        store.client().query("SELECT call_budget.call_budget_fence($1)", &[&BUDGET]).await.unwrap();
        store
            .client()
            .batch_execute(
                "UPDATE call_budget.call_budget SET fenced_until_us = 0, fences = 0;
                 UPDATE call_budget.call_budget_schedule SET last_seen_us = 0",
            )
            .await
            .unwrap();
        store
    }

    pub fn client(&self) -> &Client {
        &self.database.client
    }

    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.database.client
    }

    /// One more connection, as the same role.
    pub async fn connect(&self) -> Client {
        support::connect(&self.database.url).await
    }

    /// One call at `now_us`.
    pub async fn reserve(&self, call: Call<'_>, now_us: i64) -> Answer {
        self.reserve_and_rows(call, now_us).await.0
    }

    /// One call at `now_us`, and the rows after it.
    pub async fn reserve_and_rows(&self, call: Call<'_>, now_us: i64) -> (Answer, Scheduler) {
        let nonce = now_us ^ call.lane;
        let row = self
            .client()
            .query_one(
                &self.reserve,
                &[&BUDGET, &call.class, &call.lane, &call.costs, &call.patience_us, &nonce, &now_us],
            )
            .await
            .unwrap_or_else(|error| panic!("{call:?} at {now_us}: {error:?}"));
        assert_eq!(row.get::<_, i64>("nonce"), nonce);
        (answer(&row), rows(row.get("rows")))
    }

    /// The rows as they are.
    pub async fn rows(&self) -> Scheduler {
        rows(self.client().query_one("SELECT contract.rows($1)", &[&BUDGET]).await.unwrap().get(0))
    }

    /// Puts the rows back to what they were, as a restore does: whatever was committed since is forgotten.
    pub async fn restore(&self, rows: &Scheduler) {
        let b = &rows.budget;
        let mut sql = format!(
            "DELETE FROM call_budget.call_budget_class; DELETE FROM call_budget.call_budget_waiter;
             UPDATE call_budget.call_budget SET
                interval_us = {}, lookahead_us = {}, send_window_us = {}, max_cost = {}, version = {}, paused = {},
                blocked_until_us = {}, fenced_until_us = {}, fences = {}, widest_lookahead_us = {},
                widest_max_cost = {};
             UPDATE call_budget.call_budget_schedule SET last_slot_us = {}, last_cost = {}, last_seen_us = {}, waiting = {};",
            b.settings.interval_us,
            b.settings.lookahead_us,
            b.settings.send_window_us,
            b.settings.max_cost,
            b.version,
            b.paused,
            b.blocked_until_us,
            b.fenced_until_us,
            b.fences,
            b.widest_lookahead_us,
            b.widest_max_cost,
            b.last_slot_us,
            b.last_cost,
            b.last_seen_us,
            rows.waiters.values().filter(|waiter| waiter.units > 0).count(),
        );
        for (name, c) in &rows.classes {
            sql += &format!(
                "INSERT INTO call_budget.call_budget_class VALUES ('{BUDGET}', '{name}', {}, {}, {}, {}, {});",
                c.priority, c.floor_ppm, c.due_us, c.last_slot_us, c.granted
            );
        }
        for (lane, w) in &rows.waiters {
            sql += &format!(
                "INSERT INTO call_budget.call_budget_waiter VALUES ('{BUDGET}', {lane}, '{}', {}, {}, {});",
                w.class, w.units, w.place_us, w.appointment_us
            );
        }
        self.client().batch_execute(&sql).await.unwrap();
        if !rows.remembered {
            self.forget().await;
        }
    }

    /// Empties the marker table, as a crash or a promotion does.
    pub async fn forget(&self) {
        self.client().execute("DELETE FROM call_budget.call_budget_marker", &[]).await.unwrap();
    }

    /// The vendor's limit is chosen so wide that the schema accepts any interval.
    pub async fn set(&self, settings: Settings) {
        let Settings { interval_us, lookahead_us, send_window_us, max_cost } = settings;
        self.client()
            .query_one(
                "SELECT call_budget.call_budget_set($1, 1000000, 1000, $2, 0, $3, $4, $5)",
                &[&BUDGET, &send_window_us, &max_cost, &interval_us, &lookahead_us],
            )
            .await
            .unwrap();
    }

    pub async fn set_class(&self, name: &str, priority: i32, floor_ppm: i32) -> Result<(), Error> {
        let sql = "SELECT call_budget.call_budget_class_set($1, $2, $3, $4)";
        self.client().query_one(sql, &[&BUDGET, &name, &priority, &floor_ppm]).await.map(|_| ())
    }

    /// What time it is for pushback, fence and drain, from now on.
    pub async fn at(&self, now_us: i64) {
        self.client().batch_execute(&format!("SET contract.now_us = {now_us}")).await.unwrap();
    }

    /// The one number that `sql` answers, with the budget as $1.
    pub async fn number(&self, sql: &str) -> i64 {
        self.client().query_one(sql, &[&BUDGET]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    }
}

/// The answer of `call_budget_acquire` or of the private function.
pub fn answer(row: &Row) -> Answer {
    assert_eq!(row.get::<_, i32>("contract"), 1);
    let reason: Option<String> = row.get("reason");
    Answer {
        waits_us: row.get("waits_us"),
        retry_us: row.get("retry_us"),
        reason: reason
            .map(|reason| REASONS.into_iter().find(|known| *known == reason).expect("a reason that is known")),
        interval_us: row.get("interval_us"),
        lookahead_us: row.get("lookahead_us"),
        send_window_us: row.get("send_window_us"),
        max_cost: row.get("max_cost"),
        version: row.get("version"),
        fences: row.get("fences"),
        store_us: row.get("store_us"),
    }
}

const REASONS: [&str; 5] = ["patience", "paused", "cost_out_of_range", "unknown_budget", "unknown_class"];

fn rows(json: &str) -> Scheduler {
    let rows: Value = serde_json::from_str(json).unwrap();
    let long = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{value} is no bigint"));
    let int = |value: &Value| i32::try_from(long(value)).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let b = &rows["budget"];
    let budget = Budget {
        settings: Settings {
            interval_us: long(&b["interval_us"]),
            lookahead_us: long(&b["lookahead_us"]),
            send_window_us: long(&b["send_window_us"]),
            max_cost: int(&b["max_cost"]),
        },
        version: long(&b["version"]),
        paused: b["paused"].as_bool().unwrap(),
        last_slot_us: long(&b["last_slot_us"]),
        last_cost: int(&b["last_cost"]),
        last_seen_us: long(&b["last_seen_us"]),
        blocked_until_us: long(&b["blocked_until_us"]),
        fenced_until_us: long(&b["fenced_until_us"]),
        fences: long(&b["fences"]),
        widest_lookahead_us: long(&b["widest_lookahead_us"]),
        widest_max_cost: int(&b["widest_max_cost"]),
    };
    let class = |c: &Value| Class {
        priority: int(&c[1]),
        floor_ppm: int(&c[2]),
        due_us: long(&c[3]),
        last_slot_us: long(&c[4]),
        granted: long(&c[5]),
    };
    let waiter = |w: &Value| Waiter {
        class: text(&w[1]),
        units: long(&w[2]),
        place_us: long(&w[3]),
        appointment_us: long(&w[4]),
    };
    let list = |key: &str| rows[key].as_array().unwrap().iter();
    Scheduler {
        budget,
        classes: list("classes").map(|c| (text(&c[0]), class(c))).collect::<BTreeMap<_, _>>(),
        waiters: list("waiters").map(|w| (long(&w[0]), waiter(w))).collect::<BTreeMap<_, _>>(),
        remembered: rows["remembered"].as_bool().unwrap(),
    }
}

/// The rows of a budget in one text, and the chosen clock for the functions that read it themselves.
const TEST_SCHEMA: &str = "
    CREATE SCHEMA contract;
    CREATE OR REPLACE FUNCTION call_budget.call_budget_now_us() RETURNS bigint LANGUAGE sql VOLATILE AS
        $$ SELECT current_setting('contract.now_us')::bigint $$;
    CREATE FUNCTION contract.rows(budget_name text) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        RETURN json_build_object(
            'budget', (SELECT row_to_json(x) FROM (
                SELECT b.*, s.last_slot_us, s.last_cost, s.last_seen_us FROM call_budget.call_budget AS b
                  JOIN call_budget.call_budget_schedule AS s ON s.budget = b.name WHERE b.name = budget_name) AS x),
            'classes', (SELECT coalesce(json_agg(json_build_array(c.name, c.priority, c.floor_ppm, c.due_us, c.last_slot_us, c.granted)), '[]')
                          FROM call_budget.call_budget_class AS c WHERE c.budget = budget_name),
            'waiters', (SELECT coalesce(json_agg(json_build_array(w.lane, w.class, w.units, w.place_us, w.appointment_us)), '[]')
                          FROM call_budget.call_budget_waiter AS w WHERE w.budget = budget_name),
            'remembered', EXISTS (SELECT FROM call_budget.call_budget_marker AS m WHERE m.budget = budget_name))::text;
    END $$;";
