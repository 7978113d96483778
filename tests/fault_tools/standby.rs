use std::thread;
use std::time::Duration;

use call_budget::service::scratch_postgres::Halt;

use crate::tools::kept::{told, within};
use crate::tools::psql::{ask, try_ask};
use crate::tools::standby::{PRIMARY, Pair, Replication, STANDBY};

#[test]
fn the_standby_follows_refuses_writes_and_takes_over_from_a_dead_primary_with_all_that_was_committed() {
    let mut pair = Pair::start(Replication::Synchronous, &[]).unwrap();
    assert_eq!((pair.primary.address(), pair.standby.address()), (PRIMARY, STANDBY));
    assert_eq!(pair.primary.port(), pair.standby.port());
    ask(&pair.primary, "CREATE TABLE kept (n int)");
    ask(&pair.primary, "INSERT INTO kept VALUES (1)");
    pair.wait_until_in_step();
    assert_eq!(ask(&pair.standby, "SELECT n FROM kept"), "1");
    let refused = try_ask(&pair.standby, "INSERT INTO kept VALUES (2)").unwrap_err();
    assert!(refused.contains("read-only transaction"), "{refused}");
    pair.stop_primary(Halt::Kill);
    assert!(try_ask(&pair.primary, "SELECT 1").is_err());
    pair.promote();
    ask(&pair.standby, "INSERT INTO kept VALUES (3)");
    assert_eq!(ask(&pair.standby, "SELECT array_agg(n) FROM kept"), "{1,3}");
}

#[test]
fn a_primary_left_alive_goes_on_taking_writes_of_its_own() {
    let pair = Pair::start(Replication::Asynchronous, &[]).unwrap();
    ask(&pair.primary, "CREATE TABLE kept (n int)");
    pair.wait_until_in_step();
    pair.promote();
    ask(&pair.primary, "INSERT INTO kept VALUES (1)");
    ask(&pair.standby, "INSERT INTO kept VALUES (2)");
    assert_eq!(ask(&pair.primary, "SELECT array_agg(n) FROM kept"), "{1}");
    assert_eq!(ask(&pair.standby, "SELECT array_agg(n) FROM kept"), "{2}");
}

#[test]
fn a_synchronous_commit_waits_while_its_standby_is_gone() {
    let mut pair = Pair::start(Replication::Synchronous, &[]).unwrap();
    pair.standby.halt(Halt::Immediate).unwrap();
    let mut command = pair.primary.program("psql");
    command.args(["-XAtq", "-c", "CREATE TABLE waiting (n int)", "postgres"]);
    let commit = thread::spawn(move || told(&mut command, Duration::from_secs(40)));
    within(Duration::from_secs(10), "the commit waits for the standby", || {
        ask(&pair.primary, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
    });
    pair.standby.resume().unwrap();
    commit.join().unwrap().unwrap();
}
