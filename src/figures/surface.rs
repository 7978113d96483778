//! The counts of a surface. Surfaces are those of the settings: they neither come nor go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SurfaceFigures;
use crate::counters::{Count, Tally};
use crate::policy::verdict::Verdict;

/// The books of all surfaces, by name.
#[derive(Debug)]
pub(crate) struct SurfaceBooks {
    by_name: BTreeMap<Arc<str>, Arc<SurfaceBook>>,
    /// For names that the settings do not know.
    rest: Arc<SurfaceBook>,
}

/// Counts for its surface and for the process alike.
#[derive(Debug)]
pub(crate) struct SurfaceBook {
    /// Its place among the names of the settings, from 1.
    number: usize,
    tally: Arc<Tally>,
    calls: Count,
    attempts: Count,
    refused_by_breaker: Count,
    refused_by_hold: Count,
    verdicts_good: Count,
    verdicts_bad: Count,
    verdicts_none: Count,
}

impl SurfaceBooks {
    pub fn new<'a>(tally: &Arc<Tally>, names: impl Iterator<Item = &'a Arc<str>>) -> Self {
        let book = |number| {
            Arc::new(SurfaceBook {
                number,
                tally: Arc::clone(tally),
                calls: Count::default(),
                attempts: Count::default(),
                refused_by_breaker: Count::default(),
                refused_by_hold: Count::default(),
                verdicts_good: Count::default(),
                verdicts_bad: Count::default(),
                verdicts_none: Count::default(),
            })
        };
        let by_name = names.enumerate().map(|(place, name)| (Arc::clone(name), book(place + 1))).collect();
        Self { by_name, rest: book(0) }
    }

    pub fn of(&self, surface: &str) -> &Arc<SurfaceBook> {
        self.by_name.get(surface).unwrap_or(&self.rest)
    }

    /// What they say, with what the vendors of each said too often; that of the rest if there is anything in it.
    pub fn read(&self, mut throttled: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>>) -> Vec<SurfaceFigures> {
        let rest = Some((Arc::default(), &self.rest)).filter(|(_, rest)| rest.calls.get() > 0);
        let own = self.by_name.iter().map(|(name, book)| (Arc::clone(name), book));
        let figures = |(surface, book): (Arc<str>, &Arc<SurfaceBook>)| SurfaceFigures {
            throttled: throttled.remove(&surface).unwrap_or_default(),
            surface,
            calls: book.calls.get(),
            sends: book.attempts.get(),
            refused_by_breaker: book.refused_by_breaker.get(),
            refused_by_hold: book.refused_by_hold.get(),
            verdicts_good: book.verdicts_good.get(),
            verdicts_bad: book.verdicts_bad.get(),
            verdicts_none: book.verdicts_none.get(),
        };
        rest.into_iter().chain(own).map(figures).collect()
    }
}

macro_rules! counted_twice {
    ($($name:ident),+) => {
        $(pub fn $name(&self) {
            self.tally.$name.add(1);
            self.$name.add(1);
        })+
    };
}

impl SurfaceBook {
    counted_twice!(calls, attempts, refused_by_breaker, refused_by_hold, verdicts_good, verdicts_bad, verdicts_none);

    /// See `ClassBook::sent`.
    pub fn number(&self) -> usize {
        self.number
    }

    pub fn settled(&self, verdict: Verdict) {
        match verdict {
            Verdict::Good => self.verdicts_good(),
            Verdict::Bad => self.verdicts_bad(),
            Verdict::None => self.verdicts_none(),
        }
    }
}
