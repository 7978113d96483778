//! What `call_budget_acquire` makes of odd arguments, odd names and odd sessions.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};

use crate::store::{BUDGET, KIS, Store};

const DAY_US: i64 = 86_400_000_000;

#[tokio::test]
async fn null_negative_and_absurd_arguments_are_refused() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let before = store.rows().await;
    for arguments in [
        "NULL, 'order', 1, '{1}', 0, 1",
        "'kis-real', NULL, 1, '{1}', 0, 1",
        "'kis-real', 'order', NULL, '{1}', 0, 1",
        "'kis-real', 'order', -1, '{1}', 0, 1",
        "'kis-real', 'order', 1, NULL, 0, 1",
        "'kis-real', 'order', 1, '{}', 0, 1",
        "'kis-real', 'order', 1, '{NULL}', 0, 1",
        "'kis-real', 'order', 1, '{1,NULL}', 0, 1",
        "'kis-real', 'order', 1, '{0}', 0, 1",
        "'kis-real', 'order', 1, '{1,-1}', 0, 1",
        "'kis-real', 'order', 1, array_fill(1, '{100001}'), 0, 1",
        "'kis-real', 'order', 1, '{1}', NULL, 1",
        "'kis-real', 'order', 1, '{1}', -1, 1",
        "'kis-real', 'order', 1, '{1}', 86400000001, 1",
        "'kis-real', 'order', 1, '{1}', 0, NULL",
        "'', '', -1, '{1}', 0, 1",
    ] {
        let sql = format!("SELECT * FROM call_budget.call_budget_acquire({arguments})");
        let refused = store.client().query_one(&sql, &[]).await.expect_err(arguments);
        assert_eq!(refused.code(), Some(&SqlState::from_code("CB001")), "{arguments}");
    }
    assert_eq!(store.rows().await, before, "a refused call leaves nothing behind");
}

#[tokio::test]
async fn a_cost_over_the_largest_and_unknown_names_are_answers_and_write_nothing() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let reason = async |budget: &str, class: &str, costs: &[i32]| {
        let row = acquire(store.client(), budget, class, costs).await;
        assert_eq!(row.get::<_, Vec<i64>>("waits_us"), [0; 0]);
        row.get::<_, String>("reason")
    };
    assert_eq!(reason(BUDGET, "order", &[1, 2]).await, "cost_out_of_range");
    assert_eq!(reason("nobody", "order", &[1]).await, "unknown_budget");
    let before = store.rows().await;
    assert_eq!(reason(BUDGET, "nobody", &[1]).await, "unknown_class");
    assert_eq!(store.rows().await, before);
}

#[tokio::test]
async fn only_read_committed_is_served() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let client = store.connect().await;
    for isolation in ["repeatable read", "serializable"] {
        client.batch_execute(&format!("SET default_transaction_isolation = '{isolation}'")).await.unwrap();
        for budget in [BUDGET, ""] {
            let sql = "SELECT * FROM call_budget.call_budget_acquire($1, 'order', 1, '{1}', 0, 1)";
            let refused = client.query_one(sql, &[&budget]).await.unwrap_err();
            assert_eq!(refused.code(), Some(&SqlState::from_code("CB002")), "{isolation}");
        }
    }
}

#[tokio::test]
async fn the_probe_takes_no_lock_and_leaves_no_rows() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let before = store.rows().await;
    let locked = store.connect().await;
    locked.batch_execute("BEGIN; SELECT FROM call_budget.call_budget FOR UPDATE").await.unwrap();
    let mut probing = store.connect().await;
    let probe = probing.transaction().await.unwrap();
    let sql = "SELECT * FROM call_budget.call_budget_acquire('', '', 1, '{1}', 0, 77)";
    let row = timeout(Duration::from_secs(5), probe.query_one(sql, &[])).await.expect("the probe waits").unwrap();
    assert_eq!((row.get::<_, &str>("reason"), row.get::<_, i64>("nonce")), ("unknown_budget", 77));
    assert_eq!(row.get::<_, Option<i64>>("retry_us"), None);
    let sql = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype IN ('tuple', 'transactionid')";
    assert_eq!(probe.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0, "it holds no row and wrote none");
    probe.commit().await.unwrap();
    locked.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.rows().await, before);
    for table in ["call_budget", "call_budget_class", "call_budget_waiter", "call_budget_marker"] {
        let sql = format!("SELECT count(*) FROM call_budget.{table} WHERE $1 <> ''");
        let all = store.number(&sql).await;
        assert_eq!(all, i64::from(table != "call_budget_waiter"), "{table}");
    }
}

#[tokio::test]
async fn the_answer_echoes_the_nonce_whatever_it_says() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    for (budget, class, nonce) in [(BUDGET, "order", i64::MAX), (BUDGET, "nobody", i64::MIN), ("nobody", "order", -7)] {
        let sql = "SELECT a.nonce FROM call_budget.call_budget_acquire($1, $2, 1, '{1}', 0, $3) AS a";
        let echoed: i64 = store.client().query_one(sql, &[&budget, &class, &nonce]).await.unwrap().get(0);
        assert_eq!(echoed, nonce);
    }
}

