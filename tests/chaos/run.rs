//! A run from its start to its evidence.

use std::collections::BTreeMap;
use std::time::Duration;

use call_budget::cli::demo::plan::{BUDGET, LIMIT, LOOKAHEAD};
use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;
use fastrand::Rng;
use tokio::time::sleep;

use super::faults::{self, Healed, Scene};
use super::fleet::{Fleet, PROCESSES, Vendor, now_us};
use super::judge::{Evidence, Fault, Rule, Span};
use super::processes::descendants;
use super::schedule::{Kind, Planned, plan};
use super::site::Site;

/// What a run is to do.
pub struct Plan {
    pub seed: u64,
    pub length: Duration,
    pub kinds: Vec<Kind>,
    /// A statement that is carried out behind the fleet's back.
    pub plant: Option<String>,
}

/// The fleet has opened its sessions and found its pace.
const WARM_UP: Duration = Duration::from_secs(2);
/// What has not recovered by then will not.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(15);
/// Between a recovery and the next fault, so that there is something to measure.
const CALM_AT_LEAST: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Starts everything, plays the faults, ends everything.
///
/// # Errors
/// What kept it from being judged: something that the run itself is made of does not work.
pub async fn run(plan: &Plan) -> Result<Evidence, String> {
    let mut rng = Rng::with_seed(plan.seed);
    let vendor = Vendor::start()?;
    let site = Site::start(&mut rng).await?;
    let (settings, url) = site.callers();
    let fleet = Fleet::start(settings, url, vendor.address()).await?;
    say(&format!("{PROCESSES} processes, PostgreSQL {}, commits {:?}", versions(&site).await?, site.commits));
    let mut scene = Scene { site, fleet, steps_us: Vec::new() };
    until_arrival(&vendor, now_us(), None).await.ok_or("the fleet does not begin to call")?;
    sleep(WARM_UP).await;

    let begun = SystemClock.now();
    let from_us = now_us();
    if let Some(sql) = &plan.plant {
        let planted = scene.site.session().await?.batch_execute(sql).await;
        planted.map_err(|error| format!("{sql}: {error}"))?;
        say(&format!("planted: {sql}"));
    }
    let faults = play_all(plan, &mut scene, &vendor, begun).await?;
    SystemClock.sleep_until(begun + plan.length).await;
    let to_us = now_us();
    if let Some(died) = scene.fleet.died() {
        return Err(died);
    }
    let Scene { site, fleet, steps_us } = scene;
    let started = descendants(std::process::id());
    let processes = fleet.started();
    let (accounts, stops) = fleet.end().await?;
    let mut evidence = Evidence {
        rule: rule(),
        run: Span { from_us, to_us },
        processes,
        arrivals: vendor.arrivals(),
        stalls: vendor.stalls(),
        faults,
        stops,
        steps_us,
        accounts,
        granted: granted(&site).await?,
        left_running: Vec::new(),
    };
    drop(vendor);
    tokio::task::spawn_blocking(|| drop(site)).await.map_err(|error| error.to_string())?;
    evidence.left_running = left_running(&started).await;
    Ok(evidence)
}

async fn play_all(run: &Plan, scene: &mut Scene, vendor: &Vendor, begun: Instant) -> Result<Vec<Fault>, String> {
    let mut played = Vec::new();
    for Planned { kind, at, seed } in plan(run.seed, run.length, &run.kinds) {
        let calm = SystemClock.now() + CALM_AT_LEAST;
        SystemClock.sleep_until(calm.max(begun + at)).await;
        let begin = SystemClock.now().saturating_since(begun);
        if begin + CALM_AT_LEAST > run.length {
            break;
        }
        let begin_us = now_us();
        let healed = faults::play(kind, scene, &mut Rng::with_seed(seed)).await;
        let healed = healed.map_err(|why| format!("{} at {:.1} s: {why}", kind.name(), begin.as_secs_f64()))?;
        let recovered_us = until_arrival(vendor, healed.at_us, healed.whom).await;
        faults::clean_up(kind, scene).await.map_err(|why| format!("after {}: {why}", kind.name()))?;
        let over_us = now_us();
        say(&line(kind, begin, begin_us, &healed, recovered_us));
        let Healed { at_us: healed_us, whom, needs, forgettable, note } = healed;
        played.push(Fault { kind, begin_us, healed_us, over_us, whom, needs, forgettable, note });
        if let Some(died) = scene.fleet.died() {
            return Err(died);
        }
    }
    Ok(played)
}

/// Waits until somebody's request has come at or after that moment; `None`: nobody's did.
async fn until_arrival(vendor: &Vendor, from_us: u64, whom: Option<u32>) -> Option<u64> {
    let deadline = SystemClock.now() + RECOVERY_PATIENCE;
    while SystemClock.now() < deadline {
        if vendor.last_us() >= from_us {
            let arrivals = vendor.arrivals();
            let mut since = arrivals.iter().filter(|one| one.at_us >= from_us);
            if let Some(first) = since.find(|one| whom.is_none_or(|pid| pid == one.pid)) {
                return Some(first.at_us);
            }
        }
        sleep(LOOK).await;
    }
    None
}

fn line(kind: Kind, begin: Duration, begin_us: u64, healed: &Healed, recovered_us: Option<u64>) -> String {
    let lasted = (healed.at_us - begin_us) as f64 / 1e6;
    let recovered = match recovered_us {
        Some(at_us) => format!("recovered in {} ms", (at_us - healed.at_us) / 1000),
        None => format!("NOT RECOVERED within {RECOVERY_PATIENCE:?}"),
    };
    let name = kind.name();
    format!("{:>7.1} s  {name:<16} healed after {lasted:.1} s, {recovered:<22} {}", begin.as_secs_f64(), healed.note)
}

fn say(line: &str) {
    eprintln!("{line}");
}

async fn versions(site: &Site) -> Result<String, String> {
    let row = site.session().await?.query_one("SELECT current_setting('server_version')", &[]).await;
    Ok(row.map_err(|error| error.to_string())?.get(0))
}

async fn granted(site: &Site) -> Result<BTreeMap<String, u64>, String> {
    let sql = "SELECT name::text, granted FROM call_budget.call_budget_class WHERE budget = $1";
    let rows = site.session().await?.query(sql, &[&BUDGET]).await.map_err(|error| error.to_string())?;
    Ok(rows.iter().map(|row| (row.get(0), row.get::<_, i64>(1).cast_unsigned())).collect())
}

/// What of these processes is still there once all has been ended.
async fn left_running(started: &[u32]) -> Vec<String> {
    let stat = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended; whoever inherited it has not looked yet.
    let alive = |pid: &&u32| !stat(pid).is_empty() && !stat(pid).contains(") Z ");
    let deadline = SystemClock.now() + GONE_WITHIN;
    while started.iter().any(|pid| alive(&pid)) && SystemClock.now() < deadline {
        sleep(LOOK).await;
    }
    started.iter().filter(alive).map(|pid| stat(pid).split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
}

/// The demo's budget.
pub fn rule() -> Rule {
    let us = |duration: Duration| duration.as_micros() as u64;
    Rule {
        limit: u64::from(LIMIT.units),
        window_us: us(LIMIT.window),
        interval_us: us(LIMIT.interval().expect("the demo's limit is safe at some interval")),
        send_window_us: us(LIMIT.send_window),
        jitter_us: us(LIMIT.arrival_jitter),
        lookahead_us: us(LOOKAHEAD),
    }
}
