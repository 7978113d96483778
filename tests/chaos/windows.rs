//! How many arrivals lie in a window, for each way in which a vendor may count. Pure.

use serde::Serialize;

use super::judge::Span;

/// The same arrivals by each kind of window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Windows {
    /// The closed window that ends at each arrival: no window of any kind holds more than the worst of these.
    pub sliding: Count,
    /// End to end, from whole seconds of the machine's clock.
    pub fixed_whole_seconds: Count,
    /// End to end, from the first arrival.
    pub fixed_from_first_call: Count,
    /// One opens with the first arrival after the last has ended.
    pub opened_by_a_call: Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    pub worst: u64,
    pub over_limit: u64,
}

/// Moments of arrivals in their order, in microseconds.
pub struct Times(Vec<u64>);

impl Times {
    pub fn of(times: impl Iterator<Item = u64>) -> Self {
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        Self(times)
    }

    /// For each arrival the closed window that ends at it, and how many lie in it.
    fn sliding(&self, window_us: u64) -> impl Iterator<Item = (Span, u64)> {
        let times = &self.0;
        times.iter().map(move |at| {
            let span = Span { from_us: at.saturating_sub(window_us), to_us: *at };
            let before = times.partition_point(|other| *other < span.from_us);
            let within = times.partition_point(|other| *other <= span.to_us) - before;
            (span, within as u64)
        })
    }

    /// The closed windows that hold more than `limit`, and how many each.
    pub fn over_limit(&self, window_us: u64, limit: u64) -> impl Iterator<Item = (Span, u64)> {
        self.sliding(window_us).filter(move |(_, units)| *units > limit)
    }

    pub fn worst(&self, window_us: u64) -> u64 {
        self.sliding(window_us).map(|(_, units)| units).max().unwrap_or(0)
    }

    pub fn windows(&self, window_us: u64, limit: u64) -> Windows {
        let first = self.0.first().copied().unwrap_or(0);
        Windows {
            sliding: count(self.sliding(window_us).map(|(_, units)| units), limit),
            fixed_whole_seconds: count(runs(&self.0, |_, at| at / window_us), limit),
            fixed_from_first_call: count(runs(&self.0, |_, at| (at - first) / window_us), limit),
            opened_by_a_call: count(
                runs(&self.0, |opened, at| if at < opened + window_us { opened } else { at }),
                limit,
            ),
        }
    }
}

/// How many arrivals in a row belong to one window. `window` names it, by the name of the one before and the time.
fn runs(times: &[u64], window: impl Fn(u64, u64) -> u64) -> impl Iterator<Item = u64> {
    let mut counts: Vec<u64> = Vec::new();
    let mut open = None;
    for at in times {
        let name = window(open.unwrap_or(*at), *at);
        match counts.last_mut() {
            Some(count) if open == Some(name) => *count += 1,
            _ => counts.push(1),
        }
        open = Some(name);
    }
    counts.into_iter()
}

fn count(windows: impl Iterator<Item = u64>, limit: u64) -> Count {
    windows.fold(Count::default(), |count, units| Count {
        worst: count.worst.max(units),
        over_limit: count.over_limit + u64::from(units > limit),
    })
}
