//! File descriptors: as many as this process may have, and always some that callers cannot take from the store.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For all that is no connection of a caller and no session of the pool: looking, orders, name servers, the log.
const OTHERS: usize = 64;

/// How many of `wanted` connections there can be beside a pool of so many sessions. Raises this process's own limit first.
pub(super) fn room(wanted: usize, pool_size: usize) -> usize {
    let Some(descriptors) = raised() else { return wanted };
    let max_connections = descriptors.saturating_sub(pool_size + OTHERS).clamp(1, wanted);
    if max_connections < wanted {
        tracing::warn!(max_connections, descriptors, "call_budget_connections_lowered");
    }
    max_connections
}

/// The limit, raised as far as it goes without rights; none where there is none.
fn raised() -> Option<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Where the system does not allow it, the one that was there holds.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    getrlimit(Resource::Nofile).current.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
