//! How often the vendor said "too many", by surface and by its own code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::breaker::tell;

/// The codes come from outside: a vendor that makes up new ones fills no memory.
const MOST_CODES: usize = 100;
/// For an answer without a code, and for codes of a surface beyond the first hundred.
const OTHER: &str = "other";

#[derive(Debug, Default)]
pub(super) struct Throttled(Mutex<BySurface>);

type BySurface = BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>>;

impl Throttled {
    /// One more. `pushback` is what everybody who shares the budget waits because of it, where they do.
    pub fn count(&self, surface: &Arc<str>, code: Option<&Arc<str>>, pushback: Option<Duration>) {
        let code = code.map_or_else(|| OTHER.into(), Arc::clone);
        tell::unharmed(|| {
            let (surface, code, pushback_seconds) =
                (&**surface, &*code, pushback.map(|pushback| pushback.as_secs_f64()));
            tracing::warn!(surface, code, pushback_seconds, "call_budget_throttled");
        });
        let mut surfaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = surfaces.entry(Arc::clone(surface)).or_default();
        let code = if counts.len() < MOST_CODES || counts.contains_key(&code) { code } else { OTHER.into() };
        *counts.entry(code).or_default() += 1;
    }

    /// Of all surfaces together.
    pub fn read(&self) -> BTreeMap<Arc<str>, u64> {
        let mut all = BTreeMap::new();
        for (code, times) in self.by_surface().into_values().flatten() {
            *all.entry(code).or_default() += times;
        }
        all
    }

    pub fn by_surface(&self) -> BySurface {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_that_makes_up_codes_fills_no_memory() {
        let (throttled, surface) = (Throttled::default(), Arc::from("s"));
        for n in 0..1000 {
            throttled.count(&surface, Some(&format!("CODE{n}").into()), None);
        }
        throttled.count(&surface, Some(&"CODE1".into()), Some(Duration::from_secs(1)));
        throttled.count(&surface, None, None);
        let counts = throttled.read();
        assert_eq!((counts.len(), counts["CODE1"], counts[OTHER]), (MOST_CODES + 1, 2, 1000 - MOST_CODES as u64 + 1));
    }
}
