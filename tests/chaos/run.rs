//! A run from its start to its evidence.

use std::collections::BTreeMap;
use std::time::Duration;

use call_budget::cli::demo::plan::{BUDGET, LIMIT, LOOKAHEAD};
use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;
use fastrand::Rng;
use tokio::time::sleep;

use super::faults::{self, Healed, Scene, Snapshot};
use super::fleet::{Fleet, PROCESSES, Past, Vendor, now_us};
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
    let mut scene = Scene { site, fleet, steps_us: Vec::new(), snapshot: None };
    until_arrival(&vendor, now_us(), None).await.ok_or("the fleet does not begin to call")?;
    sleep(WARM_UP).await;

    let begun = SystemClock.now();
    let from_us = now_us();
    if let Some(sql) = &plan.plant {
        let planted = scene.site.session().await?.batch_execute(sql).await;
        planted.map_err(|error| format!("{sql}: {error}"))?;
        say(&format!("planted: {sql}"));
    }
    let mut faults = Vec::new();
    let played = play_all(plan, &mut scene, &vendor, begun, &mut faults).await;
    // What was seen until something broke is judged all the same.
    let (to_us, mut broken) = match played {
        Ok(()) => (now_us(), Vec::new()),
        Err(Broke { at_us, why }) => (at_us, vec![why]),
    };
    broken.extend(scene.fleet.died().filter(|_| broken.is_empty()));
    let Scene { site, fleet, steps_us, .. } = scene;
    let started = descendants(std::process::id());
    let processes = fleet.started();
    let Past { accounts, stops, told, broken: ended } = fleet.end().await;
    broken.extend(ended);
    let granted = granted(&site).await.unwrap_or_else(|why| {
        broken.push(format!("what the store granted is not known: {why}"));
        BTreeMap::new()
    });
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
        granted,
        left_running: Vec::new(),
        told,
        broken,
    };
    drop(vendor);
    tokio::task::spawn_blocking(|| drop(site)).await.map_err(|error| error.to_string())?;
    evidence.left_running = left_running(&started).await;
    Ok(evidence)
}

/// Why a run ended early, and when that began.
struct Broke {
    at_us: u64,
    why: String,
}

/// Plays what is planned until the run's length is over.
async fn play_all(
    run: &Plan,
    scene: &mut Scene,
    vendor: &Vendor,
    begun: Instant,
    played: &mut Vec<Fault>,
) -> Result<(), Broke> {
    // Of the fault that began to hold the snapshot that is held.
    let mut holder = None;
    for Planned { kind, at, seed } in plan(run.seed, run.length, &run.kinds) {
        let calm = SystemClock.now() + CALM_AT_LEAST;
        SystemClock.sleep_until(calm.max(begun + at)).await;
        let begin = SystemClock.now().saturating_since(begun);
        if begin + CALM_AT_LEAST > run.length {
            break;
        }
        let begin_us = now_us();
        let broke = |why| Broke {
            at_us: begin_us,
            why: format!("{} at {:.1} s cannot be played: {why}", kind.name(), begin.as_secs_f64()),
        };
        if let Some(over) = scene.snapshot.take_if(|held| held.is_due()) {
            end_snapshot(over, holder.take(), played).await;
        }
        if kind == Kind::HeldSnapshot {
            holder.get_or_insert(played.len());
        }
        let healed = faults::play(kind, scene, &mut Rng::with_seed(seed)).await.map_err(broke)?;
        let recovered_us = until_arrival(vendor, healed.at_us, healed.whom).await;
        faults::clean_up(kind, scene).await.map_err(broke)?;
        if let Some(held) = &mut scene.snapshot {
            held.go_on(&scene.site).await.map_err(broke)?;
        }
        let over_us = now_us();
        say(&line(kind, begin, begin_us, &healed, recovered_us));
        let Healed { at_us: healed_us, whom, needs, forgettable, silent, note } = healed;
        played.push(Fault { kind, begin_us, healed_us, over_us, whom, needs, forgettable, silent, note });
        if let Some(died) = scene.fleet.died() {
            return Err(Broke { at_us: now_us(), why: died });
        }
    }
    SystemClock.sleep_until(begun + run.length).await;
    if let Some(held) = scene.snapshot.take() {
        end_snapshot(held, holder, played).await;
    }
    Ok(())
}

/// Lets go of it and writes down, with the fault that began it, how it was.
async fn end_snapshot(held: Snapshot, holder: Option<usize>, played: &mut [Fault]) {
    let how = held.end().await;
    say(&format!("{:>9}  held_snapshot    {how}", ""));
    if let Some(fault) = holder.and_then(|number| played.get_mut(number)) {
        fault.note = how;
    }
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
