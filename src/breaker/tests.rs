use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use jiff::civil::time;
use jiff::tz::TimeZone;

use super::{Breaker, Inner};
use crate::clock::{Clock, ManualClock};
use crate::policy::breaker::calendar::{Calendar, Mode, Window};
use crate::policy::breaker::{Reason, Rules, Shown};
use crate::policy::verdict::Verdict;
use crate::policy::{Instant, Wall};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_closed_window_and_its_end_are_changes_although_they_make_no_event() {
    // Its wall shows midnight in UTC.
    let clock = ManualClock::at(Instant::default());
    let changes = Arc::new(AtomicUsize::new(0));
    let changed = {
        let changes = Arc::clone(&changes);
        move || {
            changes.fetch_add(1, Ordering::SeqCst);
        }
    };
    let breaker =
        Breaker::build("b".into(), closed_from_1_to_2(), clock.clone(), Some(Box::new(changed))).expect("good rules");
    let changes = || changes.swap(0, Ordering::SeqCst);
    breaker.admit().unwrap().settle(Verdict::Good);
    assert_eq!(changes(), 0);
    for day in 0..2 {
        clock.advance(HOUR);
        for _ in 0..3 {
            assert_eq!(breaker.admit().unwrap_err().reason, Reason::ClosedWindow);
            clock.advance(HOUR / 4);
        }
        assert_eq!(changes(), 1, "day {day}: the first refusal tells of the window");
        clock.advance(HOUR / 4);
        breaker.tend();
        assert_eq!((changes(), breaker.view().shown), (1, Shown::ProbeDue), "day {day}: a probe is due");
        breaker.admit().unwrap().settle(Verdict::Good);
        assert_eq!((changes(), breaker.view().shown), (1, Shown::Closed), "day {day}");
        clock.advance(22 * HOUR);
    }
}

#[test]
fn clocks_are_read_by_whoever_has_the_lock() {
    let clock = Watching::default();
    let breaker = Breaker::with_clock("b", closed_from_1_to_2(), clock.clone()).expect("good rules");
    let _ = clock.breaker.set(Arc::downgrade(&breaker.0));
    let mut pass = breaker.admit().unwrap();
    pass.sending().unwrap();
    pass.settle(Verdict::Good);
    let _ = breaker.view();
    breaker.tend();
    assert_eq!(clock.unlocked.load(Ordering::SeqCst), 0, "readings that another thread could have overtaken");
}

fn closed_from_1_to_2() -> Rules {
    let window = Window {
        tz: TimeZone::UTC,
        days: [true; 7],
        holidays: BTreeSet::new(),
        from: time(1, 0, 0, 0),
        to: time(2, 0, 0, 0),
        mode: Mode::Closed,
    };
    Rules { calendar: Calendar { windows: vec![window] }, ..Rules::escalating() }
}

/// A clock that stands, and counts who reads it without the breaker's lock.
#[derive(Clone, Default)]
struct Watching {
    breaker: Arc<OnceLock<Weak<Inner<Watching>>>>,
    unlocked: Arc<AtomicUsize>,
}

impl Watching {
    fn look(&self) {
        let breaker = self.breaker.get().and_then(Weak::upgrade);
        if breaker.is_some_and(|breaker| breaker.state.try_lock().is_ok()) {
            self.unlocked.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Clock for Watching {
    fn now(&self) -> Instant {
        self.look();
        Instant::default()
    }

    fn wall(&self) -> Wall {
        self.look();
        Wall::from_unix_us(0)
    }

    async fn sleep_until(&self, _: Instant) {
        std::future::pending().await
    }
}
