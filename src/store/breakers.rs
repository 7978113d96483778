//! What processes say of their breakers. It decides nothing: for people alone.

use std::sync::Arc;
use std::time::Duration;

use crate::policy::breaker::View;

/// One breaker of this process as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The breaker's name: its surface, or what the surfaces that share it call it.
    pub breaker: Arc<str>,
    pub view: View,
    /// Until something can change.
    pub retry_after: Option<Duration>,
    /// What is held on its surfaces: scope, what is left, why.
    pub holds: Vec<(String, Duration, Arc<str>)>,
}

/// As the store keeps a text that somebody else wrote: one line of at most 200 characters.
pub(super) fn for_people(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

const LONGEST_TEXT: usize = 200;
