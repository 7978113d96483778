//! A reading in which every metric stands: calls on a store in memory, and the status of a real PostgreSQL.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use call_budget::policy::Wall;
use call_budget::policy::breaker::event::Cause;
use call_budget::policy::breaker::view::EpisodeView;
use call_budget::policy::breaker::{Shown, View};
use call_budget::policy::verdict::Verdict;
use call_budget::service::metrics::{HttpFigures, ServiceFigures, text};
use call_budget::store::breakers::Snapshot;
use call_budget::store::operation::Operation;
use call_budget::store::report::Report;
use call_budget::store::{PostgresStore, Store, status};
use call_budget::test_util::{Instant, Limit, ManualClock, MemoryStore};
use call_budget::{Answer, CallBudget, Credential, Figures, Settings};

use crate::support;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const SURFACES: &str = r#"
    [surface."kis/real/quote"]
    budget = "kis-real"
    class = "minute"
    vendor = "kis"
    breaker = "escalating"
    idempotent = true
"#;

/// All that the service can tell.
pub async fn whole() -> String {
    text(&figures().await, &service(), Some((&report().await, ms(1_500))))
}

pub async fn figures() -> Figures {
    let clock = ManualClock::at(Instant::default() + ms(1_000));
    let store = MemoryStore::new(clock.clone());
    store.set_budget(
        "kis-real",
        Limit { units: 18, window: ms(1_000), send_window: ms(50), arrival_jitter: ms(50), max_cost: 1 },
    );
    store.set_class("kis-real", "minute", 1, 0.25);
    let settings = Settings::of_toml(SURFACES, Path::new("")).unwrap();
    let budgets = CallBudget::with_store(&settings, clock.clone(), store).unwrap();
    let throttled = TooMany(r#"{"rt_cd": "1", "msg_cd": "EGW00201", "msg1": "초당 거래건수를 초과하였습니다."}"#);
    let credential = Credential::new("desk-1");
    let answered = budgets.call("kis/real/quote", &credential, |_| std::future::ready(Ok(throttled.clone()))).await;
    assert!(answered.unwrap().finding.throttled);
    clock.advance(ms(2_000));
    budgets.acquire("kis-real", "minute").await.unwrap().start().map(drop).unwrap();
    budgets.acquire("nobody", "order").await.unwrap_err();
    for _ in 0..5 {
        budgets.breaker("kis/real/quote").unwrap().admit().unwrap().settle(Verdict::Bad);
    }
    budgets.figures()
}

pub fn service() -> ServiceFigures {
    let http = HttpFigures::default();
    http.record("/v1/acquire", 200, ms(120));
    http.record("/v1/acquire", 429, ms(500));
    http.record("/metrics", 200, ms(1));
    ServiceFigures {
        enabled: true,
        uptime: ms(90_000),
        waiting: 3,
        open_calls: 2,
        calls_lost: 2,
        store_reachable: Some(true),
        http: http.read(),
    }
}

pub async fn report() -> Report {
    let mut database = support::database().await;
    database
        .client
        .batch_execute(
            "SELECT call_budget.call_budget_set('kis-real', 18, 1000000, 50000, 50000, 1, 61174, 60000);
             SELECT call_budget.call_budget_class_set('kis-real', 'order', 0, 250000)",
        )
        .await
        .unwrap();
    // A new server may have a fence first.
    support::eventually("the class has a slot", async || {
        let acquire = "SELECT call_budget.call_budget_acquire('kis-real', 'order', 7, ARRAY[1], 5000000, 8)";
        let granted = "SELECT granted > 0 FROM call_budget.call_budget_class_status";
        database.client.batch_execute(acquire).await.unwrap();
        database.client.query_one(granted, &[]).await.unwrap().get(0)
    })
    .await;
    let mut settings = Settings::default();
    (settings.enabled, settings.database_url) = (true, Some(database.url.as_str().into()));
    let store = PostgresStore::new(&settings, call_budget::clock::SystemClock).unwrap();
    store.publish(7, &[open_breaker()], &Arc::default()).await.unwrap();
    let operation = Operation::begin(&mut database.client).await.unwrap();
    let budgets = status::budgets(&operation, None).await.unwrap();
    Report::of(&operation, budgets).await.unwrap()
}

fn open_breaker() -> Snapshot {
    let view = View {
        shown: Shown::Open,
        failure_rate: None,
        slow_rate: None,
        streak: 5,
        calls: 5,
        successes: 0,
        failures: 5,
        rejected: 1,
        stale: 0,
        why: "bad ones in a row".into(),
        retry_at: None,
        rung: 0,
        epoch: 2,
        episode: Some(EpisodeView {
            started_at: Wall::from_unix_us(0),
            total_open: ms(1_000),
            reopen_count: 0,
            probe_count: 0,
            cause: Cause::Streak,
        }),
    };
    let surfaces = vec!["kis/real/quote".into()];
    Snapshot { breaker: "kis/real/quote".into(), surfaces, view, retry_after: Some(ms(30_000)), holds: Vec::new() }
}

#[derive(Clone)]
struct TooMany(&'static str);

impl Answer for TooMany {
    fn status(&self) -> u16 {
        500
    }

    fn header(&self, _: &str) -> Option<&str> {
        None
    }

    fn body(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
