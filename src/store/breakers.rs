//! What processes say of their breakers. It decides nothing: for people alone.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::policy::Wall;
use crate::policy::breaker::event::Cause;
use crate::policy::breaker::{Shown, View};

/// One breaker of this process as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The breaker's name: its surface, or what the surfaces that share it call it.
    pub breaker: Arc<str>,
    /// Those behind it.
    pub surfaces: Vec<Arc<str>>,
    pub view: View,
    /// Until something can change.
    pub retry_after: Option<Duration>,
    /// What is held on its surfaces: scope, what is left, why.
    pub holds: Vec<(String, Duration, Arc<str>)>,
}

impl Snapshot {
    /// Closed, with no episode open and nothing held: nothing to tell once it was told.
    pub fn is_calm(&self) -> bool {
        self.view.shown == Shown::Closed && self.view.episode.is_none() && self.holds.is_empty()
    }
}

/// The list that `call_budget_publish_breakers` takes, as JSON. Where there are more than it takes, those that are not calm
/// go first. `wall` is now.
pub(super) fn in_json(snapshots: &[Snapshot], wall: Wall) -> String {
    let mut chosen: Vec<&Snapshot> = snapshots.iter().collect();
    chosen.sort_by_key(|snapshot| snapshot.is_calm());
    chosen.truncate(MOST_BREAKERS);
    let rows: Vec<Row> = chosen.into_iter().map(|snapshot| Row::of(snapshot, wall)).collect();
    serde_json::to_string(&rows).expect("strings, numbers and lists are always JSON")
}

/// As the store keeps a text that somebody else wrote: one line of at most 200 characters.
pub(super) fn one_line(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Under the names and in the units of `call_budget_breaker`.
#[derive(Serialize)]
struct Row<'a> {
    breaker: &'a str,
    surfaces: Vec<&'a str>,
    state: &'static str,
    why: String,
    retry_us: Option<i64>,
    rung: i32,
    failure_rate_ppm: Option<u32>,
    slow_rate_ppm: Option<u32>,
    successes: i64,
    failures: i64,
    rejected: i64,
    #[serde(flatten)]
    episode: Option<Episode>,
    holds: Vec<Hold>,
}

#[derive(Serialize)]
struct Episode {
    episode_us: i64,
    total_open_us: i64,
    reopen_count: i32,
    probe_count: i32,
    cause: &'static str,
}

#[derive(Serialize)]
struct Hold {
    scope: String,
    why: String,
    left_us: i64,
}

impl<'a> Row<'a> {
    fn of(snapshot: &'a Snapshot, wall: Wall) -> Self {
        let Snapshot { breaker, surfaces, view, retry_after, holds } = snapshot;
        Self {
            breaker,
            surfaces: surfaces.iter().take(MOST_SURFACES).map(|surface| &**surface).collect(),
            state: view.shown.as_str(),
            why: one_line(&view.why),
            retry_us: retry_after.map(micros),
            rung: i32::try_from(view.rung).unwrap_or(i32::MAX),
            failure_rate_ppm: view.failure_rate.map(ppm),
            slow_rate_ppm: view.slow_rate.map(ppm),
            successes: count(view.successes),
            failures: count(view.failures),
            rejected: count(view.rejected),
            episode: view.episode.map(|episode| Episode {
                episode_us: micros(wall.saturating_since(episode.started_at)),
                total_open_us: micros(episode.total_open),
                reopen_count: i32::try_from(episode.reopen_count).unwrap_or(i32::MAX),
                probe_count: i32::try_from(episode.probe_count).unwrap_or(i32::MAX),
                cause: cause(episode.cause),
            }),
            holds: holds
                .iter()
                .take(MOST_HOLDS)
                .map(|(scope, left, why)| Hold { scope: one_line(scope), why: one_line(why), left_us: micros(*left) })
                .collect(),
        }
    }
}

pub fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Streak => "streak",
        Cause::Rate => "rate",
        Cause::Slow => "slow",
        Cause::Probe => "probe",
        Cause::NoEvidence => "no_evidence",
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}

fn ppm(rate: f64) -> u32 {
    (rate.clamp(0.0, 1.0) * 1e6).round() as u32
}

fn count(number: u64) -> i64 {
    i64::try_from(number.min(LARGEST_COUNT)).unwrap_or(i64::MAX)
}

