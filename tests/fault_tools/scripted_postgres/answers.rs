//! Answers that are wrong: rows, columns, the end of the transaction, errors and notices.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Row as Received;
use tokio_postgres::error::Severity;

use super::client::{Caller, connect, eventually};
use super::silences::tags;
use crate::tools::scripted_postgres::{Act, Kind, Point, Query, Report, Row, Script, ScriptedPostgres, Step, Value};

#[tokio::test]
async fn the_number_of_rows_is_as_told() {
    for count in [0, 1, 2, 5] {
        let rows = answered(move |query| vec![grant(query); count]).await;
        assert_eq!(rows.len(), count);
    }
}

#[tokio::test]
async fn every_column_can_be_null_and_can_be_missing() {
    let names: Vec<String> =
        answered(|query| vec![grant(query)]).await[0].columns().iter().map(|column| column.name().to_owned()).collect();
    assert_eq!(names.len(), 13);
    for name in names {
        let null = name.clone();
        let row = &answered(move |query| vec![grant(query).null(&null)]).await[0];
        let is_null = match row.columns().iter().find(|column| column.name() == name).unwrap().type_().name() {
            "int4" => row.get::<_, Option<i32>>(name.as_str()).is_none(),
            "int8" => row.get::<_, Option<i64>>(name.as_str()).is_none(),
            "_int8" => row.get::<_, Option<Vec<i64>>>(name.as_str()).is_none(),
            _ => row.get::<_, Option<String>>(name.as_str()).is_none(),
        };
        assert!(is_null, "{name}");
        let missing = name.clone();
        let row = &answered(move |query| vec![grant(query).without(&missing)]).await[0];
        assert_eq!(row.len(), 12);
        assert!(row.try_get::<_, Option<i64>>(name.as_str()).is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_column_can_have_any_value_and_any_type() {
    let row = &answered(|query| {
        let nonce = query.ask.as_ref().unwrap().nonce;
        let row = grant(query).set("nonce", Value::Int8(nonce + 1)).set("contract", Value::Int4(9));
        vec![row.set("waits_us", Value::Int8Array(vec![-1, i64::MAX])).set("extra", Value::Text("한국".into()))]
    })
    .await[0];
    assert_eq!(row.get::<_, i64>("nonce"), NONCE + 1);
    assert_eq!(row.get::<_, i32>("contract"), 9);
    assert_eq!(row.get::<_, Vec<i64>>("waits_us"), [-1, i64::MAX]);
    assert_eq!(row.get::<_, &str>("extra"), "한국");
    assert_eq!(row.len(), 14);

    let row = &answered(|query| vec![grant(query).set("nonce", Value::Text("77".into()))]).await[0];
    assert!(row.try_get::<_, i64>("nonce").is_err());
    // An int8 of three bytes.
    let row = &answered(|query| vec![grant(query).set("nonce", Value::Raw(20, vec![1, 2, 3]))]).await[0];
    assert!(row.try_get::<_, i64>("nonce").is_err());
}

#[tokio::test]
async fn an_error_at_sync_comes_after_row_and_completion_and_the_session_goes_on() {
    let (server, caller) =
        scripted(Script::well().on_acquire(Point::Completed, Act::Error(Report::error("40001")))).await;
    assert_eq!(caller.refused(NONCE).await, "40001");
    // The caller is told at once; ReadyForQuery is read with the next answer at the latest.
    server.always(Script::well());
    caller.ask("kis", &[1], NONCE).await.unwrap();
    assert!(tags(&caller.heard()).ends_with("12tTDCEZ12tTDCZ"), "{}", tags(&caller.heard()));
}

#[tokio::test]
async fn an_error_at_sync_can_be_the_last_thing_said() {
    let refusing = Script::well().on_acquire(Point::Completed, Act::Error(Report::error("40001")));
    let (_server, caller) = scripted(refusing.on_acquire(Point::Completed, Act::Silence)).await;
    assert_eq!(caller.refused(NONCE).await, "40001");
    let next = caller.ask("kis", &[1], NONCE);
    assert!(timeout(Duration::from_millis(150), next).await.is_err(), "ReadyForQuery was said after all");
    assert!(tags(&caller.heard()).ends_with("12tTDCE"), "{}", tags(&caller.heard()));
}

#[tokio::test]
async fn ready_for_query_carries_the_status_that_it_is_told() {
    for status in [b'T', b'E', b'I'] {
        let (_server, caller) = scripted(Script::well().on_acquire(Point::Read, Act::Status(status))).await;
        assert_eq!(caller.ask("kis", &[1], NONCE).await.unwrap().len(), 1);
        assert_eq!(caller.heard().last(), Some(&status));
    }
}

#[tokio::test]
async fn a_commit_can_come_with_a_warning_before_or_after_completion() {
    for (point, order) in [(Point::Completed, "DCNZ"), (Point::Rows, "DNCZ")] {
        let (_server, caller) = scripted(Script::well().on_acquire(point, Act::Notice(Report::unreplicated()))).await;
        assert_eq!(caller.ask("kis", &[1], NONCE).await.unwrap().len(), 1);
        assert!(tags(&caller.heard()).ends_with(order), "{}", tags(&caller.heard()));
        eventually("the notice is told", || !caller.notices.lock().unwrap().is_empty()).await;
        let notices = caller.notices.lock().unwrap();
        assert_eq!(notices[0].code().code(), "01000");
        assert_eq!(notices[0].parsed_severity(), Some(Severity::Warning));
    }
}

#[tokio::test]
async fn any_sqlstate_is_an_error_that_leaves_the_session_and_a_fatal_that_does_not() {
    for sqlstate in ["25006", "57014", "42501", "0A000", "40001", "CB001"] {
        let (server, caller) =
            scripted(Script::well().on_acquire(Point::Read, Act::Error(Report::error(sqlstate)))).await;
        assert_eq!(caller.refused(NONCE).await, sqlstate);
        server.always(Script::well());
        caller.ask("kis", &[1], NONCE).await.unwrap();
    }
    for sqlstate in ["57P01", "25006", "57P03"] {
        for point in [Point::Read, Point::Rows, Point::Completed] {
            let (_server, caller) =
                scripted(Script::well().on_acquire(point, Act::Error(Report::fatal(sqlstate)))).await;
            let error = caller.ask("kis", &[1], NONCE).await.unwrap_err();
            assert_eq!(error.as_db_error().unwrap().parsed_severity(), Some(Severity::Fatal), "{point:?}");
            assert_eq!(error.code().unwrap().code(), sqlstate);
            assert!(caller.end().await.unwrap_err().is_closed());
        }
    }
}

#[tokio::test]
async fn a_login_can_be_refused_with_any_sqlstate_wherever_it_is_read() {
    for sqlstate in ["28P01", "28000", "3D000", "42501", "53300", "57P03", "57P01"] {
        for step in [Step::Startup, Step::PasswordRead, Step::Authenticated] {
            let server = ScriptedPostgres::start();
            server.password(Some("not-a-secret"));
            server.always(Script::well().at(step, Act::Error(Report::fatal(sqlstate).in_korean())));
            let error = connect(&server).await.unwrap_err();
            let refusal = error.as_db_error().unwrap_or_else(|| panic!("{sqlstate} at {step:?}: {error:?}"));
            assert_eq!(refusal.code().code(), sqlstate);
            assert_eq!((refusal.severity(), refusal.parsed_severity()), ("치명적오류", Some(Severity::Fatal)));
            assert!(!refusal.message().is_ascii());
            eventually("it is closed", || server.open_connections() == 0).await;
        }
    }
}

#[tokio::test]
async fn what_it_does_not_know_is_refused_unless_the_script_answers_it() {
    let server = ScriptedPostgres::start();
    let caller = connect(&server).await.unwrap();
    let refused = caller.client.query_typed("SELECT 1", &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "0A000");
    let fenced = |_: &Query| vec![Row::default().set("fences", Value::Int8(2))];
    server.always(Script::well().answer(Kind::Other, fenced));
    let rows = caller.client.query_typed("SELECT fences", &[]).await.unwrap();
    assert_eq!(rows[0].get::<_, i64>("fences"), 2);
}

const NONCE: i64 = 77;

fn grant(query: &Query) -> Row {
    Row::grant(query, Duration::ZERO)
}

async fn scripted(script: Script) -> (ScriptedPostgres, Caller) {
    let server = ScriptedPostgres::start();
    server.always(script);
    let caller = connect(&server).await.unwrap();
    (server, caller)
}

async fn answered(rows: impl Fn(&Query) -> Vec<Row> + Send + Sync + 'static) -> Vec<Received> {
    let (_server, caller) = scripted(Script::well().answer(Kind::Acquire, rows)).await;
    caller.ask("kis", &[1], NONCE).await.unwrap()
}
