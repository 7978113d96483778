use std::time::Duration;

use recloser::{AsyncRecloser, Error};

use crate::subject::{Kind, OPEN, Policy, Subject};
use crate::wrapped::{Ended, Failed, Work, Wrapped, counts};

pub struct Recloser;

impl Kind for Recloser {
    fn name(&self) -> &'static str {
        "recloser"
    }

    fn package(&self) -> Option<&'static str> {
        Some("recloser")
    }

    fn expressed(&self) -> &'static str {
        "`AsyncRecloser::call_with`, polled step by step. It has no streak: `closed_len(4)` at an error rate of 1, which \
         five bad calls in a row trip. Rate: `closed_len(20)` at 0.5. `half_open_len(1)`, the smallest, which two \
         outcomes decide; how many calls half-open lets through cannot be set. Excluded errors and local refusals: the \
         error predicate says no. It shows its state to nobody. Listeners: its feature `tracing`."
    }

    fn make(&self, policy: Policy, _: fn()) -> Box<dyn Subject> {
        let (len, rate) = match policy {
            Policy::Streak => (4, 1.0),
            Policy::Rate => (20, 0.5),
        };
        let breaker = recloser::Recloser::custom()
            .closed_len(len)
            .error_rate_closed(rate)
            .half_open_len(1)
            .error_rate_half_open(0.5)
            .open_wait(OPEN)
            .build();
        let breaker = AsyncRecloser::from(breaker);
        let call = move |work: Work| {
            let call = breaker.call_with(counts as fn(&Failed) -> bool, work);
            Box::pin(async move {
                match call.await {
                    Err(Error::Rejected) => Ended::Refused,
                    _ => Ended::Answered,
                }
            }) as _
        };
        Box::new(Wrapped { call: Box::new(call), read: None, evidence: 2, pace: Duration::ZERO })
    }
}
