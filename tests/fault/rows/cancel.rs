//! Callers that go away.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::suite::{Case, How, Length, Round, Sent, nothing};

pub const CASES: &[Case] = &[Case {
    row: 27,
    id: "27.cancelled",
    name: "an acquire is dropped after n polls, for every n, with a pool of one",
    how: How::Process,
    deadline: Duration::from_secs(1),
    length: Length::Short,
    heals: None,
    needs: nothing,
    own_process: None,
    run: |round| Box::pin(cancelled(round)),
}];

/// Enough for the slowest way there is: connect, log in, set up, warm, ask.
const MOST_POLLS: usize = 1000;

async fn cancelled(round: &mut Round) {
    let url = round.database().url_by_way_of(round.database().address());
    let mut settings = round.settings(url);
    settings.pool_size = 1;
    settings.max_wait = Duration::from_secs(1);
    for fresh in [true, false] {
        let mut caller = round.caller(&settings).await;
        let mut polls = 0;
        loop {
            let whole = {
                let (library, budget, class) = caller.library();
                dropped_after(polls, library.acquire(budget, class)).await
            };
            if let Some(permit) = whole {
                drop(permit.expect("nothing is wrong"));
                break;
            }
            round.fault();
            let next = caller.try_send().await;
            assert_eq!(next.result.expect("served at once"), Sent::Left, "after {polls} polls");
            round.heal();
            if fresh {
                caller = round.caller(&settings).await;
            }
            polls += 1;
            assert!(polls < MOST_POLLS);
        }
        assert!(polls >= 1, "it waited at least once");
    }
}

/// Polls `future` as often as it wakes, `polls` times at most, and drops it. Its output, if it came to one.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
