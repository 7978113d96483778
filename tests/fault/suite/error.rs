//! What a case expects of an error, besides its being one.

use call_budget::policy::stage::Stage;
use call_budget::{AcquireError, Code};

/// The outage was judged, in this stage. `lost`: requests that left without an answer.
///
/// # Panics
/// It was not.
#[track_caller]
pub fn judged(error: &AcquireError, stage: Stage, lost: u32) {
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(stage)), "{error}");
    assert_eq!((error.lost(), error.may_have_spent()), (lost, lost > 0), "{error}");
}

/// `max_wait` passed on one request that had left and was not answered.
///
/// # Panics
/// It did not.
#[track_caller]
pub fn uncertain(error: &AcquireError) {
    assert_eq!((error.code(), error.stage()), (Code::Uncertain, Some(Stage::Query)), "{error}");
    assert_eq!((error.lost(), error.may_have_spent()), (1, true), "{error}");
}

/// The message says all of this: what failed, and the way out.
///
/// # Panics
/// Something of it is missing.
#[track_caller]
pub fn says(error: &AcquireError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "the message does not say {word:?}: {text}");
    }
}