// What the schema takes.
const MOST_BREAKERS: usize = 100;
const MOST_SURFACES: usize = 20;
const MOST_HOLDS: usize = 20;
const LONGEST_TEXT: usize = 200;
const LONGEST: Duration = Duration::from_secs(315_576_000);
const LARGEST_COUNT: u64 = 1_000_000_000_000_000;

#[cfg(test)]
impl Snapshot {
    pub(crate) fn without_figures(breaker: &str, shown: Shown) -> Self {
        let view = View {
            shown,
            failure_rate: None,
            slow_rate: None,
            streak: 0,
            calls: 0,
            successes: 0,
            failures: 0,
            rejected: 0,
            stale: 0,
            why: String::new(),
            retry_at: None,
            rung: 0,
            epoch: 0,
            episode: None,
        };
        let surfaces = vec![breaker.into()];
        Self { breaker: breaker.into(), surfaces, view, retry_after: None, holds: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::breaker::view::EpisodeView;

    #[test]
    fn a_calm_breaker_is_told_without_an_episode() {
        let told = told(&[Snapshot::without_figures("kis/real/quote", Shown::Closed)]);
        assert_eq!(
            told,
            json!([{
                "breaker": "kis/real/quote", "surfaces": ["kis/real/quote"], "state": "closed", "why": "", "retry_us": null, "rung": 0,
                "failure_rate_ppm": null, "slow_rate_ppm": null, "successes": 0, "failures": 0, "rejected": 0, "holds": []
            }])
        );
    }

    #[test]
    fn an_episode_is_told_by_its_age_and_what_has_no_end_as_ten_years() {
        let mut open = Snapshot::without_figures("a", Shown::Open);
        (open.retry_after, open.view.failure_rate) = (Some(Duration::MAX), Some(2.0 / 3.0));
        (open.view.rejected, open.view.rung) = (u64::MAX, usize::MAX);
        let started_at = Wall::from_unix_us(NOW.unix_us() - 7_000_001);
        open.view.episode = Some(EpisodeView {
            started_at,
            total_open: Duration::from_secs(3),
            reopen_count: 2,
            probe_count: 3,
            cause: Cause::NoEvidence,
        });
        let row = told(&[open])[0].clone();
        let part = |names: &[&str]| names.iter().map(|name| row[name].clone()).collect::<Vec<_>>();
        assert_eq!(
            part(&["episode_us", "total_open_us", "reopen_count", "probe_count", "cause"]),
            [json!(7_000_001), json!(3_000_000), json!(2), json!(3), json!("no_evidence")]
        );
        assert_eq!(
            part(&["retry_us", "failure_rate_ppm", "rejected", "rung"]),
            [json!(315_576_000_000_000_i64), json!(666_667), json!(1_000_000_000_000_000_i64), json!(i32::MAX)]
        );
    }

    #[test]
    fn what_does_not_fit_is_cut_and_the_calm_ones_are_left_out_first() {
        let mut snapshots = vec![Snapshot::without_figures("calm", Shown::Closed); 150];
        let mut held = Snapshot::without_figures("held", Shown::Closed);
        held.view.why = "a\nb\0".repeat(100);
        held.holds = vec![("credential\t\"alice\"".into(), Duration::from_secs(1), "가".repeat(300).into()); 30];
        held.surfaces = vec!["kis/real/quote".into(); 30];
        snapshots.push(held);
        let told = told(&snapshots);
        assert_eq!(told.as_array().unwrap().len(), 100);
        assert_eq!(told[0]["breaker"], "held");
        assert_eq!(told[0]["why"], json!("a b ".repeat(50)));
        assert_eq!(told[0]["surfaces"], json!(vec!["kis/real/quote"; 20]));
        assert_eq!(told[0]["holds"].as_array().unwrap().len(), 20);
        assert_eq!(
            told[0]["holds"][19],
            json!({"scope": "credential \"alice\"", "why": "가".repeat(200), "left_us": 1_000_000})
        );
    }

    const NOW: Wall = Wall::from_unix_us(1_790_000_000_000_000);

    fn told(snapshots: &[Snapshot]) -> Value {
        serde_json::from_str(&in_json(snapshots, NOW)).unwrap()
    }
}
