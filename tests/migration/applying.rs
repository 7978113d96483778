//! `migrate`: what it applies, what it refuses, and that any number of runs at once is fine.

use call_budget::store::CONTRACT;
use call_budget::store::migrate::{HISTORY, migrate, migrations};
use refinery::{Migration, Runner};

use crate::support::{self, connect};
use crate::{BUDGET, acquire};

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

#[tokio::test]
async fn the_schema_of_release_0_1_0_is_brought_up_to_date_under_callers_who_go_on() {
    let mut database = support::empty_database().await;
    database.client.batch_execute("CREATE SCHEMA call_budget").await.unwrap();
    let released: Vec<_> = migrations()
        .iter()
        .filter(|migration| migration.version() <= 3)
        .map(|migration| {
            let name = format!("V{}__{}", migration.version(), migration.name());
            Migration::unapplied(&name, migration.sql().unwrap()).unwrap()
        })
        .collect();
    Runner::new(&released).set_migration_table_name(HISTORY).run_async(&mut database.client).await.unwrap();
    database.client.batch_execute(BUDGET).await.unwrap();
    let caller = connect(&database.url).await;
    let fences = acquire(&caller).await.fences;
    let migrated = migrate(&mut database.client).await.unwrap();
    assert_eq!((migrated.present.len(), migrated.contract), (3, CONTRACT));
    assert_eq!(acquire(&caller).await.fences, fences, "what was promised is still known");
}
