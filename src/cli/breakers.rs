//! What processes show of their breakers, in words.

use super::duration::rough;
use super::output::{percent, short};
use crate::store::report::Report;
use crate::store::status::{Breaker, Episode, Hold};

/// A heading and a few lines for each breaker of each process.
pub fn in_words(report: &Report) -> String {
    let lines = match report.breakers_unseen {
        Some(why) => format!("  not shown: {why}"),
        None if report.breakers.is_empty() => {
            "  nothing was told within the last hour: a process tells while one is not closed".to_owned()
        }
        None => report.breakers.iter().map(one).collect::<Vec<_>>().join("\n"),
    };
    format!("breakers\n{lines}")
}

fn one(breaker: &Breaker) -> String {
    let retry = breaker.retry_us.map_or(String::new(), |us| format!(", next change in {}", rough(us)));
    let stale = if breaker.stale { ", stale" } else { "" };
    let mut lines = vec![format!(
        "  {}  {}{retry}  {}  told {} ago{stale}",
        short(&breaker.breaker),
        breaker.state,
        process(breaker),
        rough(breaker.age_us)
    )];
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
    lines.extend(
        breaker.holds.iter().map(|Hold { scope, why, left_us }| format!("{scope} held for {}: {why}", rough(*left_us))),
    );
    lines.join("\n    ")
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
