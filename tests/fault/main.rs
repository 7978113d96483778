//! The fault suite: every fault of the design's list, tried for real, each held against its bounds.
//!
//! `cargo test --test fault` tries each case once; `-- --long` as often as a figure needs; `-- --list` shows them; `-- 3.refused`
//! tries one; `-- --json` reports for programs. Cases run one at a time, in this process unless they ask for their own.
//!
//! A case is an entry of `CASES` in a file of `rows/` (one file a stage) and an async function:
//!
//! ```ignore
//! pub const CASES: &[Case] = &[Case {
//!     row: 14, id: "14.row_locked", name: "the budget's row is locked for longer than the deadline", how: How::Server,
//!     deadline: ms(1000), length: Length::Long, heals: HEALS, needs: nothing, own_process: None,
//!     run: |round| Box::pin(row_locked(round)),
//! }];
//! async fn row_locked(round: &mut Round) {
//!     let url = round.database().url_by_way_of(round.database().address()); // or of a proxy in front of it
//!     let mut settings = round.settings(url);
//!     settings.max_wait = ms(1000);                                         // the deadline of each call
//!     let caller = round.caller(&settings).await;
//!     caller.send().await;                                                  // a session is open
//!     let mut fault = lock(round).await;                                    // the fault is on
//!     round.fault();
//!     round.no_send_is_allowed();
//!     assert_eq!(caller.try_send().await.refused().stage(), Some(Stage::Query));
//!     round.healing(&caller, fault.heal()).await;                           // and how soon somebody is granted a slot
//! }
//! ```
//!
//! Judged without further words: every call under the fault ends by the deadline, nothing is sent in doubt, books balance,
//! and what the round used is gone within 3 s (a fault's own tasks and sockets too: let them end with the body).
//! A body that asserts in vain, panics in any task, or hangs, fails its case and no other.

#[path = "../support/mod.rs"]
mod support;

mod rows;
#[allow(dead_code, unused_imports, reason = "rows take what they need")]
mod suite;
mod tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::run::run(&rows::all())
}
