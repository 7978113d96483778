//! What stands around a call (the adapters for tower and reqwest, and the fallback), against real HTTP servers. Judged at
//! the servers where they can tell.

mod fallback;
mod reqwest;
mod tower;
mod vendor;

use std::path::Path;
use std::time::Duration;

use call_budget::clock::SystemClock;
use call_budget::test_util::{Limit, MemoryStore};
use call_budget::{CallBudget, CallError, Credential, Failed, Settings};

type Budgets = CallBudget<SystemClock, MemoryStore<SystemClock>>;

/// A quote may be sent again, an order may not. The budget of `slow` grants 5 in any second.
const SETTINGS: &str = r#"
[retry.quick]
waits = ["20ms", "20ms"]
on = "bad"

[class.batch]
may_probe = true

[surface."mine/quote"]
budget = "mine"
class = "batch"
vendor = "http-shared-key"
breaker = "escalating"
retry = "quick"
idempotent = true
attempt_timeout = "2s"

[surface."mine/order"]
budget = "mine"
class = "batch"
vendor = "http-shared-key"
breaker = "escalating"
retry = "quick"
idempotent = false

[surface."mine/short"]
budget = "mine"
class = "batch"
vendor = "http-shared-key"
breaker = "escalating"
attempt_timeout = "200ms"

[surface."mine/slow"]
budget = "slow"
class = "batch"
vendor = "http-shared-key"
breaker = "escalating"

[surface."mine/login"]
budget = "mine"
class = "batch"
vendor = "http-shared-key"
breaker = "escalating"

[surface."mine/private"]
budget = "mine"
class = "batch"
vendor = "http-shared-key"
breaker = "escalating"
token = "mine/login"
"#;

const fn limit(units: u32) -> Limit {
    let (second, ms_20) = (Duration::from_secs(1), Duration::from_millis(20));
    Limit { units, window: second, send_window: ms_20, arrival_jitter: ms_20, max_cost: 1 }
}

/// The budgets of these settings, on the real clock and in memory.
fn budgets() -> Budgets {
    let store = MemoryStore::new(SystemClock);
    store.set_budget("mine", limit(200));
    store.set_budget("slow", limit(5));
    for budget in ["mine", "slow"] {
        store.set_class(budget, "batch", 1, 0.0);
    }
    let settings = Settings::of_toml(SETTINGS, Path::new(".")).unwrap();
    CallBudget::with_store(&settings, SystemClock, store).unwrap()
}

fn key() -> Credential {
    Credential::new("desk-1")
}

/// How the last attempt failed, and how many there were.
#[track_caller]
fn broken(error: &CallError) -> (call_budget::policy::verdict::Broken, u32) {
    match error {
        CallError::Failed { source: Failed::Broken { how, .. }, attempts, .. } => (*how, *attempts),
        other => panic!("{other}"),
    }
}

/// Whether it is a fault of our own, and how many attempts there were.
fn not_sent(error: &CallError) -> Option<u32> {
    match error {
        CallError::Failed { source: Failed::NotSent(_), finding: None, attempts, .. } => Some(*attempts),
        _ => None,
    }
}
