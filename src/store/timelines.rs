//! Which of the store's timelines a client has seen.

use std::sync::atomic::{AtomicI64, Ordering};

use super::{Failing, StoreError};
use crate::policy::stage::Stage;

/// The newest timeline that this client has seen. A promotion makes a newer one.
#[derive(Debug, Default)]
pub struct Timelines(AtomicI64);

impl Timelines {
    /// Notes an answer's timeline.
    ///
    /// # Errors
    /// A server that was left behind by a promotion still answers, from a past that others no longer share.
    pub fn refuse_older(&self, timeline: i64) -> Result<(), StoreError> {
        let newest = self.0.fetch_max(timeline, Ordering::AcqRel);
        if timeline < newest {
            let message = format!(
                "the answer is from timeline {timeline}, older than {newest} seen before: restart this process if the store was moved to a new server"
            );
            return Err(StoreError::new(Stage::Query, Failing::Uncertain, message));
        }
        Ok(())
    }
}
