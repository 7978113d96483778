use std::sync::Arc;
use std::time::Duration;

/// What one call asks for beyond its surface.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// The class whose turn it takes; the surface's where not said.
    pub class: Option<Arc<str>>,
    /// Units that each attempt counts at the vendor: 1 to the budget's `max_cost`. 1 where not said.
    pub cost: u32,
    /// The most that all waits of the call may take together, up to 1 day: for a token, for slots, before retries. The
    /// attempts themselves are bounded by the surface's `attempt_timeout`. The setting `max_wait` where not said.
    pub max_wait: Option<Duration>,
    /// Whether it may be sent again when nobody knows if it was carried out; as the surface says where not said.
    pub idempotent: Option<bool>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self { class: None, cost: 1, max_wait: None, idempotent: None }
    }
}
