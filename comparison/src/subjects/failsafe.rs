use std::fmt::Write;
use std::time::Duration;

use failsafe::failure_policy::{consecutive_failures, success_rate_over_time_window};
use failsafe::futures::CircuitBreaker;
use failsafe::{Config, Error, FailurePolicy, Instrument, backoff};

use crate::subject::{Kind, OPEN, Policy, Subject};
use crate::wrapped::{Ended, Failed, Work, Wrapped, counts};

pub struct Failsafe;

/// Calls the listener on each event.
struct Told(fn());

impl Instrument for Told {
    fn on_call_rejected(&self) {
        (self.0)();
    }
    fn on_open(&self) {
        (self.0)();
    }
    fn on_half_open(&self) {
        (self.0)();
    }
    // Also called while one is made, when there is nobody to be damaged yet.
    fn on_closed(&self) {}
}

impl Kind for Failsafe {
    fn name(&self) -> &'static str {
        "failsafe"
    }

    fn package(&self) -> Option<&'static str> {
        Some("failsafe")
    }

    fn expressed(&self) -> &'static str {
        "`futures::CircuitBreaker::call_with`, polled step by step. Streak: `consecutive_failures(5)`. Rate: \
         `success_rate_over_time_window(0.5, 10, 1 s)`, a moving average over time (its smallest window), outcomes 60 ms \
         apart. How many calls half-open lets through cannot be set. Excluded errors and local refusals: the failure \
         predicate says no. State: only its `Debug` shows it."
    }

    fn counts(&self) -> bool {
        false
    }

    fn make(&self, policy: Policy, listener: fn()) -> Box<dyn Subject> {
        let open = backoff::constant(OPEN);
        match policy {
            Policy::Streak => wrap(consecutive_failures(5, open), listener, Duration::ZERO),
            Policy::Rate => {
                let policy = success_rate_over_time_window(0.5, 10, Duration::from_secs(1), open);
                wrap(policy, listener, Duration::from_millis(60))
            }
        }
    }
}

fn wrap(policy: impl FailurePolicy + Send + Sync + 'static, listener: fn(), pace: Duration) -> Box<dyn Subject> {
    let breaker = Config::new().failure_policy(policy).instrument(Told(listener)).build();
    let shown = breaker.clone();
    let call = move |work: Work| {
        let call = breaker.call_with(counts as fn(&Failed) -> bool, work);
        Box::pin(async move {
            match call.await {
                Err(Error::Rejected) => Ended::Refused,
                _ => Ended::Answered,
            }
        }) as _
    };
    let read = move || {
        let mut text = String::new();
        write!(text, "{shown:?}").expect("a string takes everything");
        text
    };
    Box::new(Wrapped { call: Box::new(call), read: Some(Box::new(read)), evidence: 1, pace })
}
