//! Plays a run: the load on one service with the library beside it, then two services of which one is killed.

use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;

use crate::callers::{Door, Orders};
use crate::ground::{CLASS, Ground, Service};
use crate::judge::{Evidence, Kill, Load, Span};
use crate::looks::{self, Look, look};
use crate::notes::now_us;

pub const CALLERS: u32 = 500;
pub const IMPATIENT: u32 = 20;
/// Until everybody is connected and the queue has its length.
const RAMP_UP: Duration = Duration::from_secs(3);
const UNTIL_THE_KILL: Duration = Duration::from_secs(6);
const AFTER_THE_KILL: Duration = Duration::from_secs(7);

pub struct Plan {
    pub length: Duration,
}

pub async fn run(plan: &Plan) -> Result<Evidence, String> {
    let load_before = looks::machine_load();
    let ground = tokio::task::spawn_blocking(Ground::start).await.map_err(|error| error.to_string())??;
    let load = load(&ground, plan.length).await?;
    let kill = kill(&ground).await?;
    let rule = ground.budget("load-http")?;
    let said = ["one", "dies", "stays"].iter().flat_map(|name| ground.said(name)).collect();
    Ok(Evidence { rule, load, kill, said, machine_load_before: load_before })
}

async fn load(ground: &Ground, length: Duration) -> Result<Load, String> {
    let rule = ground.budget("load-http")?;
    ground.budget("load-library")?;
    ground.free_budget("load-free")?;
    let service = ground.serve("one")?;
    let begin = SystemClock.now();
    let end = begin + length;
    let orders = |door: Door, budget: &str| Orders {
        door,
        budget: budget.to_owned(),
        class: CLASS.to_owned(),
        send_window_us: rule.send_window_us,
        callers: CALLERS,
        impatient: IMPATIENT,
        free_budget: Some("load-free".to_owned()),
        end_us: us(end),
    };
    let http = ground.callers(&orders(Door::Http(vec![service.address]), "load-http")).await?;
    let library = ground.callers(&orders(Door::Library, "load-library")).await?;
    let looks = watch(&service, end).await;
    let (http, library) = tokio::try_join!(http.notes(), library.notes())?;
    Ok(Load {
        span: Span { from_us: us(begin + RAMP_UP), to_us: us(end) },
        http,
        library,
        looks,
        connections: u64::from(CALLERS + IMPATIENT) + 1,
    })
}

/// Looks at the service once a second until the end.
async fn watch(service: &Service, end: Instant) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut next = SystemClock.now() + looks::EVERY;
    while next < end {
        SystemClock.sleep_until(next).await;
        looks.extend(look(service.pid()));
        next = next + looks::EVERY;
    }
    looks
}

async fn kill(ground: &Ground) -> Result<Kill, String> {
    let rule = ground.budget("load-kill")?;
    let (stays, dies) = (ground.serve("stays")?, ground.serve("dies")?);
    let begin = SystemClock.now();
    let at = begin + UNTIL_THE_KILL;
    let end = at + AFTER_THE_KILL;
    let callers = ground
        .callers(&Orders {
            // Callers of even numbers begin with the one that stays.
            door: Door::Http(vec![stays.address, dies.address]),
            budget: "load-kill".to_owned(),
            class: CLASS.to_owned(),
            send_window_us: rule.send_window_us,
            callers: CALLERS,
            impatient: 0,
            free_budget: None,
            end_us: us(end),
        })
        .await?;
    SystemClock.sleep_until(at).await;
    dies.kill();
    let killed_us = now_us();
    let notes = callers.notes().await?;
    Ok(Kill { span: Span { from_us: us(begin + RAMP_UP), to_us: us(end) }, killed_us, callers: CALLERS, notes })
}

fn us(at: Instant) -> u64 {
    u64::try_from(at.since_boot().as_micros()).unwrap_or(u64::MAX)
}
