//! A family of metrics: one name, one meaning, a value for each set of labels.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::Histogram;

/// Names come from callers, vendors and operators: what they make up fills neither a page nor a database of metrics.
const LONGEST_LABEL: usize = 128;
const MOST_SERIES: usize = 10_000;

#[derive(Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    series: BTreeMap<Labels, Value>,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
pub enum Value {
    Count(u64),
    Total(f64),
    Gauge(f64),
    Took(Histogram),
}

impl Family {
    /// `_total` is put behind the name.
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricType::Counter, series: BTreeMap::new() }
    }

    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricType::Gauge, series: BTreeMap::new() }
    }

    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricType::Histogram, series: BTreeMap::new() }
    }

    /// One value. Of labels that are there already, and beyond the most, nothing is kept.
    pub fn add<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: impl Into<Value>) {
        if self.series.len() < MOST_SERIES {
            let labels = labels.map(|(name, value)| (name, bounded(value))).into();
            self.series.entry(labels).or_insert(value.into());
        }
    }
}

/// All families of one reading.
#[derive(Debug)]
pub struct Exposed(pub Vec<Family>);

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for Family { name, help, kind, series } in self.0.iter().filter(|family| !family.series.is_empty()) {
            let mut family = encoder.encode_descriptor(name, help, None, *kind)?;
            for (labels, value) in series {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let mut one = family.encode_family(&labels)?;
                match value {
                    Value::Count(times) => one.encode_counter::<NoLabelSet, _, f64>(times, None)?,
                    Value::Total(seconds) => one.encode_counter::<NoLabelSet, _, f64>(seconds, None)?,
                    Value::Gauge(value) => one.encode_gauge(value)?,
                    Value::Took(took) => {
                        let seconds = |step: Option<Duration>| step.map_or(f64::INFINITY, |step| step.as_secs_f64());
                        let steps: Vec<(f64, u64)> = took.steps().map(|(step, times)| (seconds(step), times)).collect();
                        one.encode_histogram::<NoLabelSet>(took.sum().as_secs_f64(), took.count(), &steps, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl From<u64> for Value {
    fn from(times: u64) -> Self {
        Value::Count(times)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Gauge(value)
    }
}

impl From<Duration> for Value {
    fn from(total: Duration) -> Self {
        Value::Total(total.as_secs_f64())
    }
}

impl From<&Histogram> for Value {
    fn from(took: &Histogram) -> Self {
        Value::Took(took.clone())
    }
}

fn bounded(value: &str) -> String {
    value.chars().take(LONGEST_LABEL).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_make_up_is_bounded_and_no_series_is_there_twice() {
        let mut family = Family::counter("call_budget_x", "X.");
        for n in 0..MOST_SERIES + 10 {
            family.add([("code", &format!("CODE{n}"))], n as u64);
        }
        assert_eq!(family.series.len(), MOST_SERIES);
        let mut family = Family::counter("call_budget_x", "X.");
        for end in ["a", "b"] {
            family.add([("code", &format!("{}{end}", "초".repeat(LONGEST_LABEL)))], 1);
        }
        family.add([("code", "a\nb\u{7}")], 1);
        let values: Vec<_> = family.series.keys().map(|labels| labels[0].1.as_str()).collect();
        assert_eq!(values, ["a\u{fffd}b\u{fffd}", &"초".repeat(LONGEST_LABEL)]);
    }
}