#[tokio::test]
async fn foreign_session_defaults_do_not_matter() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let client = store.connect().await;
    client
        .batch_execute(
            "SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'sql_standard'; SET TimeZone = 'Asia/Seoul'; \
             SET client_encoding = 'EUC_KR'; SET lc_messages = 'C'; SET bytea_output = 'escape'; \
             SET extra_float_digits = -15; SET search_path = ''; SET standard_conforming_strings = off; \
             SET plan_cache_mode = force_custom_plan; SET jit = on; SET enable_indexscan = off",
        )
        .await
        .unwrap();
    let here_us = acquire(store.client(), BUDGET, "order", &[1]).await.get::<_, i64>("store_us");
    let row = acquire(&client, BUDGET, "order", &[1]).await;
    let there_us = row.get::<_, i64>("store_us");
    assert!((0..10_000_000).contains(&(there_us - here_us)), "the same clock whatever the time zone");
    assert_eq!((row.get::<_, i64>("interval_us"), row.get::<_, i64>("timeline")), (61_174, 1));
    assert_eq!(row.get::<_, Option<&str>>("reason"), None);
}

/// A temporary table or function of the caller's must not stand in for the schema's or the system's.
#[tokio::test]
async fn what_a_caller_puts_on_his_search_path_is_not_used() {
    let store = Store::with_classes(KIS, &[("order", 0, 0)]).await;
    let client = store.connect().await;
    client
        .batch_execute(
            "CREATE SCHEMA trap; \
             CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz'; \
             CREATE TEMP TABLE call_budget_waiter (budget text); \
             SET search_path = trap, pg_temp, pg_catalog",
        )
        .await
        .unwrap();
    let row = acquire(&client, BUDGET, "order", &[1]).await;
    assert!(row.get::<_, i64>("store_us") > 1_700_000_000_000_000);
}

#[tokio::test]
async fn odd_names_work_and_names_too_long_are_refused() {
    let store = Store::new(KIS).await;
    let set = "SELECT call_budget.call_budget_set($1, 18, 1000000, 50000, 50000, 1, 61174, 60000)";
    for name in ["it's \"odd\" \\ ; DROP", "한국투자증권 실전", "💸", &"x".repeat(100)] {
        store.client().query_one(set, &[&name]).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let class = "SELECT call_budget.call_budget_class_set($1, $1, 0, 0)";
        store.client().query_one(class, &[&name]).await.unwrap();
        assert_eq!(acquire(store.client(), name, name, &[1]).await.get::<_, Option<&str>>("reason"), None, "{name}");
        // The chosen clock, ahead of all that was granted or fenced.
        store.at(4_000_000_000_000_000).await;
        let delete = "SELECT call_budget.call_budget_delete($1)";
        store.client().query_one(delete, &[&name]).await.unwrap();
        let gone = acquire(store.client(), name, name, &[1]).await;
        assert_eq!(gone.get::<_, Option<&str>>("reason"), Some("unknown_budget"), "{name}");
    }
    let long = "가".repeat(300);
    for name in ["", &*long, "line\nbreak"] {
        let refused = store.client().query_one(set, &[&name]).await.unwrap_err();
        let constraint = refused.as_db_error().and_then(|refusal| refusal.constraint());
        assert_eq!(constraint, Some("a name has 1 to 100 characters and no control character"), "{name}");
    }
    assert_eq!(acquire(store.client(), &long, "order", &[1]).await.get::<_, &str>("reason"), "unknown_budget");
}

#[tokio::test]
async fn the_largest_arguments_are_served() {
    let store = Store::with_classes(KIS, &[("order", 0, 1000)]).await;
    let slow = "SELECT call_budget.call_budget_set($1, 1000000, 1000, 50000, 0, 1000, 864000000, 60000)";
    store.client().query_one(slow, &[&BUDGET]).await.unwrap();
    for lane in 0..3 {
        let sql = "SELECT a.* FROM call_budget.call_budget_acquire($1, 'order', $2, array_fill(1000, '{100000}'), $3, 0) AS a";
        let row = store.client().query_one(sql, &[&BUDGET, &(i64::MAX - lane), &DAY_US]).await.unwrap();
        let refused = row.get::<_, Option<&str>>("reason");
        assert!(matches!(refused, None | Some("patience")), "{refused:?}");
    }
}

async fn acquire(client: &Client, budget: &str, class: &str, costs: &[i32]) -> Row {
    let sql = "SELECT * FROM call_budget.call_budget_acquire($1, $2, 1, $3, $4, 0)";
    client.query_one(sql, &[&budget, &class, &costs, &DAY_US]).await.unwrap_or_else(|error| panic!("{error:?}"))
}
