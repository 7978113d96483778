//! What processes show of their breakers, in words.

use super::duration::rough;
use super::output::{percent, short};
use crate::store::report::Report;
use crate::store::status::{Breaker, Episode, Hold};

/// A heading and a few lines for each breaker of each process.
pub fn in_words(report: &Report) -> String {
    let lines = why_none(report)
        .map_or_else(|| report.breakers.iter().map(one).collect::<Vec<_>>().join("\n"), |why| format!("  {why}"));
    format!("breakers\n{lines}")
}

/// Why there is no breaker to be shown, where that is so.
pub fn why_none(report: &Report) -> Option<String> {
    match report.breakers_unseen {
        Some(why) => Some(format!("not shown: {why}")),
        None if report.breakers.is_empty() => {
            Some("nothing was told within the last hour: a process tells while one is not closed".to_owned())
        }
        None => None,
    }
}

/// Which breaker, its state, and who told so when.
pub fn head(breaker: &Breaker) -> String {
    let retry = breaker.retry_us.map_or(String::new(), |us| format!(", next change in {}", rough(us)));
    let stale = if breaker.stale { ", stale" } else { "" };
    format!(
        "  {}  {}{retry}  {}  told {} ago{stale}",
        short(&breaker.breaker),
        breaker.state,
        process(breaker),
        rough(breaker.age_us)
    )
}

fn one(breaker: &Breaker) -> String {
    let mut lines = vec![head(breaker)];
    // One alone is called as its breaker.
    if breaker.surfaces.iter().any(|surface| *surface != breaker.breaker) {
        let pairs = breaker.surfaces.chunks(2);
        lines.extend(pairs.map(|pair| {
            format!("surfaces {}", pair.iter().map(|surface| short(surface)).collect::<Vec<_>>().join(", "))
        }));
    }
    if !breaker.why.is_empty() {
        lines.push(format!("why: {}", breaker.why));
    }
    let Breaker { calls, successes, failures, rejected, rung, .. } = breaker;
    lines.push(format!(
        "calls {calls} (ok {successes}, failed {failures}), rejected {rejected}, failure rate {}, slow rate {}, rung {rung}",
        rate(breaker.failure_rate_ppm),
        rate(breaker.slow_rate_ppm)
    ));
    if let Some(Episode { age_us, total_open_us, reopen_count, probe_count, cause }) = &breaker.episode {
        lines.push(format!(
            "episode for {}: blocked {}, reopened {reopen_count}, probes {probe_count}, cause {cause}",
            rough(*age_us),
            rough(*total_open_us)
        ));
    }
    lines.extend(breaker.holds.iter().map(hold));
    lines.join("\n    ")
}

/// What is refused, for how long, and why.
pub fn hold(Hold { scope, why, left_us }: &Hold) -> String {
    format!("{scope} held for {}: {why}", rough(*left_us))
}

/// The name that its sessions give, and enough of its own to tell it from others of that name.
fn process(breaker: &Breaker) -> String {
    let id = &breaker.process[..breaker.process.len().min(8)];
    match breaker.application_name.as_str() {
        "" => id.to_owned(),
        name => format!("{} {id}", short(name)),
    }
}

fn rate(ppm: Option<i32>) -> String {
    ppm.map_or("-".to_owned(), |ppm| percent(f64::from(ppm)))
}
