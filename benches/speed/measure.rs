//! From single durations to figures.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Durations of one kind of work, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Took(Vec<f64>);

impl Took {
    pub fn add(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1e6);
    }

    pub fn append(&mut self, mut other: Took) {
        self.0.append(&mut other.0);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The share `part` (0 to 1) of all took no longer, in microseconds; 0 of nothing.
    pub fn percentile_us(&mut self, part: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let index = ((self.0.len() - 1) as f64 * part).round() as usize;
        *self.0.select_nth_unstable_by(index, f64::total_cmp).1
    }
}

/// The middle one; of an even number the larger of the middle two; 0 of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// What this process has used of the cores so far, all its threads together.
pub fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
