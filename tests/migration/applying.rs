//! `migrate`: what it applies, what it refuses, and that any number of runs at once is fine.

use call_budget::store::CONTRACT;
use call_budget::store::migrate::{migrate, migrations};

use crate::support::{self, connect};

#[tokio::test]
async fn a_fresh_database_gets_every_migration_and_the_contract() {
    let mut database = support::empty_database().await;
    let migrated = migrate(&mut database.client).await.unwrap();
    assert!(migrated.present.is_empty());
    assert_eq!(migrated.applied.len(), migrations().len());
    assert_eq!(migrated.contract, CONTRACT);
}

#[tokio::test]
async fn a_second_run_finds_everything_there_and_changes_nothing() {
    let mut database = support::empty_database().await;
    let first = migrate(&mut database.client).await.unwrap();
    let second = migrate(&mut database.client).await.unwrap();
    assert!(second.applied.is_empty());
    assert_eq!(second.present, first.applied);
}

#[tokio::test]
async fn of_twenty_runs_at_once_all_succeed_and_each_migration_is_applied_once() {
    let database = support::empty_database().await;
    let runs: Vec<_> = (0..20)
        .map(|_| {
            let url = database.url.clone();
            tokio::spawn(async move { migrate(&mut connect(&url).await).await })
        })
        .collect();
    let mut applied = 0;
    for run in runs {
        applied += run.await.unwrap().unwrap().applied.len();
    }
    assert_eq!(applied, migrations().len());
}
