//! How often the vendor said "too many", by its own code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::breaker::tell;

/// The codes come from outside: a vendor that makes up new ones fills no memory.
const MOST_CODES: usize = 100;
/// For an answer without a code, and for codes beyond the first hundred.
const OTHER: &str = "other";

#[derive(Debug, Default)]
pub(super) struct Throttled(Mutex<BTreeMap<Arc<str>, u64>>);

impl Throttled {
    /// One more. `pushback` is what everybody who shares the budget waits because of it, where they do.
    pub fn count(&self, surface: &str, code: Option<&Arc<str>>, pushback: Option<Duration>) {
        let code = code.map_or_else(|| OTHER.into(), Arc::clone);
        tell::unharmed(|| {
            let (code, pushback_seconds) = (&*code, pushback.map(|pushback| pushback.as_secs_f64()));
            tracing::warn!(surface, code, pushback_seconds, "call_budget_throttled");
        });
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let code = if counts.len() < MOST_CODES || counts.contains_key(&code) { code } else { OTHER.into() };
        *counts.entry(code).or_default() += 1;
    }

    pub fn read(&self) -> BTreeMap<Arc<str>, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_that_makes_up_codes_fills_no_memory() {
        let throttled = Throttled::default();
        for n in 0..1000 {
            throttled.count("s", Some(&format!("CODE{n}").into()), None);
        }
        throttled.count("s", Some(&"CODE1".into()), Some(Duration::from_secs(1)));
        throttled.count("s", None, None);
        let counts = throttled.read();
        assert_eq!((counts.len(), counts["CODE1"], counts[OTHER]), (MOST_CODES + 1, 2, 1000 - MOST_CODES as u64 + 1));
    }
}
