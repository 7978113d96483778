//! What a body expects of a call.

use std::time::Duration;

use call_budget::AcquireError;

use super::caller::{Caller, Sent};

/// The call is served within its patience, fault or not. How long it took.
///
/// # Panics
/// Where it is not.
pub async fn served(caller: &Caller) -> Duration {
    let ended = caller.try_send().await;
    match ended.result {
        Ok(Sent::Left) => ended.took,
        Ok(Sent::WindowClosed) => panic!("a permit came too late to be used, after {:?}", ended.took),
        Err(error) => panic!("not served after {:?}: {error}", ended.took),
    }
}

/// The error's message has all of these in it, in any order. A reader is to find what failed, where, after how long, and
/// what to do.
///
/// # Panics
/// Where one is missing.
#[track_caller]
pub fn says(error: &AcquireError, words: &[&str]) {
    let text = error.to_string();
    let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
    assert!(missing.is_empty(), "{missing:?} is not in: {text}");
}
