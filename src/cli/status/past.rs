//! What was granted in the last minute, as far as it was looked at. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::policy::Instant;
use crate::store::report::Report;

/// As far back as the bars go.
const KEPT: Duration = Duration::from_secs(61);

/// The counts of grants of each reading.
#[derive(Debug, Default)]
pub struct Past(pub(super) VecDeque<(Instant, Granted)>);

/// By budget and class: calls granted since the class was made.
type Granted = BTreeMap<(String, String), i64>;

impl Past {
    /// Adds a reading that was taken at `at`.
    pub fn add(&mut self, at: Instant, report: &Report) {
        let classes = report.budgets.iter().flat_map(|view| &view.classes);
        let granted = classes.map(|view| ((view.class.budget.clone(), view.class.name.clone()), view.class.granted));
        self.0.push_back((at, granted.collect()));
        // One older than that stays, to tell what came after it.
        while self.0.get(1).is_some_and(|(next, _)| *next + KEPT < at) {
            self.0.pop_front();
        }
    }

    /// Grants a second of a class between the last two readings; none where it was not there at both.
    pub fn now(&self, budget: &str, class: &str) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let ((before, earlier), (now, later)) = (self.0.get(last.checked_sub(1)?)?, self.0.get(last)?);
        let key = (budget.to_owned(), class.to_owned());
        per_second(*earlier.get(&key)?, *later.get(&key)?, *before, *now)
    }

    /// Grants a second of a budget between the last two readings.
    pub fn budget_now(&self, budget: &str) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        self.between(last, budget)
    }

    /// Grants a second of a budget, second by second, the latest last; none where nobody looked.
    pub fn seconds(&self, budget: &str, count: usize) -> Vec<Option<f64>> {
        let Some((now, _)) = self.0.back() else { return vec![None; count] };
        let second = Duration::from_secs(1);
        (0..count)
            .rev()
            .map(|ago| {
                let to = *now - second * u32::try_from(ago).unwrap_or(u32::MAX);
                self.mean(budget, to - second, to)
            })
            .collect()
    }

    fn mean(&self, budget: &str, from: Instant, to: Instant) -> Option<f64> {
        let (mut seen, mut granted) = (0.0, 0.0);
        for index in 1..self.0.len() {
            let (begin, end) = (self.0[index - 1].0.max(from), self.0[index].0.min(to));
            let overlap = end.saturating_since(begin).as_secs_f64();
            if overlap > 0.0
                && let Some(rate) = self.between(index, budget)
            {
                seen += overlap;
                granted += rate * overlap;
            }
        }
        (seen > 0.5).then(|| granted / seen)
    }

    /// Grants a second of a budget's classes between the reading before this one and this one.
    fn between(&self, index: usize, budget: &str) -> Option<f64> {
        let ((before, earlier), (now, later)) = (self.0.get(index.checked_sub(1)?)?, self.0.get(index)?);
        let of_both = later.iter().filter(|((of, _), _)| of == budget);
        let rates = of_both.filter_map(|(key, count)| per_second(*earlier.get(key)?, *count, *before, *now));
        rates.reduce(|a, b| a + b)
    }
}

/// None where the count went down: the class is another one of the same name.
fn per_second(earlier: i64, later: i64, before: Instant, now: Instant) -> Option<f64> {
    let (calls, time) = (later - earlier, now.saturating_since(before).as_secs_f64());
    (calls >= 0 && time > 0.0).then(|| calls as f64 / time)
}
