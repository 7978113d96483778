use std::collections::BTreeSet;
use std::time::Duration;

use call_budget::cli::demo::plan::{self, BUDGET, LIMIT, LOOKAHEAD};
use call_budget::clock::{Clock, SystemClock};
use call_budget::service::mock_vendor::{MockVendor, Settings};

use crate::processes::Member;
use crate::{alone, support};

const RUN: Duration = Duration::from_secs(20);
const KILL_AFTER: Duration = Duration::from_secs(8);
/// From the kill until the survivors are measured: what the dead had booked passes in less.
const MOURNING: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_is_over_the_limit_and_the_survivors_use_what_is_left_when_two_of_eight_are_killed() {
    let _alone = alone().await;
    let database = support::database().await;
    let interval = LIMIT.interval().unwrap();
    set_budget(&database, interval).await;
    let vendor = MockVendor::start(Settings::default()).await.unwrap();
    let address = vendor.addr().to_string();
    let begin = SystemClock.now() + Duration::from_millis(500);
    let start = |tasks| Member::start(&address, &database.url, tasks, begin);
    let mut fleet: Vec<Member> = plan::spread(8).into_iter().map(start).collect();

    SystemClock.sleep_until(begin + KILL_AFTER).await;
    // One of the two minute processes and one of the two that call without end.
    let killed: BTreeSet<u32> = [7, 1]
        .into_iter()
        .map(|index| {
            let mut member = fleet.remove(index);
            member.kill();
            member.child.id()
        })
        .collect();
    let killed_us = SystemClock.now().since_boot().as_micros() as u64;
    SystemClock.sleep_until(begin + RUN).await;
    fleet.into_iter().for_each(Member::stop);

    let report = vendor.report();
    let arrivals = vendor.arrivals();
    vendor.stop().await;
    println!(
        "worst window {} of {}, late {}, stall {} us, pids {}",
        report.worst_window,
        report.limit,
        report.late,
        report.worst_stall_us,
        report.pids.len()
    );
    assert!(report.pids.len() == 8, "{:?}", report.pids);
    assert!(report.worst_window >= 15, "the fleet called at full rate");
    assert!(!report.violation_during_stall, "the machine stalled: nothing can be said, run again");
    assert_eq!((report.over_limit_windows, report.refused, report.duplicate_nonces), (0, 0, 0));

    let from_us = killed_us + MOURNING.as_micros() as u64;
    let after: Vec<u64> = arrivals
        .iter()
        .filter(|arrival| arrival.at_us > from_us)
        .inspect(|arrival| assert!(!killed.contains(&arrival.note.pid.unwrap()), "the dead do not call"))
        .map(|arrival| arrival.at_us)
        .collect();
    let span_us = after.last().unwrap() - from_us;
    let used = after.len() as f64 / (span_us as f64 / interval.as_micros() as f64);
    println!("{} calls of the survivors, use {used:.3}", after.len());
    assert!(used >= 0.95, "the survivors used {used:.3} of the slots");

    // What was granted and did not arrive is what the dead took along, and a few at the end.
    let sql = "SELECT sum(granted)::bigint FROM call_budget.call_budget_class";
    let granted: i64 = database.client.query_one(sql, &[]).await.unwrap().get(0);
    let arrived = report.arrivals as i64;
    assert!((arrived..arrived + 40).contains(&granted), "{granted} granted, {arrived} arrived");
}

async fn set_budget(database: &support::TestDatabase, interval: Duration) {
    let us = |duration: Duration| duration.as_micros() as i64;
    database
        .client
        .query(
            "SELECT call_budget.call_budget_set($1, $2, $3, $4, $5, $6, $7, $8)",
            &[
                &BUDGET,
                &(LIMIT.units as i32),
                &us(LIMIT.window),
                &us(LIMIT.send_window),
                &us(LIMIT.arrival_jitter),
                &(LIMIT.max_cost as i32),
                &us(interval),
                &us(LOOKAHEAD),
            ],
        )
        .await
        .unwrap();
    for class in plan::classes() {
        let floor_ppm = (class.floor * 1e6) as i32;
        let sql = "SELECT call_budget.call_budget_class_set($1, $2, $3, $4)";
        database.client.query(sql, &[&BUDGET, &class.name, &class.priority, &floor_ppm]).await.unwrap();
    }
}
