//! Faults while the server works on the call.

use std::time::Duration;

use call_budget::policy::stage::Stage;

use crate::suite::{Case, HEALS, How, Length, Round, nothing};

pub const CASES: &[Case] = &[Case {
    row: 14,
    id: "14.row_locked",
    name: "somebody holds the budget's row locked for longer than the deadline",
    how: How::Server,
    deadline: Duration::from_secs(1),
    length: Length::Short,
    heals: HEALS,
    needs: nothing,
    own_process: None,
    run: |round| Box::pin(row_locked(round)),
}];

async fn row_locked(round: &mut Round) {
    let url = round.database().url_by_way_of(round.database().address());
    let mut settings = round.settings(url);
    settings.max_wait = Duration::from_secs(1);
    let caller = round.caller(&settings).await;
    caller.send().await;

    let budget = round.budget().await;
    let mut somebody = round.database().admin().await.expect("a session");
    let transaction = somebody.transaction().await.unwrap();
    let lock = "SELECT FROM call_budget.call_budget WHERE name = $1 FOR UPDATE";
    transaction.query_one(lock, &[&budget]).await.unwrap();

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!(error.stage(), Some(Stage::Query), "{error}");

    round.healing(&caller, transaction.rollback()).await.unwrap();
}
