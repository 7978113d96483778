//! Our own cost, as the bench printed it, held against what was promised.

/// Admit and settle together, uncontended, median.
const MOST_NS: f64 = 1_000.0;
/// The group of our rows, and the line of one of them that is uncontended.
const OURS: &str = "a_call_budget";
const UNCONTENDED: &str = "t=1";

/// What is wrong with our medians, a sentence each: above the promise, or not to be found in what the bench printed.
pub fn too_dear(bench: &str) -> Vec<String> {
    let medians: Vec<Option<f64>> = ours(bench).filter(|line| line.contains(UNCONTENDED)).map(median_ns).collect();
    if medians.is_empty() {
        return vec![format!("the bench printed no line {UNCONTENDED} of {OURS}")];
    }
    medians
        .into_iter()
        .filter_map(|median| match median {
            None => Some(format!("a line {UNCONTENDED} of {OURS} has no median")),
            Some(ns) if ns > MOST_NS => Some(format!("admit and settle take {ns} ns, more than {MOST_NS} ns (median)")),
            Some(_) => None,
        })
        .collect()
}

/// The lines from our group to the next one.
fn ours(bench: &str) -> impl Iterator<Item = &str> {
    let group = |line: &&str| line.starts_with(['├', '╰']);
    bench
        .lines()
        .skip_while(|line| !line.contains(OURS))
        .enumerate()
        .take_while(move |(place, line)| *place == 0 || !group(line))
        .map(|(_, line)| line)
}

/// The third column: fastest, slowest, median.
fn median_ns(line: &str) -> Option<f64> {
    let (number, unit) = line.split('│').rev().nth(3)?.trim().split_once(' ')?;
    let ns = match unit {
        "ps" => 0.001,
        "ns" => 1.0,
        "µs" => 1_000.0,
        "ms" => 1_000_000.0,
        "s" => 1_000_000_000.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = include_str!("../../docs/comparison.md");

    #[test]
    fn what_the_bench_prints_is_read_and_a_median_above_a_microsecond_is_told() {
        assert_eq!(too_dear(PRINTED), [""; 0]);
        let medians: Vec<f64> = ours(PRINTED).filter(|line| line.contains(UNCONTENDED)).filter_map(median_ns).collect();
        assert!(medians.len() == 2 && medians.iter().all(|ns| (10.0..1_000.0).contains(ns)), "{medians:?}");
        let row = |median: &str| {
            format!(
                "├─ a_call_budget │ │\n│  ├─ t=1  1 ns │ 9 µs │ {median} │ 2 ns │ 200 │ 200000\n├─ b\n│ ├─ t=1 1 ns │ 9 µs │ 5 µs │ 2 ns │ 200 │ 2\n"
            )
        };
        assert_eq!(too_dear(&row("1 µs")), [""; 0]);
        assert_eq!(too_dear(&row("1.001 µs")).len(), 1);
        assert_eq!(too_dear(&row("2 s")).len(), 1);
        assert_eq!(too_dear(&row("2 fortnights")).len(), 1);
        assert_eq!(too_dear("error").len(), 1);
    }
}
