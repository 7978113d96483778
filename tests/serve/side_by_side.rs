//! Two services of the same budgets: when one is killed, nobody at the other notices.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::service::mock_vendor::{self, MockVendor};
use rustix::process::Signal;
use tokio::task::JoinSet;

use crate::acquire::honest_caller;
use crate::{How, Serve, database, granted};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_is_killed_under_load_and_no_caller_of_the_other_is_disturbed() {
    let database = database().await;
    let vendor = MockVendor::start(mock_vendor::Settings { limit: 40, ..Default::default() }).await.unwrap();
    let (one, other) = (Serve::start(&database.url, How::on()).await, Serve::start(&database.url, How::on()).await);
    let begin = SystemClock.now();
    let until = begin + Duration::from_secs(9);
    let callers = |address| -> JoinSet<_> { (0..15).map(|_| honest_caller(address, vendor.addr(), until)).collect() };
    let (doomed, kept) = (callers(one.address), callers(other.address));
    SystemClock.sleep_until(begin + Duration::from_secs(3)).await;
    one.signal(Signal::KILL);
    let before = vendor.report().arrivals;
    let (doomed, kept) = tokio::join!(doomed.join_all(), kept.join_all());
    let sum = |callers: &[(u64, u64)]| callers.iter().map(|(sent, _)| sent).sum::<u64>();
    let report = vendor.report();
    println!(
        "{} sent by the doomed, {} by the others, {before} before; worst window {}",
        sum(&doomed),
        sum(&kept),
        report.worst_window
    );
    assert!(sum(&doomed) > 5, "the doomed hardly began");
    assert!(kept.iter().all(|(sent, _)| *sent > 0), "somebody at the other was never served: {kept:?}");
    assert!(report.arrivals - before > 40, "the other does not use what is left");
    assert_eq!((report.arrivals, report.duplicate_nonces), (sum(&doomed) + sum(&kept), 0));
    assert!(report.late == 0 || !report.stalls.is_empty(), "{} late", report.late);
    assert!(report.over_limit_windows == 0 || report.violation_during_stall, "{report:?}");
    assert!(granted(&database).await >= report.arrivals.cast_signed());
}
